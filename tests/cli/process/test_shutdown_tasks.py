"""Tasks that plugins leave running at exit."""

import asyncio
import threading
from contextlib import suppress

import anyio.to_thread
import pytest

from bot.cli.process import shutdown
from bot.cli.process.shutdown import stop_remaining_tasks


@pytest.mark.failure("H-09")
async def test_tasks_left_by_a_plugin_are_logged_and_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def ticking() -> None:
        await asyncio.Event().wait()

    async def clinging() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    over = threading.Event()
    held = []

    async def main() -> None:
        async with stop_remaining_tasks():
            held.extend([asyncio.create_task(ticking()), asyncio.create_task(clinging())])
            threading.Thread(target=over.wait, name="watering").start()
            await asyncio.sleep(0)

    try:
        await asyncio.to_thread(asyncio.run, main())
    finally:
        over.set()

    assert all(task.done() for task in held)
    tasks, clung, threads = caplog.messages
    assert tasks.startswith("2 tasks still ran and are cancelled: ")
    assert "ticking (" in tasks
    assert "test_shutdown_tasks.py:" in tasks
    assert "clinging (" in clung
    assert "still run and delay the exit: " in threads
    assert "watering" in threads


@pytest.mark.failure("H-09")
async def test_an_uncancellable_task_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clinging(Exception):
        pass

    async def cling() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
            except GeneratorExit:
                raise Clinging from None

    async def main() -> str:
        async with stop_remaining_tasks():
            held.append(asyncio.create_task(cling()))
            await asyncio.sleep(0)
        return "swept"

    monkeypatch.setattr(shutdown, "CANCEL_GRACE_SECONDS", 0)
    held: list[asyncio.Task[None]] = []
    assert await asyncio.to_thread(asyncio.run, main()) == "swept"
    assert held[0].done()


async def test_idle_threads_of_the_event_loop_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with stop_remaining_tasks():
            await asyncio.to_thread(int)
            await anyio.to_thread.run_sync(int)  # the watcher of changed files works in such a one

    await asyncio.to_thread(asyncio.run, main())
    assert "AnyIO" not in caplog.text  # pytest's own thread may be named
    assert "asyncio_" not in caplog.text
