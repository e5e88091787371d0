import asyncio
import logging

import pytest

from bot.concurrency.tasks import TaskSet


async def test_a_task_set_waits_for_its_tasks_and_counts_those_that_are_late() -> None:
    release = asyncio.Event()
    tasks = TaskSet("test")
    quick, slow = tasks.start(asyncio.sleep(0)), tasks.start(release.wait())
    assert await tasks.wait(0.0) <= 2
    await quick
    assert await tasks.wait(0.01) == len(tasks) == 1
    release.set()
    assert await tasks.wait() == 0
    assert slow.result() is True


async def test_cancelling_a_task_set_ends_its_tasks() -> None:
    tasks = TaskSet("test")
    task = tasks.start(asyncio.Event().wait())
    assert await tasks.cancel() == 0
    assert task.cancelled()


@pytest.mark.parametrize("logs_failures", [True, False])
async def test_a_failure_is_logged_once_unless_the_caller_awaits_it(
    logs_failures: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    tasks = TaskSet("greeting", logs_failures=logs_failures)
    tasks.start(fail())
    with caplog.at_level(logging.ERROR):
        await tasks.wait()
    assert [record.getMessage() for record in caplog.records] == ["greeting failed: broken"] * logs_failures
