import asyncio
import logging

import pytest

from bot.concurrency.tasks import FairSlots, MemorySemaphore, TaskSet, TaskSlots
from bot.errors import MemoryLimitReached


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


async def test_a_task_that_left_its_slot_lets_another_run_and_takes_a_slot_again() -> None:
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


async def test_owners_with_many_blocks_take_turns_with_an_owner_that_comes_later() -> None:
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


async def test_blocks_hold_no_more_bytes_than_the_limit_and_wait_in_their_order() -> None:
    memory, order = MemorySemaphore(10), list[str]()

    async def work(name: str, size: int) -> None:
        async with memory.hold(size):
            order.append(name)
            await end.wait()

    end = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name, size in (("a", 6), ("large", 8), ("b", 4), ("nothing", 0), ("c", 1)):
            group.create_task(work(name, size))
        await _settle()
        assert order == ["a", "nothing"], "a smaller block does not pass a larger one that came before it"
        assert memory.held == 6
        end.set()
    assert order == ["a", "nothing", "large", "b", "c"]
    assert memory.held == 0


async def test_a_block_larger_than_the_limit_is_refused_and_the_error_says_what_to_do() -> None:
    memory = MemorySemaphore(4 * 2**20)
    with pytest.raises(MemoryLimitReached, match=r"it takes 5 MiB of memory, and MEMORY_LIMIT is 4 MiB: raise"):
        async with memory.hold(5 * 2**20):
            pass
    async with memory.hold(2**20):
        with pytest.raises(MemoryLimitReached, match="it takes 5 MiB"):
            memory.grow(5 * 2**20)
    assert memory.held == 0


async def test_an_inner_block_uses_the_bytes_of_the_outer_block_and_does_not_wait_for_more() -> None:
    memory = MemorySemaphore(10)

    async def inner(size: int) -> None:
        async with memory.hold(size):
            held.append(memory.held)
            await asyncio.sleep(0)

    held, end = list[int](), asyncio.Event()
    async with memory.hold(4):
        async with asyncio.TaskGroup() as group:
            for size in (3, 1, 2):
                group.create_task(inner(size))
        async with memory.hold(4):
            pass
        assert memory.held == 6
    assert held == [4, 4, 6]
    other = asyncio.create_task(_hold_until(memory, 3, end))
    await _settle()
    async with memory.hold(6):
        with pytest.raises(MemoryLimitReached, match="try again later"):
            async with asyncio.timeout(5), memory.hold(8):
                pass
    end.set()
    await other


async def test_what_a_block_grows_by_is_held_until_it_ends() -> None:
    memory = MemorySemaphore(10)
    async with memory.hold(3):
        memory.grow(2)
        assert memory.held == 3
        memory.grow(4)
        assert memory.held == 6
        with pytest.raises(MemoryLimitReached):
            memory.grow(5)
    assert memory.held == 0
    memory.grow(10)  # outside a block it is only asked whether they are free
    assert memory.held == 0
    with pytest.raises(MemoryLimitReached):
        memory.grow(11)


async def test_a_task_that_outlives_the_block_in_which_it_started_waits_as_any_other() -> None:
    memory, begin, end = MemorySemaphore(10), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await begin.wait()
        async with memory.hold(10):
            pass

    async with memory.hold(1):
        task = asyncio.create_task(work())
        await _settle()
    blocking = asyncio.create_task(_hold_until(memory, 5, end))
    await _settle()
    begin.set()
    await _settle()
    assert not task.done()
    end.set()
    await asyncio.gather(task, blocking)
    assert memory.held == 0


async def _hold_until(memory: MemorySemaphore, size: int, end: asyncio.Event) -> None:
    async with memory.hold(size):
        await end.wait()


async def test_a_cancelled_block_gives_its_bytes_back_and_lets_smaller_ones_pass() -> None:
    memory, end = MemorySemaphore(10), asyncio.Event()
    holding = asyncio.create_task(_hold_until(memory, 6, end))
    large = asyncio.create_task(_hold_until(memory, 8, end))
    small = asyncio.create_task(_hold_until(memory, 4, end))
    await _settle()
    large.cancel()
    await _settle()
    assert memory.held == 10
    given = asyncio.create_task(_hold_until(memory, 10, end))
    await _settle()
    end.set()
    await asyncio.gather(holding, small)
    given.cancel()  # it was given its bytes, and may not have run since
    await asyncio.wait([large, given])
    assert memory.held == 0


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
