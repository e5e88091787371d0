"""What every test may ask for."""

import os
import sys

import pytest

pytest_plugins = ["tests.postgres"]


def pytest_configure() -> None:
    """Have bytecode kept: else every process that a test starts compiles the whole bot for itself."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio alone: it is what the bot runs on."""
    return "asyncio"
