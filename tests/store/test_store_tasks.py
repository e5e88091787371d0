"""Contract of every store: tasks are leased to one holder, and only the holder completes them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot.domain.ids import derived_id, new_id
from bot.domain.task import Task, TaskTag
from bot.store.protocols import Store

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
UNTIL = NOW + timedelta(minutes=5)
LEASES = {"POST": timedelta(minutes=5)}
ROOM = derived_id("room")


def build_task(name: str = "POST", next_run: float = 0, **details: object) -> Task:
    return Task(new_id(), name, NOW + timedelta(seconds=next_run), **details)  # type: ignore[arg-type]


async def claim(store: Store, *names: str, now: datetime = NOW, limit: int = 10) -> list[Task]:
    return await store.tasks.claim_tasks(dict.fromkeys(names or ("POST",), timedelta(minutes=5)), now, limit)


async def test_a_task_comes_back_as_it_was_saved(store: Store) -> None:
    kept = build_task(
        description="Write something.",
        room_id=ROOM,
        world_id=derived_id("world"),
        entity_id=derived_id("alice"),
        tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT, "post"}),
        metadata={"updateInterval": 60000, "notes": [1, {"a": None}]},
        attempts=2,
        is_parked=True,
        last_error="no answer",
    )
    await store.tasks.save_task(kept)

    assert await store.tasks.task(kept.id) == kept
    assert await store.tasks.task(new_id()) is None


async def test_tasks_are_found_by_everything_given(store: Store) -> None:
    both = build_task(room_id=ROOM, tags=frozenset({TaskTag.QUEUE, "a", "b"}), entity_id=derived_id("alice"))
    single = build_task(room_id=ROOM, tags=frozenset({"a"}))
    other = build_task("REMIND")
    for each in (both, single, other):
        await store.tasks.save_task(each)

    async def found(**details: object) -> set[Task]:
        return set(map(without_lease, await store.tasks.tasks(**details)))  # type: ignore[arg-type]

    assert await found() == {without_lease(both), without_lease(single), without_lease(other)}
    assert await found(name="POST") == {without_lease(both), without_lease(single)}
    assert await found(room_id=ROOM, tags=["a"]) == {without_lease(both), without_lease(single)}
    assert await found(tags=["a", "b"]) == {without_lease(both)}
    assert await found(entity_id=derived_id("alice")) == {without_lease(both)}
    assert await found(name="REMIND", room_id=ROOM) == set()


def without_lease(task: Task) -> Task:
    return replace(task, metadata=())  # type: ignore[arg-type]  # a mapping cannot stand in a set


async def test_a_due_task_is_leased_once_and_again_only_when_the_lease_is_over(store: Store) -> None:
    kept = build_task()
    await store.tasks.save_task(kept)
    [first] = await claim(store)

    assert first == replace(kept, leased_until=UNTIL, fencing_token=1)
    assert await store.tasks.task(kept.id) == first
    assert await claim(store) == []
    assert await claim(store, now=UNTIL - timedelta(microseconds=1)) == []

    [second] = await claim(store, now=UNTIL)
    assert second.fencing_token == 2
    assert second.leased_until == UNTIL + timedelta(minutes=5)


async def test_only_what_is_queued_due_unparked_and_known_is_claimed(store: Store) -> None:
    due = build_task("POST")
    for task in (
        due,
        build_task("POST", next_run=0.001),
        build_task("POST", tags=frozenset({TaskTag.REPEAT})),
        build_task("POST", is_parked=True),
        build_task("NOBODY_KNOWS"),
    ):
        await store.tasks.save_task(task)

    assert [task.id for task in await claim(store, "POST", "REMIND")] == [due.id]
    assert await store.tasks.claim_tasks({}, NOW) == []
    assert await store.tasks.task(due.id) is not None


async def test_the_longest_due_is_claimed_first_and_no_more_than_the_limit(store: Store) -> None:
    tasks = [build_task(next_run=-seconds) for seconds in (1, 3, 2, 4)]
    for task in tasks:
        await store.tasks.save_task(task)

    assert [task.next_run for task in await claim(store, limit=3)] == sorted(task.next_run for task in tasks)[:3]
    assert len(await claim(store)) == 1


async def test_the_holder_completes_a_task_and_the_lease_ends(store: Store) -> None:
    await store.tasks.save_task(build_task())
    [held] = await claim(store)
    later = replace(held, next_run=NOW + timedelta(minutes=1), attempts=3, last_error="busy", fencing_token=0)

    assert await store.tasks.complete_task(held, later)
    assert await store.tasks.task(held.id) == replace(later, leased_until=None, fencing_token=held.fencing_token)

    [again] = await claim(store, now=NOW + timedelta(minutes=1))
    assert again.fencing_token == held.fencing_token + 1
    assert await store.tasks.complete_task(again, None)
    assert await store.tasks.task(held.id) is None


async def test_a_former_holder_changes_nothing(store: Store) -> None:
    await store.tasks.save_task(build_task())
    [slow] = await claim(store)
    [quick] = await claim(store, now=UNTIL)

    assert not await store.tasks.complete_task(slow, None)
    assert not await store.tasks.complete_task(slow, replace(slow, last_error="late"))
    assert await store.tasks.task(slow.id) == quick
    assert await store.tasks.complete_task(quick, None)
    assert not await store.tasks.complete_task(quick, None)
    assert await store.tasks.tasks() == []


async def test_a_task_changed_while_it_runs_stays_leased(store: Store) -> None:
    before = build_task()
    await store.tasks.save_task(before)
    [held] = await claim(store)
    await store.tasks.save_task(replace(before, metadata={"done": 3}))

    assert await claim(store) == []
    found = await store.tasks.task(held.id)
    assert found == replace(held, metadata={"done": 3})
    assert await store.tasks.complete_task(held, None)


async def test_a_former_holders_change_does_not_end_the_new_lease(store: Store) -> None:
    await store.tasks.save_task(build_task())
    [zombie] = await claim(store)
    [successor] = await claim(store, now=UNTIL)
    await store.tasks.save_task(replace(zombie, metadata={"progress": 1}))

    assert not await store.tasks.complete_task(zombie, None)
    assert await store.tasks.complete_task(successor, None)


async def test_a_task_is_removed_once(store: Store) -> None:
    kept = build_task()
    await store.tasks.save_task(kept)
    [held] = await claim(store)

    assert await store.tasks.delete_task(kept.id)
    assert not await store.tasks.delete_task(kept.id)
    assert not await store.tasks.complete_task(held, held)
    assert await store.tasks.task(kept.id) is None


@pytest.mark.failure("J-07")
async def test_a_lease_that_ends_without_completion_counts_as_an_attempt(store: Store) -> None:
    await store.tasks.save_task(build_task(tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT})))
    [first] = await claim(store)
    [second] = await claim(store, now=UNTIL)
    assert (first.attempts, second.attempts) == (0, 1)
    assert first.run_key == second.run_key
    assert await store.tasks.task(first.id) == second

    assert await store.tasks.complete_task(second, replace(second, attempts=0))
    [third] = await claim(store, now=UNTIL)
    assert third.attempts == 0
    assert third.run_key != first.run_key


async def test_the_next_due_time_ignores_leased_and_parked_tasks(store: Store) -> None:
    assert await store.tasks.next_due(["POST"]) is None
    for task in (
        build_task(next_run=5),
        build_task(next_run=2),
        build_task("OTHER", next_run=1),
        build_task(next_run=0, is_parked=True),
    ):
        await store.tasks.save_task(task)

    assert await store.tasks.next_due(["POST", "REMIND"]) == NOW + timedelta(seconds=2)
    assert await store.tasks.next_due([]) is None
    await claim(store, now=NOW + timedelta(seconds=2))
    assert await store.tasks.next_due(["POST"]) == NOW + timedelta(seconds=5)


async def test_queued_tasks_are_counted_by_name_and_whether_they_are_parked(store: Store) -> None:
    for task in (
        build_task(),
        build_task(),
        build_task(is_parked=True),
        build_task("OTHER"),
        build_task("CHOICE", tags=frozenset()),
    ):
        await store.tasks.save_task(task)

    assert await store.tasks.count_tasks() == {("POST", False): 2, ("POST", True): 1, ("OTHER", False): 1}


async def test_a_watcher_is_called_for_every_saved_task(store: Store) -> None:
    saved: list[bool] = []
    store.tasks.watch(lambda: saved.append(True))
    await store.tasks.save_task(build_task())
    await claim(store)

    assert saved == [True]


@pytest.mark.parametrize("excluded", [(), (derived_id("elsewhere"),)], ids=["all rooms", "most rooms"])
async def test_each_worker_has_its_own_lease(store: Store, excluded: tuple[UUID, ...]) -> None:
    await store.tasks.save_task(build_task("POST"))
    await store.tasks.save_task(build_task("LONG"))
    leases = {"POST": timedelta(seconds=5), "LONG": timedelta(minutes=10)}
    claimed = await store.tasks.claim_tasks(leases, NOW, 10, excluded)

    assert {task.name: task.leased_until for task in claimed} == {name: NOW + time for name, time in leases.items()}
    stored = [await store.tasks.task(task.id) for task in claimed]
    assert stored == claimed


async def test_tasks_of_excluded_rooms_are_not_claimed(store: Store) -> None:
    flooded, quiet = derived_id("flooded"), derived_id("quiet")
    rooms = [flooded] * 5 + [quiet, None]
    for number, room_id in enumerate(rooms):
        await store.tasks.save_task(Task(new_id(), "POST", NOW + timedelta(seconds=number), room_id=room_id))
    later = NOW + timedelta(minutes=1)
    claimed = await store.tasks.claim_tasks(LEASES, later, 10, {flooded})
    assert [task.room_id for task in claimed] == [quiet, None]
    assert await store.tasks.claim_tasks(LEASES, later, 10, {flooded}) == []
    assert len(await store.tasks.claim_tasks(LEASES, later, 10, {quiet, derived_id("other")})) == 5
