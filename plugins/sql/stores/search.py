"""Embeddings, nearest search, word index.

By pgvector in PostgreSQL; for SQLite here, with numpy where it is there, else in plain Python.
"""

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nlargest
from math import hypot
from uuid import UUID

from sqlalchemy import Connection, Double, bindparam, case, delete, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot import Memory, MemoryKind, Reach, Scope
from bot.store import SAID, best_by_words, cosine, word_weights, wording, words_of
from plugins.sql.core.columns import each_of
from plugins.sql.core.schema import embeddings, memories, words
from plugins.sql.core.statements import Insert, Listing, Spelled, Statement, limit, same, value
from plugins.sql.core.values import NO_ID, dumps
from plugins.sql.core.vector_cache import Audience, Matrices, Matrix, View, has_numpy, view_of

EVERYBODY = NO_ID
FIRST = -1  # before every position
LARGEST = 60_000.0  # half precision ends at 65,504; beyond, only the direction is kept


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory's vector, and whose it is."""

    memory_id: UUID
    vector: Sequence[float]
    model: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: a vector, the model it is of, and the kind of memory."""

    vector: tuple[float, ...]
    model: str
    kind: MemoryKind


AUDIENCE = case(
    (memories.c.scope == Scope.SHARED.value, EVERYBODY),
    (memories.c.scope == Scope.WORLD.value, memories.c.world_id),
    else_=memories.c.room_id,
)


def _insert_embeddings(insert: Insert) -> Executable:
    source = select(
        memories.c.agent_id,
        value(embeddings.c.model, "model"),
        value(embeddings.c.dimension, "dimension"),
        memories.c.kind,
        AUDIENCE,
        memories.c.position,
        value(embeddings.c.vector, "vector"),
    ).where(same(memories.c.agent_id, "agent"), same(memories.c.id, "id"))
    names = ("agent_id", "model", "dimension", "kind", "audience", "memory", "vector")
    return insert(embeddings).from_select(names, source)  # type: ignore[no-any-return]


INSERT_EMBEDDINGS = Statement(_insert_embeddings, "agent", "id", "model", "dimension", "vector")
DELETE_EMBEDDINGS = Listing(
    lambda ids: delete(embeddings).where(
        embeddings.c.memory.in_(
            select(memories.c.position).where(same(memories.c.agent_id, "agent"), memories.c.id.in_(ids))
        )
    ),
    "agent",
)
EMBEDDING_SCOPE = (
    same(embeddings.c.agent_id, "agent"),
    same(embeddings.c.model, "model"),
    same(embeddings.c.dimension, "dimension"),
    same(embeddings.c.kind, "kind"),
)
EMBEDDING_SCOPE_NAMES = ("agent", "model", "dimension", "kind")
AUDIENCES = ("all", "world", "room")
CANDIDATES = Statement(
    lambda _: (
        select(embeddings.c.memory, embeddings.c.vector)
        .where(
            *EMBEDDING_SCOPE,
            same(embeddings.c.audience, "audience"),
            embeddings.c.memory > bindparam("after"),
        )
        .order_by(embeddings.c.memory)
    ),
    *EMBEDDING_SCOPE_NAMES,
    "audience",
    "after",
)


def _nearest_in_postgresql(_: Insert) -> Executable:
    """Compare what the key has found; a vector without a direction is like none, and pgvector says NaN."""
    distance: ColumnElement[float] = embeddings.c.vector.op("<=>", return_type=Double())(
        value(embeddings.c.vector, "wanted")
    )
    similarity = func.coalesce(func.nullif(1 - distance, literal_column("'NaN'")), 0).label("similarity")
    heard = embeddings.c.audience.in_([value(embeddings.c.audience, name) for name in AUDIENCES])
    found = select(embeddings.c.memory, similarity).where(*EMBEDDING_SCOPE, heard)
    return found.order_by(similarity.desc()).limit(limit())


NEAREST = Statement(_nearest_in_postgresql, "wanted", *EMBEDDING_SCOPE_NAMES, *AUDIENCES, "limit")


def store_embeddings(connection: Connection, agent: int, kept: Sequence[Kept]) -> None:
    """Give memories their vectors; none of them has one yet."""
    INSERT_EMBEDDINGS.run_many(
        connection,
        [(agent, one.memory_id.bytes, one.model, len(one.vector), packed(one.vector)) for one in kept],
    )


def replace(connection: Connection, agent: int, kept: Sequence[Kept]) -> None:
    """Give memories their vectors instead of those they have."""
    delete_embeddings(connection, agent, [one.memory_id for one in kept])
    store_embeddings(connection, agent, kept)


def delete_embeddings(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Forget the vectors of memories."""
    DELETE_EMBEDDINGS.count(connection, agent, ids=[one.bytes for one in ids])


def nearest(
    connection: Connection, agent: int, wanted: Wanted, audiences: Sequence[bytes], most: int
) -> dict[int, float]:
    """Find the positions of the memories that are nearest, with how near they are."""
    if not most:
        return {}
    key = (agent, wanted.model, len(wanted.vector), wanted.kind.value)
    if connection.dialect.name == "postgresql":
        return dict(map(tuple, NEAREST.rows(connection, packed(wanted.vector), *key, *audiences, most)))
    compared = _compared_at_once if has_numpy() else _compared
    found = [
        pair
        for one in dict.fromkeys(audiences)
        for pair in compared(connection, Audience(*key, one), wanted, most)
    ]
    return dict(nlargest(most, found, key=lambda pair: pair[1]))


def packed(vector: Sequence[float]) -> bytes:
    """Write a vector in half precision."""
    if max(map(abs, vector), default=0.0) > LARGEST:
        length = hypot(*vector)
        vector = [number / length for number in vector]
    return struct.pack(f"<{len(vector)}e", *vector)


def unpacked(data: bytes) -> tuple[float, ...]:
    """Read a vector."""
    return struct.unpack(f"<{len(data) // 2}e", data)


def _compared(
    connection: Connection, audience: Audience, wanted: Wanted, most: int
) -> list[tuple[int, float]]:
    rows = CANDIDATES.rows(connection, *audience, FIRST)
    scored = ((position, cosine(wanted.vector, unpacked(data))) for position, data in rows)
    return nlargest(most, scored, key=lambda pair: pair[1])


def _compared_at_once(
    connection: Connection, audience: Audience, wanted: Wanted, most: int
) -> list[tuple[int, float]]:
    """Compare what is known of an audience, and what has come to it since."""
    view = view_of(connection) or View(Matrices())
    known = view.matrices.get(audience)
    rows = CANDIDATES.rows(connection, *audience, known.newest if known else FIRST)
    found = known.nearest(wanted.vector, most) if known else []
    if rows:
        newer = Matrix(rows)
        found += newer.nearest(wanted.vector, most)
        view.matrices.keep(audience, known, newer, view.version)
    return found


EVERY = ""  # the word that every memory has
WHOLE = "="  # what stands before the digest of a whole wording: no word begins so


def _insert_words(insert: Insert) -> Executable:
    given = each_of(bindparam("words")).table_valued("value", name="given")
    source = select(memories.c.agent_id, memories.c.kind, given.c.value, AUDIENCE, memories.c.position).where(
        same(memories.c.agent_id, "agent"), same(memories.c.id, "id")
    )
    names = ("agent_id", "kind", "word", "audience", "memory")
    return insert(words).from_select(names, source).on_conflict_do_nothing()  # type: ignore[no-any-return]


INSERT_WORDS = Statement(_insert_words, "words", "agent", "id")
DELETE_WORDS = Listing(
    lambda ids: delete(words).where(
        words.c.memory.in_(
            select(memories.c.position).where(same(memories.c.agent_id, "agent"), memories.c.id.in_(ids))
        )
    ),
    "agent",
)
WORD_SCOPE = (
    same(words.c.agent_id, "agent"),
    same(words.c.kind, "kind"),
    words.c.audience.in_([value(words.c.audience, name) for name in ("all", "world", "room")]),
)
WORD_SCOPE_NAMES = ("agent", "kind", "all", "world", "room")
COUNTS = Listing(
    lambda asked: (
        select(words.c.word, func.count()).where(*WORD_SCOPE, words.c.word.in_(asked)).group_by(words.c.word)
    ),
    *WORD_SCOPE_NAMES,
)
FOUND = Listing(
    lambda asked: select(words.c.memory, words.c.word).where(*WORD_SCOPE, words.c.word.in_(asked)),
    *WORD_SCOPE_NAMES,
)
ALIKE = Statement(
    lambda _: (
        select(memories.c.id)
        .join(words, words.c.memory == memories.c.position)
        .where(
            same(words.c.agent_id, "agent"),
            same(words.c.kind, "kind"),
            same(words.c.word, "word"),
            same(words.c.audience, "audience"),
        )
        .limit(1)
    ),
    "agent",
    "kind",
    "word",
    "audience",
)
ALONE = Spelled("SELECT pg_advisory_xact_lock(?)")


def store_words(connection: Connection, agent: int, kept: Sequence[Memory]) -> None:
    """Note the words of memories, of those that were not said."""
    INSERT_WORDS.run_many(
        connection,
        [(dumps(_entries(one)), agent, one.id.bytes) for one in kept if one.kind not in SAID],
    )


def delete_words(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Forget the words of memories."""
    DELETE_WORDS.count(connection, agent, ids=[one.bytes for one in ids])


def found(
    connection: Connection, agent: int, text: str, reach: Reach, kind: MemoryKind, limit: int
) -> list[int]:
    """Find the positions of the memories that share the most words with a text, the best first."""
    asked = sorted(words_of(text))
    if not asked or not limit:
        return []
    scope = (agent, kind.value, EVERYBODY, reach.world_id.bytes, reach.room_id.bytes)
    counts = {row[0]: row[1] for row in COUNTS.rows(connection, *scope, ids=[EVERY, *asked])}
    total = counts.pop(EVERY, 0)
    weights = word_weights(counts, total)
    shared: defaultdict[int, set[str]] = defaultdict(set)
    for position, word in FOUND.rows(connection, *scope, ids=list(weights)):
        shared[position].add(word)
    newest = {position: shared[position] for position in sorted(shared, reverse=True)}
    return best_by_words(newest, weights, total, limit)


def alike(connection: Connection, agent: int, memory: Memory, audience: UUID | None) -> bytes | None:
    """Find the memory that says the same; in PostgreSQL, nobody else looks for it until this is committed."""
    digest = _digest(memory)
    if connection.dialect.name == "postgresql":
        ALONE.rows(connection, int.from_bytes(digest[:8], signed=True))
    key = (memory.kind.value, _whole(digest), audience.bytes if audience else EVERYBODY)
    row = ALIKE.first(connection, agent, *key)
    return row[0] if row else None


def _entries(memory: Memory) -> list[str]:
    return [EVERY, _whole(_digest(memory)), *words_of(memory.content.text)]


def _whole(digest: bytes) -> str:
    return WHOLE + digest.hex()


def _digest(memory: Memory) -> bytes:
    said = wording(memory.content.text).encode("utf-8", "replace")
    return sha256(memory.entity_id.bytes + said).digest()[:16]
