"""Signal handling of the commands."""

import asyncio
import os
import signal

import pytest

from bot.cli.process.shutdown import handle_stop_signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)], ids=str)
def test_the_first_signal_cancels_the_block_after_its_clean_up(
    number: int, code: int, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # the parent process may have it ignored
    request.addfinalizer(lambda: signal.signal(number, before))
    seen: list[str] = []

    async def work() -> int:
        with handle_stop_signals(lambda: seen.append("notice")) as stop:
            try:
                os.kill(os.getpid(), number)
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned up")
        seen.append("after")
        return stop.exit_code

    assert asyncio.run(work()) == code
    assert seen == ["notice", "cleaned up", "after"]


def test_another_cancellation_is_propagated() -> None:
    async def work() -> None:
        with handle_stop_signals(lambda: None):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())


def test_without_a_signal_the_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> int:
        with handle_stop_signals(lambda: None) as stop:
            pass
        return stop.exit_code

    assert asyncio.run(work()) == 0
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:

        async def work() -> bool:
            with handle_stop_signals(lambda: None):
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0)
            return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

        assert asyncio.run(work())
    finally:
        signal.signal(signal.SIGHUP, before)
