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

from sqlalchemy import (
    Connection,
    Delete,
    Double,
    Select,
    Table,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    select,
    true,
)
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.store.protocols import RecallScope
from bot.store.similarity import (
    TRANSCRIPT_KINDS,
    cosine,
    index_words,
    normalize_wording,
    top_by_word_overlap,
    word_weights,
)
from bot.store.sql.core.mapping import (
    NIL,
    Id,
    InsertStatement,
    Json,
    Row,
    count_changed,
    items_parameter,
    json_elements,
    limit_parameter,
    matches,
    parameter,
    rows_of,
)
from bot.store.sql.core.schema import embeddings, memories, words
from bot.store.sql.core.vector_cache import Matrix, RecallAudience, VectorCache, VectorCacheView, has_numpy, view_of

SHARED_AUDIENCE = NIL
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
    (memories.c.scope == MemoryScope.SHARED.value, literal(SHARED_AUDIENCE, Id())),
    (memories.c.scope == MemoryScope.WORLD.value, memories.c.world_id),
    else_=memories.c.room_id,
)
EMBEDDING_NAMES = ("agent_id", "model", "dimension", "kind", "audience", "memory", "vector")
WORD_NAMES = ("agent_id", "kind", "word", "audience", "memory")


def _save_embedding(insert: Any) -> Executable:
    source = select(
        memories.c.agent_id,
        *(parameter(embeddings.c[name], f"{name}_") for name in ("model", "dimension")),
        memories.c.kind,
        AUDIENCE,
        memories.c.position,
        parameter(embeddings.c.vector, "vector_"),
    ).where(matches(memories, "id"))
    statement = insert.from_select(EMBEDDING_NAMES, source)
    updates = {name: statement.excluded[name] for name in EMBEDDING_NAMES if name not in ("agent_id", "memory")}
    return statement.on_conflict_do_update(index_elements=["memory"], set_=updates)  # type: ignore[no-any-return]


SAVE_EMBEDDING = InsertStatement(embeddings, (), _save_embedding)


def _delete_of_memories(table: Table) -> Delete:
    """Return a statement that deletes the rows about memories."""
    positions = select(memories.c.position).where(matches(memories), memories.c.id.in_(items_parameter(memories.c.id)))
    return delete(table).where(table.c.memory.in_(positions))


DELETE_EMBEDDINGS, DELETE_WORDS = _delete_of_memories(embeddings), _delete_of_memories(words)
EMBEDDING_SCOPE = matches(embeddings, "model", "dimension", "kind")
CANDIDATES = (
    select(embeddings.c.memory, embeddings.c.vector)
    .where(EMBEDDING_SCOPE, matches(embeddings, "audience"), embeddings.c.memory > bindparam("after"))
    .order_by(embeddings.c.memory)
)


def _nearest_in_postgresql() -> Select[Any]:
    """Compare the vectors of the key; the similarity to a zero vector, NaN in pgvector, is 0."""
    distance: ColumnElement[float] = embeddings.c.vector.op("<=>", return_type=Double())(
        parameter(embeddings.c.vector, "wanted")
    )
    similarity = func.coalesce(func.nullif(1 - distance, literal_column("'NaN'")), 0).label("similarity")
    is_visible = embeddings.c.audience.in_(items_parameter(embeddings.c.audience, "audiences"))
    query = select(embeddings.c.memory, similarity).where(EMBEDDING_SCOPE, is_visible)
    return query.order_by(similarity.desc()).limit(limit_parameter())


NEAREST = _nearest_in_postgresql()


def vectors_of(stored: Iterable[Memory]) -> list[StoredVector]:
    """Return the vectors of the memories that have one."""
    return [
        StoredVector(memory.id, memory.embedding, memory.embedding_model)
        for memory in stored
        if memory.embedding is not None
    ]


def store_embeddings(connection: Connection, agent: int, vectors: Sequence[StoredVector]) -> None:
    """Insert the vectors of memories, or replace them."""
    rows = [
        {
            "agent": agent,
            "id_": stored.memory_id,
            "model_": stored.model,
            "dimension_": len(stored.vector),
            "vector_": pack_vector(stored.vector),
        }
        for stored in vectors
    ]
    SAVE_EMBEDDING.execute_all(connection, rows)


def delete_embeddings(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Delete the vectors of memories."""
    count_changed(connection, DELETE_EMBEDDINGS, ids, agent=agent)


def audiences_of(scope: RecallScope) -> list[UUID]:
    """Return the audiences whose memories a scope covers, that of everywhere first."""
    return [SHARED_AUDIENCE, *scope.audiences]


def find_nearest(
    connection: Connection, agent: int, query: VectorQuery, audiences: Sequence[UUID], limit: int
) -> dict[int, float]:
    """Return the positions of the nearest memories with their similarities."""
    if not limit:
        return {}
    key = (agent, query.model, len(query.vector), query.kind.value)
    if connection.dialect.name == "postgresql":
        values = {**_scope_values(*key), "wanted": pack_vector(query.vector), "audiences": audiences, "limit": limit}
        return {row[0]: row[1] for row in connection.execute(NEAREST, values)}
    compare = _compare_with_numpy if has_numpy() else _compare_in_python
    pairs = [
        pair
        for audience in dict.fromkeys(audiences)
        for pair in compare(connection, RecallAudience(*key, audience.bytes), query, limit)
    ]
    return dict(nlargest(limit, pairs, key=lambda pair: pair[1]))


def _scope_values(agent: int, model: str, dimension: int, kind: str) -> dict[str, Any]:
    return {"agent": agent, "model_": model, "dimension_": dimension, "kind_": kind}


def _find_candidates(connection: Connection, audience: RecallAudience, after: int) -> Sequence[Row]:
    scope = _scope_values(audience.agent, audience.model, audience.dimension, audience.kind)
    values = {**scope, "audience_": UUID(bytes=audience.audience), "after": after}
    return connection.execute(CANDIDATES, values).all()


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
    rows = _find_candidates(connection, audience, BEFORE_FIRST)
    scored = ((position, cosine(query.vector, unpack_vector(data))) for position, data in rows)
    return nlargest(limit, scored, key=lambda pair: pair[1])


def _compare_with_numpy(
    connection: Connection, audience: RecallAudience, query: VectorQuery, limit: int
) -> list[tuple[int, float]]:
    """Compare the cached vectors of an audience and those stored since."""
    view = view_of(connection) or VectorCacheView(VectorCache())
    cached = view.cache.get(audience)
    rows = _find_candidates(connection, audience, cached.newest if cached else BEFORE_FIRST)
    pairs = cached.find_nearest(query.vector, limit) if cached else []
    if rows:
        newer = Matrix(rows)
        pairs += newer.find_nearest(query.vector, limit)
        view.cache.store(audience, cached, newer, view.version)
    return pairs


def _insert_words(insert: Any) -> Executable:
    new_words = json_elements(bindparam("words", type_=Json())).table_valued("value", name="given")
    columns = (memories.c.agent_id, memories.c.kind, new_words.c.value, AUDIENCE, memories.c.position)
    source = select(*columns).join_from(memories, new_words, true()).where(matches(memories, "id"))
    return insert.from_select(WORD_NAMES, source).on_conflict_do_nothing()  # type: ignore[no-any-return]


INSERT_WORDS = InsertStatement(words, (), _insert_words)
WORD_SCOPE = (
    matches(words, "kind"),
    words.c.audience.in_(items_parameter(words.c.audience, "audiences")),
    words.c.word.in_(items_parameter(words.c.word)),
)
COUNT_WORDS = select(words.c.word, func.count()).where(*WORD_SCOPE).group_by(words.c.word)
FIND_WORDS = select(words.c.memory, words.c.word).where(*WORD_SCOPE)
FIND_SAME_WORDING = (
    select(memories.c.id)
    .join(words, words.c.memory == memories.c.position)
    .where(matches(words, "kind", "word", "audience"))
    .limit(1)
)


def store_words(connection: Connection, agent: int, stored: Sequence[Memory]) -> None:
    """Index the words of memories other than messages."""
    rows = [
        {"agent": agent, "id_": memory.id, "words": _index_entries(memory)}
        for memory in stored
        if memory.kind not in TRANSCRIPT_KINDS
    ]
    INSERT_WORDS.execute_all(connection, rows)


def delete_words(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Delete the words of memories."""
    count_changed(connection, DELETE_WORDS, ids, agent=agent)


def find_by_words(
    connection: Connection, agent: int, text: str, recall_scope: RecallScope, kind: MemoryKind, limit: int
) -> list[int]:
    """Return the positions of the memories that share the most words with a text, best first."""
    query_words = sorted(index_words(text))
    if not query_words or not limit:
        return []
    scope = {"agent": agent, "kind_": kind, "audiences": audiences_of(recall_scope)}
    counts = Counter(dict(map(tuple, rows_of(connection, COUNT_WORDS, [EMPTY_WORD, *query_words], **scope))))
    total = counts.pop(EMPTY_WORD, 0)
    weights = word_weights(counts, total)
    shared: defaultdict[int, set[str]] = defaultdict(set)
    for position, word in rows_of(connection, FIND_WORDS, weights, **scope):
        shared[position].add(word)
    newest = {position: shared[position] for position in sorted(shared, reverse=True)}
    return top_by_word_overlap(newest, weights, total, limit)


def find_same_wording(connection: Connection, agent: int, memory: Memory, audience: UUID | None) -> UUID | None:
    """Return the id of a memory with the same text; PostgreSQL locks that text until the commit."""
    digest = _digest(memory)
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], signed=True))))
    key = {"kind_": memory.kind, "word_": _wording_entry(digest), "audience_": audience or SHARED_AUDIENCE}
    return connection.execute(FIND_SAME_WORDING, {"agent": agent, **key}).scalar()


def _index_entries(memory: Memory) -> list[str]:
    return [EMPTY_WORD, _wording_entry(_digest(memory)), *index_words(memory.content.text)]


def _wording_entry(digest: bytes) -> str:
    return WORDING_PREFIX + digest.hex()


def _digest(memory: Memory) -> bytes:
    text = normalize_wording(memory.content.text).encode("utf-8", "replace")
    return sha256(memory.entity_id.bytes + text).digest()[:16]
