"""What every test may ask for."""

import os
import signal
import sys

import pytest

pytest_plugins = ["tests.postgres"]


def pytest_configure() -> None:
    """Put right what tests and the processes that they start inherit.

    Bytecode is kept: else each process compiles the whole bot for itself. Signals are heard: a shell has
    those in the background ignore Ctrl-C.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heard)


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio alone: it is what the bot runs on."""
    return "asyncio"
