"""What blocks the event loop is named while it still does."""

import asyncio
import logging
import threading

import pytest

from bot.cli.process import watchdog
from bot.cli.process.shutdown import Stop
from bot.cli.process.watchdog import watching


class Ear(logging.Handler):
    """Lets go of whoever waits as soon as something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.set()


def a_plugin_that_blocks(ear: Ear) -> None:
    assert ear.heard.wait(20)


async def test_h05_a_loop_that_stands_still_is_told_of_with_the_place_that_blocks_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "TICK", 0.01)
    monkeypatch.setattr(watchdog, "FROZEN", 0.05)
    ear = Ear()
    logging.getLogger(watchdog.__name__).addHandler(ear)
    try:
        with watching(Stop()):
            a_plugin_that_blocks(ear)
            ear.heard.clear()
            await asyncio.to_thread(ear.heard.wait, 20)  # until it is told that the bot goes on
    finally:
        logging.getLogger(watchdog.__name__).removeHandler(ear)

    stood, goes_on = (record.getMessage() for record in caplog.records if record.name == watchdog.__name__)
    assert stood.startswith("the bot stands still for 0 s already: wait (")
    assert "a_plugin_that_blocks (" in stood
    assert "test_run_watchdog.py:" in stood
    assert goes_on.startswith("the bot goes on, after ")
