"""What every test may ask for."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from bot.cli.process.limits import reduce_gc_frequency
from tests.chaos.program import Nursery

# A certificate whose key is gone: nothing is signed by it, and nothing in the tests needs the system's.
ROOT_CERTIFICATE = Path(__file__).with_name("root.pem")
# What bots in processes of their own need beside the bot itself, and would else each import for themselves.
PRELOADED = (
    *("adapters.console.adapter", "adapters.discord.adapter", "adapters.telegram.adapter"),
    *(
        "adapters.web.adapter",
        "adapters.x.adapter",
        "bot.cli.commands.chat",
        "bot.cli.commands.db",
        "bot.cli.commands.outbox",
    ),
    *("bot.cli.commands.why", "plugins.offline"),
)

pytest_plugins = ["tests.postgres"]


def pytest_configure() -> None:
    """Put right what tests and the processes that they start inherit.

    Bytecode is kept: else each process compiles the whole bot for itself. Signals are heard: a shell has
    those in the background ignore Ctrl-C. One root certificate is known: reading the system's two hundred for
    each client anew takes longer than most tests.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["SSL_CERT_FILE"] = str(ROOT_CERTIFICATE)
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heard)


def pytest_collection_finish() -> None:
    """Look for garbage as the bot itself does, and not among thousands of tests and all that they import."""
    reduce_gc_frequency()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Have three workers for two cores: a third of the time they wait, for processes and for platforms."""
    cores = yield
    return cores + cores // 2


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Start what bots in processes of their own are born from; Python imports once for all of them."""
    with Nursery(tmp_path_factory.mktemp("nursery"), *PRELOADED) as opened:
        yield opened


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio alone: it is what the bot runs on."""
    return "asyncio"
