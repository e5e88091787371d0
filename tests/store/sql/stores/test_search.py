"""Vectors: exact with and without numpy, and stored in half precision."""

import random
from datetime import UTC, datetime

import pytest

from bot import Content, Memory, MemoryKind, derived_id, new_id
from bot.store.protocols import RecallScope
from bot.store.sql.stores import search
from bot.store.sql.stores.store import SqlStore

ROOM, WORLD = derived_id("room"), derived_id("world")
REACH = RecallScope(ROOM, WORLD)


def fact(vector: tuple[float, ...]) -> Memory:
    at = datetime(2026, 5, 4, tzinfo=UTC)
    content = Content(text="a fact")
    return Memory(new_id(), MemoryKind.FACT, ROOM, ROOM, WORLD, content, at, embedding=vector, embedding_model="m")


def test_half_precision_uses_two_bytes_per_number() -> None:
    kept = search.pack_vector((0.5, -0.25, 0.1))

    assert len(kept) == 6
    assert search.unpack_vector(kept) == pytest.approx((0.5, -0.25, 0.1), rel=1e-3)


def test_vectors_beyond_half_precision_keep_their_direction() -> None:
    assert search.unpack_vector(search.pack_vector((3e6, 4e6))) == pytest.approx((0.6, 0.8), rel=1e-3)


@pytest.mark.parametrize("with_numpy", [True, False])
async def test_the_nearest_are_the_same_with_and_without_numpy(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, with_numpy: bool
) -> None:
    if with_numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(search, "has_numpy", lambda: False)
    chance = random.Random(7)
    facts = [fact(tuple(chance.gauss(0, 1) for _ in range(32))) for _ in range(300)]
    facts.append(fact((0.0,) * 32))
    await store.memories.add(facts)
    for wanted in facts[:10]:
        assert wanted.embedding is not None
        found = await store.memories.recall(wanted.embedding, "m", REACH, MemoryKind.FACT, 5)
        assert found[0].memory.id == wanted.id
        assert found[0].similarity == pytest.approx(1.0, abs=1e-3)
        scores = [match.similarity for match in found]
        assert len(scores) == 5
        assert scores == sorted(scores, reverse=True)
    everything = await store.memories.recall(facts[0].embedding or (), "m", REACH, MemoryKind.FACT, 1000)
    assert len(everything) == 301


async def test_a_memory_that_is_replaced_loses_the_vector_of_its_old_text(store: SqlStore) -> None:
    kept = fact((1.0, 0.0))
    await store.memories.add([kept])
    bare = Memory(kept.id, kept.kind, ROOM, ROOM, WORLD, Content(text="new"), kept.created_at)
    await store.memories.add([bare])

    assert await store.memories.recall((1.0, 0.0), "m", REACH, MemoryKind.FACT) == []
    assert await store.memories.memories([kept.id]) == {kept.id: bare}
