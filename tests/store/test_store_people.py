"""Rules of every store for lists of people, of what they stated, and of tasks, page by page."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot import ChannelType, Content, Entity, Memory, MemoryKind, Room, Task, World, derived_id
from bot.store import PersonActivity, Store
from tests.clocks import ManualClock

ROOM, WORLD = derived_id("room"), derived_id("world")
ANN, BEN, CLARA = (Entity(derived_id(name), "test", name, (name,)) for name in ("ann", "ben", "clara"))


def build_fact(text: str, author: Entity, clock: ManualClock, kind: MemoryKind = MemoryKind.FACT) -> Memory:
    return Memory(derived_id("fact", text), kind, author.id, ROOM, WORLD, Content(text=text), clock.now)


async def test_people_are_listed_by_their_last_message_page_by_page(store: Store, clock: ManualClock) -> None:
    await store.entities.save_entities([ANN, BEN, CLARA])
    at = clock.now
    later = at + timedelta(hours=1)
    await store.entities.add_activity([PersonActivity(ANN.id, at, at, 1, 1), PersonActivity(BEN.id, later, later, 2)])
    await store.entities.add_activity([PersonActivity(CLARA.id, at, at, 1), PersonActivity(ANN.id, at, at, 4, 1)])
    everybody = await store.entities.active_entities()
    assert [entity for entity, _ in everybody] == [
        BEN,
        *sorted([ANN, CLARA], key=lambda person: person.id, reverse=True),
    ]
    listed, before = [], None
    while page := await store.entities.active_entities(1, before):
        [(entity, activity)] = page
        listed.append(entity)
        before = (activity.last_at, entity.id)
    assert listed == [entity for entity, _ in everybody]


async def test_activity_is_added_up(store: Store, clock: ManualClock) -> None:
    at = clock.now
    earlier, later = at - timedelta(hours=1), at + timedelta(hours=1)
    assert await store.entities.activity(ANN.id) is None
    await store.entities.add_activity([PersonActivity(ANN.id, at, at, 1)])
    await store.entities.add_activity([PersonActivity(ANN.id, earlier, later, 2, 1)])
    await store.entities.add_activity([PersonActivity(ANN.id, at, at, 1, 1)])
    assert await store.entities.activity(ANN.id) == PersonActivity(ANN.id, earlier, later, 4, 2)
    await store.entities.add_activity([])


async def test_an_erased_person_has_no_activity(store: Store, clock: ManualClock) -> None:
    await store.entities.save_entities([ANN, BEN])
    await store.entities.add_activity([PersonActivity(person.id, clock.now, clock.now, 1) for person in (ANN, BEN)])
    await store.edits.erase_entity(ANN.id, clock.now)
    assert await store.entities.activity(ANN.id) is None
    assert [entity for entity, _ in await store.entities.active_entities()] == [BEN]


async def test_the_facts_that_a_person_stated_are_listed_newest_first(store: Store, clock: ManualClock) -> None:
    facts = [build_fact(f"fact {number}", ANN, clock) for number in range(5)]
    await store.memories.add([*facts, build_fact("of Ben", BEN, clock)])
    await store.memories.add([build_fact("hello", ANN, clock, MemoryKind.MESSAGE)])
    assert await store.memories.count_facts([ANN.id, BEN.id, CLARA.id]) == {ANN.id: 5, BEN.id: 1}
    assert await store.memories.count_facts([]) == {}
    listed, before = [], None
    while True:
        page = await store.memories.facts(ANN.id, 2, before)
        listed += page.memories
        before = page.before
        if before is None:
            break
    assert [fact.id for fact in listed] == [fact.id for fact in reversed(facts)]
    assert (await store.memories.facts(CLARA.id)).memories == ()


@pytest.mark.long
async def test_everything_that_a_person_said_is_found_for_an_export(store: Store, clock: ManualClock) -> None:
    memories = [build_fact(f"line {number}", ANN, clock, MemoryKind.MESSAGE) for number in range(1_200)]
    await store.memories.add([*memories, build_fact("a fact", ANN, clock), build_fact("of Ben", BEN, clock)])
    found, before = [], None
    while True:
        page = await store.memories.of_entity(ANN.id, before)
        found += page.memories
        before = page.before
        if before is None:
            break
    assert len(found) == len({memory.id for memory in found}) == 1_201
    assert found[0].kind is MemoryKind.FACT


async def test_tasks_are_listed_by_their_next_run_page_by_page(store: Store, clock: ManualClock) -> None:
    tasks = [Task(derived_id("task", str(hour)), "WORK", clock.now + timedelta(hours=hour)) for hour in (3, 1, 2, 1)]
    tasks[3] = replace(tasks[3], id=derived_id("other"), is_parked=True)
    for task in tasks:
        await store.tasks.save_task(task)
    listed: list[Task] = []
    while page := await store.tasks.tasks_after(2, (listed[-1].next_run, listed[-1].id) if listed else None):
        listed += page
    assert listed == sorted(tasks, key=lambda task: (task.next_run, task.id))


async def test_rooms_and_worlds_are_found_by_their_ids(store: Store) -> None:
    world = World(WORLD, "test", "w", "a world")
    room = Room(ROOM, WORLD, ChannelType.GROUP, "test", "r", name="a room")
    await store.worlds.save_world(world, [room])
    unknown = derived_id("unknown")
    assert (await store.worlds.worlds_by_id([WORLD, unknown]))[WORLD].name == "a world"
    assert set(await store.worlds.worlds_by_id([WORLD, unknown])) == {WORLD}
    assert await store.worlds.rooms_by_id([ROOM, unknown]) == {ROOM: room}
    assert await store.worlds.rooms_by_id([]) == {}
