"""The watchdog names the code that blocks the event loop."""

import asyncio
import logging
import threading

import pytest

from bot.cli.process import watchdog
from bot.cli.process.shutdown import StopRequest
from bot.cli.process.watchdog import run_watchdog


class LogCollector(logging.Handler):
    """Collects log messages and releases its waiters at the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.set()


def blocking_plugin(collector: LogCollector) -> None:
    assert collector.messages.wait(20)


@pytest.mark.failure("H-05")
async def test_a_blocked_loop_is_logged_with_the_blocking_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED_WARNING_SECONDS", 0.05)
    collector = LogCollector()
    logging.getLogger(watchdog.__name__).addHandler(collector)
    try:
        with run_watchdog(StopRequest()):
            blocking_plugin(collector)
            collector.messages.clear()
            await asyncio.to_thread(collector.messages.wait, 20)  # until the log says that the loop continues
    finally:
        logging.getLogger(watchdog.__name__).removeHandler(collector)

    blocked, continues = (record.getMessage() for record in caplog.records if record.name == watchdog.__name__)
    assert blocked.startswith("event loop blocked for 0 s at wait (")
    assert "blocking_plugin (" in blocked
    assert "test_watchdog.py:" in blocked
    assert continues.startswith("event loop continues after ")
