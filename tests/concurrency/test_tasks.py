import asyncio
import logging

import pytest

from bot.concurrency.tasks import FairSlots, TaskSet, TaskSlots


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


async def test_a_task_that_left_its_slot_lets_another_run_and_takes_one_again() -> None:
    slots, may_go_on, order = TaskSlots(1), asyncio.Event(), []

    async def wait_for_other() -> None:
        async with slots.hold():
            async with slots.leave():
                await may_go_on.wait()
            order.append("waited")

    async def other() -> None:
        async with slots.hold():
            order.append("other")
            may_go_on.set()

    await asyncio.gather(wait_for_other(), other())
    assert order == ["other", "waited"]


async def test_a_task_cancelled_while_it_has_left_its_slot_gives_none_back_twice() -> None:
    slots, running, highest = TaskSlots(1), 0, 0

    async def wait_for_ever() -> None:
        async with slots.hold(), slots.leave():
            await asyncio.Event().wait()

    async def work() -> None:
        nonlocal running, highest
        async with slots.hold():
            running += 1
            highest = max(highest, running)
            await asyncio.sleep(0)
            running -= 1

    cancelled = asyncio.create_task(wait_for_ever())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await asyncio.gather(work(), work(), work())
    assert highest == 1


async def test_a_task_without_a_slot_leaves_none() -> None:
    slots = TaskSlots(1)
    async with slots.leave():
        pass
    async with slots.hold(), slots.leave():
        pass


async def test_an_owner_with_many_blocks_takes_no_more_slots_than_it_leaves_to_others() -> None:
    slots, running, end = FairSlots(8), list[str](), asyncio.Event()

    async def work(*owners: str) -> None:
        async with slots.hold(owners):
            running.append(owners[0])
            await end.wait()

    async with asyncio.TaskGroup() as group:
        crowd = [group.create_task(work("a", "room")) for _ in range(50)]
        await _settle()
        assert running == ["a"] * 4
        for owners in (("b",), ("b",), ("b",), ("c",), ("d", "room"), ("e",), ("f",)):
            group.create_task(work(*owners))
        await _settle()
        assert running == [*"aaaabbce"]
        crowd[0].cancel()
        await _settle()
        assert running == [*"aaaabbcef"]
        for waiting in crowd[4:]:
            waiting.cancel()
        end.set()
    assert sorted(running) == [*"aaaabbbcdef"]


async def test_owners_with_many_blocks_take_turns_with_one_that_comes_later() -> None:
    slots, order = FairSlots(2), list[str]()

    async def work(owner: str) -> None:
        async with slots.hold([owner]):
            order.append(owner)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for owner in "aaaaabbbbbc":
            group.create_task(work(owner))
    assert order.index("c") < 5


async def test_a_cancelled_block_gives_its_slot_back() -> None:
    slots = FairSlots(2)
    async with slots.hold():
        waiting = asyncio.ensure_future(slots.hold().__aenter__())
        await _settle()
    waiting.cancel()  # it was given the slot, and has not run since
    await asyncio.wait([waiting])
    async with asyncio.timeout(5), slots.hold():
        pass


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
