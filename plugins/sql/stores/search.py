"""Embeddings, search for nearest vectors, and the word index.

PostgreSQL compares vectors with pgvector; for SQLite this module does, with numpy if it is installed.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nlargest
from math import hypot
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Double, Select, Table, bindparam, case, delete, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot import Memory, MemoryKind, MemoryScope, RecallScope
from bot.store import TRANSCRIPT_KINDS, cosine, index_words, normalize_wording, top_by_word_overlap, word_weights
from plugins.sql.core.columns import json_elements
from plugins.sql.core.inserts import RowsStatement
from plugins.sql.core.schema import embeddings, memories, words
from plugins.sql.core.statements import (
    Insert,
    ListStatement,
    RawStatement,
    Statement,
    equals,
    limit_parameter,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import NO_ID, dumps
from plugins.sql.core.vector_cache import Matrix, RecallAudience, VectorCache, VectorCacheView, has_numpy, view_of

SHARED_AUDIENCE = NO_ID
BEFORE_FIRST = -1  # below every position
MAX_HALF_FLOAT = 60_000.0  # half precision ends at 65,504; larger vectors are scaled to length 1

EMPTY_WORD = ""  # every memory has it, for counting
WORDING_PREFIX = "="  # before the digest of a whole text: no word begins with it


@dataclass(frozen=True, slots=True)
class StoredVector:
    """The vector of a memory, and the model that made it."""

    memory_id: UUID
    vector: Sequence[float]
    model: str


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A search: a vector, its model, and the kind of memory."""

    vector: tuple[float, ...]
    model: str
    kind: MemoryKind


AUDIENCE = case(
    (memories.c.scope == MemoryScope.SHARED.value, SHARED_AUDIENCE),
    (memories.c.scope == MemoryScope.WORLD.value, memories.c.world_id),
    else_=memories.c.room_id,
)


def _select_embedding(suffix: str) -> Select[Any]:
    """Select the row of one memory's vector; the parameters end in `suffix`."""
    return select(
        memories.c.agent_id,
        typed_parameter(embeddings.c.model, f"model{suffix}"),
        typed_parameter(embeddings.c.dimension, f"dimension{suffix}"),
        memories.c.kind,
        AUDIENCE,
        memories.c.position,
        typed_parameter(embeddings.c.vector, f"vector{suffix}"),
    ).where(equals(memories.c.agent_id, f"agent_id{suffix}"), equals(memories.c.id, f"id{suffix}"))


def _save_embeddings(insert: Insert, suffixes: Sequence[str]) -> Executable:
    names = ("agent_id", "model", "dimension", "kind", "audience", "memory", "vector")
    first, *others = map(_select_embedding, suffixes)
    statement = insert(embeddings).from_select(names, first.union_all(*others) if others else first)
    updates = {name: statement.excluded[name] for name in names if name not in ("agent_id", "memory")}
    return statement.on_conflict_do_update(index_elements=["memory"], set_=updates)  # type: ignore[no-any-return]


SAVE_EMBEDDINGS = RowsStatement(_save_embeddings)


def _delete_of_memories(table: Table) -> ListStatement:
    """Return a statement that deletes the rows about memories."""
    positions = select(memories.c.position).where(matches(memories, "agent_id"))
    return ListStatement(lambda ids: delete(table).where(table.c.memory.in_(positions.where(memories.c.id.in_(ids)))))


DELETE_EMBEDDINGS, DELETE_WORDS = _delete_of_memories(embeddings), _delete_of_memories(words)
EMBEDDING_SCOPE = matches(embeddings, "agent_id", "model", "dimension", "kind")
AUDIENCES = ("all", "world", "room")
CANDIDATES = Statement(
    lambda _: (
        select(embeddings.c.memory, embeddings.c.vector)
        .where(EMBEDDING_SCOPE, matches(embeddings, "audience"), embeddings.c.memory > bindparam("after"))
        .order_by(embeddings.c.memory)
    )
)


def _nearest_in_postgresql(_: Insert) -> Executable:
    """Compare the vectors of the key; the similarity to a zero vector, NaN in pgvector, is 0."""
    distance: ColumnElement[float] = embeddings.c.vector.op("<=>", return_type=Double())(
        typed_parameter(embeddings.c.vector, "wanted")
    )
    similarity = func.coalesce(func.nullif(1 - distance, literal_column("'NaN'")), 0).label("similarity")
    is_visible = embeddings.c.audience.in_([typed_parameter(embeddings.c.audience, name) for name in AUDIENCES])
    query = select(embeddings.c.memory, similarity).where(EMBEDDING_SCOPE, is_visible)
    return query.order_by(similarity.desc()).limit(limit_parameter())


NEAREST = Statement(_nearest_in_postgresql)


def vectors_of(stored: Iterable[Memory]) -> list[StoredVector]:
    """Return the vectors of the memories that have one."""
    return [
        StoredVector(memory.id, memory.embedding, memory.embedding_model)
        for memory in stored
        if memory.embedding is not None
    ]


def store_embeddings(connection: Connection, agent: int, vectors: Sequence[StoredVector]) -> None:
    """Insert the vectors of memories, or replace them."""
    SAVE_EMBEDDINGS.run_many(
        connection,
        [
            (stored.model, len(stored.vector), pack_vector(stored.vector), agent, stored.memory_id.bytes)
            for stored in vectors
        ],
    )


def delete_embeddings(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Delete the vectors of memories."""
    DELETE_EMBEDDINGS.count(connection, agent, ids=[memory_id.bytes for memory_id in ids])


def audiences_of(scope: RecallScope) -> list[bytes]:
    """Return the audiences whose memories a scope covers, that of everywhere first."""
    return [SHARED_AUDIENCE, *(audience.bytes for audience in scope.audiences)]


def _in_groups(audiences: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return audiences in groups of three, as many as a statement takes; the last one is filled by repetition."""
    groups = [audiences[start : start + len(AUDIENCES)] for start in range(0, len(audiences), len(AUDIENCES))]
    return [[*group, *[group[-1]] * (len(AUDIENCES) - len(group))] for group in groups]


def find_nearest(
    connection: Connection, agent: int, query: VectorQuery, audiences: Sequence[bytes], limit: int
) -> dict[int, float]:
    """Return the positions of the nearest memories with their similarities."""
    if not limit:
        return {}
    key = (agent, query.model, len(query.vector), query.kind.value)
    if connection.dialect.name == "postgresql":
        vector = pack_vector(query.vector)
        rows = [NEAREST.rows(connection, vector, *key, *group, limit) for group in _in_groups(audiences)]
        return dict(nlargest(limit, (tuple(row) for found in rows for row in found), key=lambda pair: pair[1]))
    compare = _compare_with_numpy if has_numpy() else _compare_in_python
    pairs = [
        pair
        for audience in dict.fromkeys(audiences)
        for pair in compare(connection, RecallAudience(*key, audience), query, limit)
    ]
    return dict(nlargest(limit, pairs, key=lambda pair: pair[1]))


def pack_vector(vector: Sequence[float]) -> bytes:
    """Return a vector as bytes in half precision."""
    if max(map(abs, vector), default=0.0) > MAX_HALF_FLOAT:
        length = hypot(*vector)
        vector = [number / length for number in vector]
    return struct.pack(f"<{len(vector)}e", *vector)


def unpack_vector(data: bytes) -> tuple[float, ...]:
    """Return the vector of its bytes."""
    return struct.unpack(f"<{len(data) // 2}e", data)


def _compare_in_python(
    connection: Connection, audience: RecallAudience, query: VectorQuery, limit: int
) -> list[tuple[int, float]]:
    rows = CANDIDATES.rows(connection, *audience, BEFORE_FIRST)
    scored = ((position, cosine(query.vector, unpack_vector(data))) for position, data in rows)
    return nlargest(limit, scored, key=lambda pair: pair[1])


def _compare_with_numpy(
    connection: Connection, audience: RecallAudience, query: VectorQuery, limit: int
) -> list[tuple[int, float]]:
    """Compare the cached vectors of an audience and those stored since."""
    view = view_of(connection) or VectorCacheView(VectorCache())
    cached = view.cache.get(audience)
    rows = CANDIDATES.rows(connection, *audience, cached.newest if cached else BEFORE_FIRST)
    pairs = cached.find_nearest(query.vector, limit) if cached else []
    if rows:
        newer = Matrix(rows)
        pairs += newer.find_nearest(query.vector, limit)
        view.cache.store(audience, cached, newer, view.version)
    return pairs


def _insert_words(insert: Insert) -> Executable:
    new_words = json_elements(bindparam("words")).table_valued("value", name="given")
    source = select(memories.c.agent_id, memories.c.kind, new_words.c.value, AUDIENCE, memories.c.position).where(
        matches(memories, "agent_id", "id")
    )
    names = ("agent_id", "kind", "word", "audience", "memory")
    return insert(words).from_select(names, source).on_conflict_do_nothing()  # type: ignore[no-any-return]


INSERT_WORDS = Statement(_insert_words)
WORD_SCOPE = (
    matches(words, "agent_id", "kind"),
    words.c.audience.in_([typed_parameter(words.c.audience, name) for name in ("all", "world", "room")]),
)
COUNT_WORDS = ListStatement(
    lambda searched: (
        select(words.c.word, func.count()).where(*WORD_SCOPE, words.c.word.in_(searched)).group_by(words.c.word)
    )
)
FIND_WORDS = ListStatement(
    lambda searched: select(words.c.memory, words.c.word).where(*WORD_SCOPE, words.c.word.in_(searched))
)
FIND_SAME_WORDING = Statement(
    lambda _: (
        select(memories.c.id)
        .join(words, words.c.memory == memories.c.position)
        .where(matches(words, "agent_id", "kind", "word", "audience"))
        .limit(1)
    )
)
ACQUIRE_LOCK = RawStatement("SELECT pg_advisory_xact_lock(?)")


def store_words(connection: Connection, agent: int, stored: Sequence[Memory]) -> None:
    """Index the words of memories other than messages."""
    INSERT_WORDS.run_many(
        connection,
        [
            (dumps(_index_entries(memory)), agent, memory.id.bytes)
            for memory in stored
            if memory.kind not in TRANSCRIPT_KINDS
        ],
    )


def delete_words(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Delete the words of memories."""
    DELETE_WORDS.count(connection, agent, ids=[memory_id.bytes for memory_id in ids])


def find_by_words(
    connection: Connection, agent: int, text: str, recall_scope: RecallScope, kind: MemoryKind, limit: int
) -> list[int]:
    """Return the positions of the memories that share the most words with a text, best first."""
    query_words = sorted(index_words(text))
    if not query_words or not limit:
        return []
    scopes = [(agent, kind.value, *group) for group in _in_groups(audiences_of(recall_scope))]
    counts: Counter[str] = Counter()
    for scope in scopes:
        for row in COUNT_WORDS.rows(connection, *scope, ids=[EMPTY_WORD, *query_words]):
            counts[row[0]] += row[1]
    total = counts.pop(EMPTY_WORD, 0)
    weights = word_weights(counts, total)
    shared: defaultdict[int, set[str]] = defaultdict(set)
    for scope in scopes:
        for position, word in FIND_WORDS.rows(connection, *scope, ids=list(weights)):
            shared[position].add(word)
    newest = {position: shared[position] for position in sorted(shared, reverse=True)}
    return top_by_word_overlap(newest, weights, total, limit)


def find_same_wording(connection: Connection, agent: int, memory: Memory, audience: UUID | None) -> bytes | None:
    """Return the id of a memory with the same text; PostgreSQL locks that text until the commit."""
    digest = _digest(memory)
    if connection.dialect.name == "postgresql":
        ACQUIRE_LOCK.rows(connection, int.from_bytes(digest[:8], signed=True))
    key = (memory.kind.value, _wording_entry(digest), audience.bytes if audience else SHARED_AUDIENCE)
    row = FIND_SAME_WORDING.first(connection, agent, *key)
    return row[0] if row else None


def _index_entries(memory: Memory) -> list[str]:
    return [EMPTY_WORD, _wording_entry(_digest(memory)), *index_words(memory.content.text)]


def _wording_entry(digest: bytes) -> str:
    return WORDING_PREFIX + digest.hex()


def _digest(memory: Memory) -> bytes:
    text = normalize_wording(memory.content.text).encode("utf-8", "replace")
    return sha256(memory.entity_id.bytes + text).digest()[:16]
