import asyncio

import pytest

from adapters.web.messages import BackgroundTasks


async def test_a_shielded_task_finishes_after_its_caller_is_cancelled() -> None:
    errands, go, done = BackgroundTasks(), asyncio.Event(), asyncio.Event()

    async def errand() -> None:
        await go.wait()
        done.set()

    waiting = asyncio.ensure_future(errands.run_shielded(errand()))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()
    async with asyncio.timeout(30):
        await done.wait()


async def test_an_error_is_raised_to_the_caller_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    errands = BackgroundTasks()

    async def errand() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        await errands.run_shielded(errand())
    assert not caplog.records
    errands.start(errand())
    await errands.stop()
    await asyncio.sleep(0)
    errands.start(errand())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "something begun for a client failed" in caplog.text


async def test_background_tasks_are_cancelled_with_the_server() -> None:
    errands = BackgroundTasks()
    ended = asyncio.Event()

    async def errand() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    errands.start(errand())
    await asyncio.sleep(0)
    await errands.stop()
    assert ended.is_set()
