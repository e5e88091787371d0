"""The cache of recent memories always equals the file."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection

from bot import Attachment, Content, MediaKind, Memory, MemoryKind, derived_id, new_id
from bot.store.sql.core import base
from bot.store.sql.core.base import MEMORY_BYTES, WINDOW_BYTES, RecentMemoryCache, WindowKey
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.stores.memories import MEMORY, RECENT, put_memories
from bot.store.sql.stores.store import SqlStore

ROOMS, WORLD = (derived_id("room"), derived_id("another")), derived_id("world")
AT = datetime(2026, 5, 4, tzinfo=UTC)
KINDS = (MemoryKind.MESSAGE, MemoryKind.FACT)
ODDITIES: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"seen": (1, 2)}},
    {"external_id": "half \ud83d"},
    {"embedding": (1.0, 0.5), "embedding_model": "m"},
    {"content": Content(text="half \ud83d", metadata={"when": AT})},
    {"content": Content(text="with a file", attachments=(Attachment("1", MediaKind.IMAGE, data=b"1"),))},
)


def memory_of(text: str, *, after: int = 0, room: UUID = ROOMS[0], kind: MemoryKind = MemoryKind.MESSAGE) -> Memory:
    return Memory(new_id(), kind, room, room, WORLD, Content(text=text), AT + timedelta(seconds=after))


async def last(store: SqlStore, room: UUID = ROOMS[0], limit: int = 3) -> list[str]:
    return [memory.content.text for memory in await store.memories.recent(room, limit)]


async def in_file(store: SqlStore, room: UUID, limit: int, kind: MemoryKind) -> list[Memory]:
    key = {"agent": store.memories._agent, "room_id_": room, "kind_": kind, "limit": limit}
    rows = await store.memories._database.read(lambda db: db.execute(RECENT, key).all())
    return [MEMORY.read(row) for row in reversed(rows)]


LANE = WindowKey(1, ROOMS[0].bytes, MemoryKind.MESSAGE.value)


async def questions(store: SqlStore, ask: Callable[[], Awaitable[object]]) -> list[str]:
    asked: list[str] = []
    database = store.memories._database
    await database.read(lambda db: sqlite.driver_of(db).set_trace_callback(asked.append))
    await ask()
    await database.read(lambda db: sqlite.driver_of(db).set_trace_callback(None))
    return [text for text in asked if text.startswith("SELECT")]


async def test_a_cached_room_is_not_read_again_after_a_new_message(store: SqlStore) -> None:
    await store.memories.add([memory_of(str(number), after=number) for number in range(3)])
    assert await last(store) == ["0", "1", "2"]
    await store.memories.add([memory_of("3", after=3), memory_of("late", after=2)])

    assert await questions(store, lambda: last(store)) == []
    assert await last(store) == ["2", "3", "late"]
    assert await last(store, limit=2) == ["3", "late"]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("seed", range(12))
async def test_the_cache_equals_the_file_after_every_change(store: SqlStore, seed: int) -> None:
    chance = random.Random(seed)
    known: dict[UUID, Memory] = {}
    for _ in range(120):
        await _something(store, known, chance)
        room, kind, limit = chance.choice(ROOMS), chance.choice(KINDS), chance.choice((1, 3, 8, 60))
        found = await store.memories.recent(room, limit, kind=kind)
        assert found == await in_file(store, room, limit, kind)


async def _something(store: SqlStore, known: dict[UUID, Memory], chance: random.Random) -> None:
    operation = chance.randrange(6) if known else 5
    chosen_memory = known[chance.choice(sorted(known))] if known else memory_of("nothing")
    if operation == 0:
        gone = chance.sample(sorted(known), k=min(len(known), 2))
        await store.memories.remove(gone)
        for memory_id in gone:
            del known[memory_id]
    elif operation == 1:
        await store.memories.add([replace(chosen_memory, content=Content(text="changed"))])
    elif operation == 2:
        known[chosen_memory.id] = replace(chosen_memory, room_id=chance.choice(ROOMS), created_at=AT)
        await store.memories.add([known[chosen_memory.id]])
    else:
        new = [_drawn(chance) for _ in range(chance.randrange(1, 4))]
        known.update({memory.id: memory for memory in new})
        await asyncio.gather(*(store.memories.add([memory]) for memory in new))


def _drawn(chance: random.Random) -> Memory:
    text = "long " * 1_000 if chance.random() < 0.05 else "short"
    bare = memory_of(text, after=chance.randrange(40), room=chance.choice(ROOMS), kind=chance.choice(KINDS))
    return replace(bare, **chance.choice(ODDITIES))


async def test_writes_of_a_failed_job_are_not_cached(store: SqlStore) -> None:
    await store.memories.add([memory_of("kept")])
    assert await last(store) == ["kept"]
    database, agent = store.memories._database, store.memories._agent

    def fail(connection: Connection) -> None:
        put_memories(connection, agent, [memory_of("lost", after=1)])
        raise sqlite3.IntegrityError("on purpose")

    results = await asyncio.gather(
        database.write(fail), store.memories.add([memory_of("beside it", after=2)]), return_exceptions=True
    )
    assert [isinstance(result, Exception) for result in results] == [True, False]
    assert await last(store) == ["kept", "beside it"]


async def test_an_unreadable_memory_does_not_fail_the_commit(store: SqlStore) -> None:
    broken: Any = "no id"
    odd = replace(memory_of("odd", after=1), content=Content(text="odd", in_reply_to=broken, metadata={"a": 1}))
    done: list[int] = []
    assert await last(store) == await last(store, ROOMS[1]) == []
    database, agent = store.memories._database, store.memories._agent

    def keep_odd(connection: Connection) -> None:
        done.append(1)
        put_memories(connection, agent, [odd])

    await asyncio.gather(database.write(keep_odd), store.memories.add([memory_of("beside", room=ROOMS[1])]))
    assert done == [1]
    assert await last(store, ROOMS[1]) == ["beside"]


async def test_the_replies_to_a_cached_message_are_not_read(store: SqlStore) -> None:
    question, turn = memory_of("question"), new_id()
    reply = replace(memory_of("reply", after=1), turn_id=turn, content=Content(text="reply", in_reply_to=question.id))
    await last(store)
    await store.memories.add([question])
    await store.memories.add([reply])
    found: list[list[Memory]] = []

    async def ask() -> None:
        found.append(await store.memories.by_turn(turn, ROOMS[0]))

    assert await questions(store, ask) == []
    await store.memories.add([memory_of(str(number), after=2) for number in range(2)])  # the window loses the question
    assert len(await questions(store, ask)) == 1
    assert found == [[reply], [reply]]


@pytest.mark.parametrize("limit", [0, -1])
async def test_windows_without_a_limit_are_not_cached(store: SqlStore, limit: int) -> None:
    await store.memories.recent(ROOMS[0], limit)
    await store.memories.add([memory_of(str(number), after=number) for number in range(3)])
    known = store.memories._database.recent_cache
    assert known is not None
    assert not known._windows


async def test_windows_that_become_long_are_not_cached(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_MEMORIES", 3)
    known = store.memories._database.recent_cache
    assert known is not None
    assert await store.memories.recent(ROOMS[0], 200) == []
    for number in range(5):
        await store.memories.add([memory_of(str(number), after=number)])
        assert len(await store.memories.recent(ROOMS[0], 200)) == number + 1
        assert bool(known._windows) is (number < 3)


async def test_changes_of_another_program_are_seen_after_the_next_write(store: SqlStore, path: Path) -> None:
    await store.memories.add([memory_of("as it was")])
    assert await last(store) == ["as it was"]
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM memories")
        other.commit()
    await store.memories.add([memory_of("new", room=ROOMS[1])])
    assert await last(store) == []


def tell(known: RecentMemoryCache, memory: Memory) -> None:
    known.notify(1, [memory])


def held() -> RecentMemoryCache:
    return RecentMemoryCache(lambda memory: memory)


def test_a_read_from_before_a_change_is_not_cached() -> None:
    known, before = held(), memory_of("before")
    version = known.version
    tell(known, memory_of("after", after=1))
    known.on_commit()
    known.store(LANE, 3, [before], version)
    assert known.get(LANE, 3) is None


def test_a_read_between_commit_and_notification_has_no_duplicates() -> None:
    known, new = held(), memory_of("new")
    known.store(LANE, 3, [new], known.version)
    tell(known, new)
    known.on_commit()
    assert known.get(LANE, 3) == [new]


def test_a_read_of_the_end_of_a_batch_before_its_notification_keeps_the_order() -> None:
    known, batch = held(), [memory_of(str(number)) for number in range(5)]
    known.store(LANE, 3, batch[2:], known.version)
    for memory in batch:
        tell(known, memory)
    known.on_commit()
    assert known.get(LANE, 3) == batch[2:]


def test_windows_without_memories_take_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_BYTES", 2 * WINDOW_BYTES)
    known = held()
    lanes = [LANE._replace(room=bytes([number])) for number in range(3)]
    for lane in lanes[:2]:
        known.store(lane, 3, [], known.version)
    known.get(lanes[0], 3)
    known.store(lanes[2], 3, [], known.version)
    assert [known.get(lane, 3) for lane in lanes] == [[], None, []]


def test_the_windows_take_a_limited_number_of_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_BYTES", 2 * WINDOW_BYTES + 3 * (MEMORY_BYTES + 1_000))
    known = held()
    lanes = [LANE._replace(room=bytes([number])) for number in range(3)]
    first, second, third = ([memory_of("a" * 990), memory_of("b" * 990)] for _ in range(3))
    known.store(lanes[0], 2, first, known.version)
    known.store(lanes[0], 2, first, known.version)
    known.store(lanes[1], 2, second[:1], known.version)
    assert known.get(lanes[0], 2) == first, "a window that is stored again counts once"
    known.store(lanes[2], 2, third, known.version)
    assert [known.get(lane, 2) for lane in lanes] == [None, None, third]


def test_a_committed_memory_drops_the_window_that_was_read_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_BYTES", 2 * WINDOW_BYTES + 2 * MEMORY_BYTES + 100)
    known, new = held(), memory_of("new")
    other = LANE._replace(room=b"other")
    known.store(other, 3, [memory_of("a")], known.version)
    known.store(LANE, 3, [memory_of("b")], known.version)
    tell(known, new)
    known.on_commit()
    window = known.get(LANE, 3)
    assert window is not None
    assert window[-1] == new
    assert known.get(other, 3) is None
