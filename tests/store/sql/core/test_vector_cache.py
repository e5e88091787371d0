"""The cache of vectors always equals the file."""

import asyncio
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from bot import Content, Memory, MemoryKind, MemoryScope, derived_id, new_id
from bot.store import cosine
from bot.store.protocols import RecallScope
from bot.store.sql.core import vector_cache
from bot.store.sql.core.vector_cache import Matrix, RecallAudience, VectorCache
from bot.store.sql.stores.search import pack_vector, unpack_vector
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message

pytest.importorskip("numpy")
ROOMS, WORLD = (derived_id("room"), derived_id("another")), derived_id("world")
AT = datetime(2026, 5, 4, tzinfo=UTC)
NONE = RecallAudience(1, "m", 4, "fact", b"room")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "MIN_CACHED_VECTORS", 3)


def vector_of(chance: random.Random) -> tuple[float, ...]:
    """Return a random vector that half precision represents exactly."""
    return unpack_vector(pack_vector([chance.uniform(-1, 1) for _ in range(4)]))


def fact(chance: random.Random, *, is_bare: bool = False) -> Memory:
    vector = None if is_bare else vector_of(chance)
    scope = chance.choice((MemoryScope.ROOM, MemoryScope.ROOM, MemoryScope.WORLD, MemoryScope.SHARED))
    room = chance.choice(ROOMS)
    bare = Memory(new_id(), MemoryKind.FACT, room, room, WORLD, Content(text="a fact"), AT, scope=scope)
    return replace(bare, embedding=vector, embedding_model="m" if vector else "")


def nearest(known: dict[UUID, Memory], wanted: tuple[float, ...], room: UUID) -> list[UUID]:
    heard = [
        candidate
        for candidate in known.values()
        if candidate.embedding and (candidate.scope is not MemoryScope.ROOM or candidate.room_id == room)
    ]
    return [
        candidate.id
        for candidate in sorted(heard, key=lambda candidate: -cosine(wanted, candidate.embedding or ()))[:5]
    ]


async def recalled(store: SqlStore, wanted: tuple[float, ...], room: UUID) -> list[UUID]:
    found = await store.memories.recall(wanted, "m", RecallScope(room, WORLD), MemoryKind.FACT, 5)
    return [match.memory.id for match in found]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
async def test_recall_equals_the_file_after_every_change(store: SqlStore, seed: int) -> None:
    chance = random.Random(seed)
    known: dict[UUID, Memory] = {}
    for step in range(120):
        operation = chance.choice(("add", "add", "add", "late", "other", "remove"))
        chosen_memory = known.get(chance.choice([*known])) if known else None
        if operation == "add" or chosen_memory is None:
            added = [fact(chance, is_bare=chance.random() < 0.3) for _ in range(chance.randint(1, 3))]
            await store.memories.add(added)
            known |= {memory.id: memory for memory in added}
        elif operation == "late":
            vector = vector_of(chance)
            await store.memories.set_embedding(chosen_memory.id, vector, "m")
            known[chosen_memory.id] = replace(chosen_memory, embedding=vector)
        elif operation == "other":
            known[chosen_memory.id] = replace(fact(chance), id=chosen_memory.id)
            await store.memories.add([known[chosen_memory.id]])
        else:
            await store.memories.remove([chosen_memory.id])
            del known[chosen_memory.id]
        wanted = vector_of(chance)
        for room in ROOMS:
            assert await recalled(store, wanted, room) == nearest(known, wanted, room), (step, operation)
    assert store.memories._database._vector_cache._matrices


async def test_searches_during_writes_leave_nothing_stale(store: SqlStore) -> None:
    chance = random.Random(7)
    known = [fact(chance) for _ in range(60)]
    wanted = (1.0, 0.0, 0.0, 0.0)
    await store.memories.add(known)

    async def write(memory: Memory) -> None:
        await store.memories.set_embedding(memory.id, vector_of(chance), "m")
        await store.memories.remove([memory.id])

    searches = (recalled(store, wanted, ROOMS[0]) for _ in known)
    await asyncio.gather(*map(write, known[:50]), *searches)
    left = {memory.id: memory for memory in known[50:]}
    assert await recalled(store, wanted, ROOMS[0]) == nearest(left, wanted, ROOMS[0])


async def test_a_failing_job_in_a_batch_does_not_change_the_cache(store: SqlStore) -> None:
    chance = random.Random(3)
    known = {memory.id: memory for memory in (fact(chance) for _ in range(20))}
    await store.memories.add([*known.values()])
    first = next(iter(known.values()))
    wanted = first.embedding or ()
    before = await recalled(store, wanted, first.room_id)

    def fail(connection: object) -> None:
        raise RuntimeError("a fault of one job")

    failing = store.memories._database.write(fail)
    removing = store.memories.remove([before[1]])
    results = await asyncio.gather(failing, removing, return_exceptions=True)
    assert isinstance(results[0], RuntimeError)
    del known[before[1]]
    assert await recalled(store, wanted, first.room_id) == nearest(known, wanted, first.room_id)


async def test_vectors_of_another_program_are_seen_after_the_next_write(store: SqlStore, tmp_path: Path) -> None:
    chance = random.Random(5)
    known = {memory.id: memory for memory in (fact(chance) for _ in range(20))}
    wanted = (0.0, 1.0, 0.0, 0.0)
    await store.memories.add([*known.values()])
    first, second, *_ = await recalled(store, wanted, ROOMS[0])
    path = store.memories._database.path
    with closing(sqlite3.connect(path)) as other, other:
        [vector] = other.execute(
            "SELECT vector FROM embeddings e JOIN memories m ON m.position = e.memory WHERE m.id = ?", (second.bytes,)
        ).fetchone()
        position = "(SELECT position FROM memories WHERE id = ?)"
        other.execute(f"UPDATE embeddings SET vector = ? WHERE memory = {position}", (vector[::-1], first.bytes))
        other.execute(f"DELETE FROM embeddings WHERE memory = {position}", (second.bytes,))
    added = fact(chance)
    await store.memories.add([replace(added, embedding=None, embedding_model="")])
    assert second not in await recalled(store, wanted, ROOMS[0])


def rows(*positions: int) -> list[tuple[int, bytes]]:
    return [(position, pack_vector((1.0, position / 100, 0.0, 0.0))) for position in positions]


def test_vectors_read_before_a_change_are_not_cached() -> None:
    kept = VectorCache()
    kept._record_change(*NONE, 9, 1)
    version = kept.version
    kept.on_commit()
    kept.store(NONE, None, Matrix(rows(1, 2, 3)), version)
    assert kept.get(NONE) is None
    kept.store(NONE, None, Matrix(rows(1, 2, 3)), kept.version)
    assert kept.get(NONE) is not None


def test_a_newer_vector_is_appended_and_an_older_vector_drops_the_matrix() -> None:
    kept = VectorCache()
    kept.store(NONE, None, Matrix(rows(1, 2, 5)), kept.version)
    kept._record_change(*NONE, 6, 1)
    kept.on_commit()
    known = kept.get(NONE)
    assert known is not None
    kept.store(NONE, known, Matrix(rows(6)), kept.version)
    assert (len(known), known.newest) == (4, 6)
    assert [place for place, _ in known.find_nearest((1.0, 0.0, 0.0, 0.0), 9)] == [1, 2, 5, 6]
    kept._record_change(*NONE, 4, 1)
    kept.on_commit()
    assert kept.get(NONE) is None


def test_the_least_recently_used_audience_is_dropped() -> None:
    audiences = [NONE._replace(audience=bytes([number])) for number in range(3)]
    size = Matrix(rows(1, 2, 3)).size
    kept = VectorCache(max_bytes=2 * size)
    for audience in audiences:
        kept.store(audience, None, Matrix(rows(1, 2, 3)), kept.version)
        assert kept.get(audiences[0]) is not None or audience == audiences[2]
    assert [kept.get(audience) is not None for audience in audiences] == [True, False, True]


async def test_facts_of_a_room_move_when_it_is_migrated(store: SqlStore) -> None:
    chance, wanted = random.Random(9), (1.0, 0.0, 0.0, 0.0)
    old, new = (make_message("hi", room=name, sent_at=AT) for name in ("old", "new"))
    await store.ledger.receive([old, new], AT)
    facts = [
        replace(fact(chance), scope=MemoryScope.ROOM, room_id=place.room.id, world_id=place.world.id)
        for place in (old, new) * 10
    ]
    await store.memories.add(facts)
    for place in (old, new):
        assert len(await recalled(store, wanted, place.room.id)) == 5
    await store.edits.migrate_room(old.room.id, new.world, new.room)
    known = {memory.id: replace(memory, room_id=new.room.id) for memory in facts}
    assert await recalled(store, wanted, new.room.id) == nearest(known, wanted, new.room.id)
    assert await recalled(store, wanted, old.room.id) == []
