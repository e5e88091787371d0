"""Fixtures and hooks for all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from aiohttp import web_app
from hypothesis import HealthCheck, settings

from bot.cli.process.shutdown import GC_THRESHOLDS, reduce_gc_frequency
from bot.pipeline import process_message
from bot.prompts.reply_parser import reader
from tests.chaos.program import ForkServer
from tests.hostile.attacks import DOWNLOADED

# A root certificate without a key; the tests need none of the system's certificates.
ROOT_CERTIFICATE = Path(__file__).with_name("root.pem")
# Modules that bots in separate processes need; imported once by the process that forks them.
PRELOADED = (
    *("adapters.console.adapter", "adapters.discord.adapter", "adapters.matrix.adapter", "adapters.telegram.adapter"),
    *(
        "adapters.farcaster.adapter",
        "adapters.mastodon.adapter",
        "adapters.web.adapter",
        "adapters.x.adapter",
        "bot.cli.commands.chat",
        "bot.cli.commands.db",
        "bot.cli.commands.deliveries",
    ),
    *("bot.cli.commands.why", "plugins.offline"),
)

# A slow machine is no failure: examples have no deadline, and slow generation is no health problem.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
pytest_plugins = ["tests.postgres"]


os.environ["LC_ALL"] = "C.UTF-8"  # texts are in English here


def pytest_configure() -> None:
    """Set up the process state that tests and their processes inherit.

    Garbage is collected seldom, as in the bot: collecting the tests makes millions of objects that stay.
    Bytecode is cached, so that not every process compiles the whole bot. Signals that a shell ignores for
    background jobs are enabled. Only one root certificate is loaded: reading the system's two hundred for
    each client takes longer than most tests. Bots send AI notices only where a test asks for them. aiohttp does not
    remember the handlers of servers that have stopped: with them, every server of a test would stay in memory.
    """
    web_app.__dict__["_cached_build_middleware"] = web_app.__dict__["_build_middlewares"]
    gc.set_threshold(*GC_THRESHOLDS)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["SSL_CERT_FILE"] = str(ROOT_CERTIFICATE)
    os.environ["AI_NOTICE"] = "off"
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heard)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what a matrix has beyond the cases that its mark keeps, which are spread evenly."""
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("matrix") is not None:
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in matrices.values():
        mark = cases[0].get_closest_marker("matrix")
        kept = mark.args[0] if mark is not None else len(cases)
        for index, case in enumerate(cases):
            if index * kept // len(cases) == (index - 1) * kept // len(cases):
                case.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Configure the garbage collector as the bot does, so that it skips the collected tests and imports."""
    reduce_gc_frequency()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Return a worker more than there are cores: tests wait for processes and servers a part of their time."""
    cores = yield
    return cores + 1


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Start the process that forks bots, so that modules are imported once for all of them."""
    with ForkServer(tmp_path_factory.mktemp("fork_server"), *PRELOADED) as opened:
        yield opened


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio only, as the bot does."""
    return "asyncio"


@pytest.fixture
def nothing_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show texts while they are written to their end, so that tests of streaming need no long ones."""
    monkeypatch.setattr(reader, "HOLD_BACK", 0)


@pytest.fixture
def immediate_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer an edit of a message at once, without the pause after the message."""
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report whether the hostile model had the attack texts of published packages."""
    if not DOWNLOADED.is_dir():
        line = "hostile model: own attack texts only, `make attack-texts` brings those of packages"
        terminalreporter.write_line(line)
