"""The cache of people and participants always equals the file."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection

from bot import ChannelType, Entity, ParticipantState, Room, World, derived_id
from plugins.sql.core import people_cache
from plugins.sql.core.people_cache import PeopleCache
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.stores.entities import ENTITY, FIND_PARTICIPANTS, find_entities, put_entities, touch_participants
from plugins.sql.stores.store import SqlStore

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]
AT = datetime(2026, 5, 4, tzinfo=UTC)
WORLD = World(derived_id("world"), "test", "world")
ROOMS = [Room(derived_id(name), WORLD.id, ChannelType.GROUP, "test", name, "account") for name in ("a", "b", "c")]
PEOPLE = [Entity(derived_id(name), "test", name, (name,)) for name in ("Ann", "Bob", "Cleo", "Dan")]
ROOM = ROOMS[0].id


async def names(store: SqlStore, room_id: UUID = ROOM, limit: int = 50) -> list[str]:
    return [person.names[0] for person in await store.entities.participants(room_id, limit)]


async def questions(store: SqlStore, ask: Callable[[], Awaitable[object]]) -> list[str]:
    asked: list[str] = []
    database = store.entities._database
    await database.read(lambda db: sqlite.driver_of(db).set_trace_callback(asked.append))
    await ask()
    await database.read(lambda db: sqlite.driver_of(db).set_trace_callback(None))
    return [text for text in asked if text.startswith("SELECT")]


async def in_file(store: SqlStore, room_id: UUID, limit: int) -> list[Entity]:
    key = (store.entities._agent, room_id.bytes, limit)
    rows = await store.entities._database.read(lambda db: FIND_PARTICIPANTS.rows(db, *key))
    return [ENTITY.read(row) for row in rows]


async def test_who_speaks_comes_first_without_reading_the_room_again(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.worlds.save_world(WORLD, ROOMS)
        await store.entities.save_entities(PEOPLE, ROOM)
        assert await names(store) == ["Dan", "Cleo", "Bob", "Ann"]
        await store.entities.save_entities([PEOPLE[1]], ROOM)

        assert await questions(store, lambda: names(store)) == []
        assert await names(store) == ["Bob", "Dan", "Cleo", "Ann"]
        assert await names(store, limit=2) == ["Bob", "Dan"]
        assert await questions(store, lambda: store.entities.entities([PEOPLE[0].id, PEOPLE[3].id])) == []


@pytest.mark.parametrize("seed", range(12))
async def test_the_cache_equals_the_file_after_every_change(open_store: OpenStore, seed: int) -> None:
    chance = random.Random(seed)
    async with open_store() as store:
        await store.worlds.save_world(WORLD, ROOMS)
        for _ in range(80):
            await _change(store, chance)
            room_id, limit = chance.choice(ROOMS).id, chance.choice((1, 2, 3, 50))
            assert await store.entities.participants(room_id, limit) == await in_file(store, room_id, limit)
            ids = {person.id for person in chance.sample(PEOPLE, k=2)}
            find = partial(find_entities, agent=store.entities._agent, ids=ids)
            assert await store.entities.entities(ids) == await store.entities._database.read(find)


async def _change(store: SqlStore, chance: random.Random) -> None:
    room, person = chance.choice(ROOMS), chance.choice(PEOPLE)
    match chance.randrange(6):
        case 0:
            await store.entities.leave_rooms(person.id, [room.id])
        case 1:
            await store.entities.save_entities([replace(person, metadata={"number": chance.random()})])
        case 2:
            await store.worlds.set_participant_state(room.id, chance.choice(list(ParticipantState)))
        case 3 if chance.random() < 0.3:
            await store.edits.erase_entity(person.id, AT)
        case 4 if chance.random() < 0.3:
            await store.edits.migrate_room(room.id, WORLD, chance.choice(ROOMS))
        case _:
            speakers = chance.sample(PEOPLE, k=chance.randrange(1, 3))
            await asyncio.gather(*(store.entities.save_entities([speaker], room.id) for speaker in speakers))


async def test_writes_of_a_failed_job_are_not_cached(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.worlds.save_world(WORLD, ROOMS)
        await store.entities.save_entities(PEOPLE[:2], ROOM)
        assert await names(store) == ["Bob", "Ann"]
        database, agent = store.entities._database, store.entities._agent

        def fail(connection: Connection) -> None:
            put_entities(connection, agent, [PEOPLE[2]])
            touch_participants(connection, agent, [(ROOM, PEOPLE[2].id)])
            raise sqlite3.IntegrityError("on purpose")

        saving = store.entities.save_entities([PEOPLE[0]], ROOM)
        results = await asyncio.gather(database.write(fail), saving, return_exceptions=True)
        assert [isinstance(result, Exception) for result in results] == [True, False]
        assert await names(store) == ["Ann", "Bob"]


async def test_changes_of_another_program_are_seen_after_the_next_write(open_store: OpenStore, path: Path) -> None:
    async with open_store() as store:
        await store.worlds.save_world(WORLD, ROOMS)
        await store.entities.save_entities(PEOPLE, ROOM)
        await names(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute("DELETE FROM participants")
            other.commit()
        await store.entities.save_entities([PEOPLE[0]], ROOMS[1].id)
        assert await names(store) == []


def test_a_read_from_before_a_change_is_not_cached() -> None:
    cache = PeopleCache()
    version = cache.version
    with cache.note_speakers(1, [(ROOM, PEOPLE[0].id)]):
        pass
    cache.on_commit()
    cache.store_participants(1, ROOM, 50, PEOPLE, version)
    assert cache.get_participants(1, ROOM, 50) is None


def test_only_the_people_and_rooms_read_last_are_kept_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_cache, "MAX_ROOMS", 2)
    monkeypatch.setattr(people_cache, "MAX_PEOPLE", 3)
    cache = PeopleCache()
    for room in ROOMS:
        cache.store_participants(1, room.id, 50, (), cache.version)
    assert [cache.get_participants(1, room.id, 50) for room in ROOMS] == [None, [], []]
    cache.store_people(1, PEOPLE, cache.version)
    assert [cache.get_people(1, [person.id]) is None for person in PEOPLE] == [True, False, False, False]


def test_people_with_long_metadata_are_not_cached() -> None:
    cache = PeopleCache()
    cache.store_people(1, [replace(PEOPLE[0], metadata={"about": "x" * 5_000})], cache.version)
    assert cache.get_people(1, [PEOPLE[0].id]) is None
