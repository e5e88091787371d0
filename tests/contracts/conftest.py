"""Fixtures of the contract tests: commands run in an empty folder, without the variables of this machine."""

from tests.cli.conftest import workdir as workdir
