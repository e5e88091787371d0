import asyncio

import pytest

from adapters.web.messages import run_shielded
from bot.platform import TaskSet


async def test_a_shielded_task_finishes_after_its_caller_is_cancelled() -> None:
    tasks, go, done = TaskSet("a request"), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    waiting = asyncio.ensure_future(run_shielded(tasks, work()))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()
    async with asyncio.timeout(30):
        await done.wait()


async def test_an_error_is_raised_to_the_caller_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet("a request", logs_failures=False)

    async def work() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        await run_shielded(tasks, work())
    assert not caplog.records
    announcements = TaskSet("announcing an outcome")
    announcements.start(work())
    await announcements.cancel()
    await asyncio.sleep(0)
    announcements.start(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "announcing an outcome failed" in caplog.text


async def test_background_tasks_are_cancelled_with_the_server() -> None:
    tasks = TaskSet("a request", logs_failures=False)
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tasks.start(work())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert ended.is_set()
