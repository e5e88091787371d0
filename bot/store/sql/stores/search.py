"""Embeddings, search for nearest vectors, and search by terms.

PostgreSQL compares vectors with pgvector; for SQLite this module does, with numpy if it is installed.
"""

import operator
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nlargest
from math import hypot
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Connection, Select, TextClause
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.store.protocols import RecallScope
from bot.store.search import (
    MAX_COMPARED,
    MAX_COUNTED,
    MAX_MATCHES,
    MAX_NEAREST,
    MAX_POSTINGS,
    MAX_TOPICS,
    MAX_WITH_NEIGHBOURS,
    Candidate,
    Question,
    SearchQuery,
    idf,
    parse_question,
    rank_candidates,
    split_stored,
    term_prefix,
    wording_term,
)
from bot.store.similarity import TRANSCRIPT_KINDS, cosine
from bot.store.sql.core.mapping import (
    LIMIT,
    NIL,
    Id,
    InsertStatement,
    count_changed,
    is_item,
    matches,
    parameter,
    rows_of,
)
from bot.store.sql.core.schema import embeddings, memories
from bot.store.sql.core.vector_cache import Matrix, RecallAudience, VectorCache, VectorCacheView, has_numpy, view_of

SHARED_AUDIENCE = NIL
BEFORE_FIRST = -1  # below every position
MAX_HALF_FLOAT = 60_000.0  # half precision ends at 65,504; larger vectors are scaled to length 1


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


ZERO: ColumnElement[int] = sa.literal_column("0")  # added to a column, it prevents the use of an index
AUDIENCE = sa.case(
    (memories.c.scope == MemoryScope.SHARED.value, sa.literal(SHARED_AUDIENCE, Id())),
    (memories.c.scope == MemoryScope.WORLD.value, memories.c.world_id),
    else_=memories.c.room_id,
)
EMBEDDING_NAMES = ("agent_id", "model", "dimension", "kind", "audience", "memory", "vector")


def _save_embedding(insert: Any) -> Executable:
    source = sa.select(
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


DELETE_EMBEDDINGS = sa.delete(embeddings).where(
    embeddings.c.memory.in_(
        sa.select(memories.c.position).where(matches(memories), memories.c.id.in_(sa.bindparam("items")))
    )
)
EMBEDDING_SCOPE = matches(embeddings, "model", "dimension", "kind")
NEWEST = (
    sa.select(embeddings.c.memory, embeddings.c.vector)
    .where(EMBEDDING_SCOPE, matches(embeddings, "audience"), embeddings.c.memory > sa.bindparam("after"))
    .order_by(embeddings.c.memory.desc())
    .limit(MAX_COMPARED)
)


def _nearest_in_postgresql() -> Select[Any]:
    """Compare the newest vectors of each audience; the similarity to a zero vector, NaN in pgvector, is 0.

    The order by audience, of which there is one at a time, is that of the primary key. For an order by `memory` alone
    the server may read the vectors of all audiences, by the index of that column, where few audiences have nearly all.
    """
    audiences = sa.func.unnest(sa.bindparam("audiences", type_=sa.ARRAY(Id()))).table_valued(
        sa.column("audience", Id())
    )
    listed = audiences.render_derived("listed")
    newest = (
        sa.select(embeddings.c.memory, embeddings.c.vector)
        .where(EMBEDDING_SCOPE, embeddings.c.audience.between(listed.c.audience, listed.c.audience))
        .order_by(embeddings.c.audience.desc(), embeddings.c.memory.desc())
        .limit(MAX_COMPARED)
        .lateral("newest")
    )
    distance: ColumnElement[float] = newest.c.vector.op("<=>", return_type=sa.Double())(
        parameter(embeddings.c.vector, "wanted")
    )
    nearest = sa.select(newest.c.memory, distance.label("distance")).select_from(listed).join(newest, sa.true())
    found = nearest.order_by("distance").limit(LIMIT).subquery()
    return sa.select(
        found.c.memory, sa.func.coalesce(sa.func.nullif(1 - found.c.distance, sa.literal_column("'NaN'")), 0)
    )


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
    wanted = [
        RecallAudience(agent, query.model, len(query.vector), query.kind.value, audience.bytes)
        for audience in dict.fromkeys(audiences)
    ]
    if connection.dialect.name == "postgresql":
        return _compare_in_postgresql(connection, wanted, query, limit)
    compare = _compare_with_numpy if has_numpy() else _compare_in_python
    pairs = [pair for audience in wanted for pair in compare(connection, audience, query, limit)]
    return dict(nlargest(limit, pairs, key=lambda pair: pair[1]))


def _values_of(audience: RecallAudience, after: int = BEFORE_FIRST) -> dict[str, Any]:
    return {
        "agent": audience.agent,
        "model_": audience.model,
        "dimension_": audience.dimension,
        "kind_": audience.kind,
        "audience_": UUID(bytes=audience.audience),
        "after": after,
    }


def pack_vector(vector: Sequence[float]) -> bytes:
    """Return a vector as bytes in half precision."""
    if max(map(abs, vector), default=0.0) > MAX_HALF_FLOAT:
        length = hypot(*vector)
        vector = [number / length for number in vector]
    return struct.pack(f"<{len(vector)}e", *vector)


def unpack_vector(data: bytes) -> tuple[float, ...]:
    """Return the vector of its bytes."""
    return struct.unpack(f"<{len(data) // 2}e", data)


def _compare_in_postgresql(
    connection: Connection, audiences: Sequence[RecallAudience], query: VectorQuery, limit: int
) -> dict[int, float]:
    values = _values_of(audiences[0]) | {"audiences": [UUID(bytes=item.audience) for item in audiences]}
    rows = connection.execute(NEAREST, values | {"wanted": pack_vector(query.vector), "limit": limit}).all()
    return {row[0]: row[1] for row in rows}


def _compare_in_python(
    connection: Connection, audience: RecallAudience, query: VectorQuery, limit: int
) -> list[tuple[int, float]]:
    rows = connection.execute(NEWEST, _values_of(audience))
    scored = ((position, cosine(query.vector, unpack_vector(data))) for position, data in rows)
    return nlargest(limit, scored, key=lambda pair: pair[1])


def _compare_with_numpy(
    connection: Connection, audience: RecallAudience, query: VectorQuery, limit: int
) -> list[tuple[int, float]]:
    """Compare the cached vectors of an audience and those stored since."""
    view = view_of(connection) or VectorCacheView(VectorCache())
    cached = view.cache.get(audience)
    rows = connection.execute(NEWEST, _values_of(audience, cached.newest if cached else BEFORE_FIRST)).all()
    pairs = cached.find_nearest(query.vector, limit) if cached else []
    if rows:
        newer = Matrix(rows[::-1])
        pairs += newer.find_nearest(query.vector, limit)
        view.cache.store(audience, cached, newer, view.version)
    return pairs


# The positions of the newest memories that have one of some terms, as one text: reading thousands of rows takes longer.
# PostgreSQL shall not read the whole table backwards for their order.
FIND_TERMS = {
    "sqlite": "SELECT {number}, group_concat(rowid) FROM (SELECT rowid FROM memory_terms "
    f"WHERE memory_terms MATCH :terms{{number}} ORDER BY rowid DESC LIMIT {MAX_POSTINGS})",
    "postgresql": "SELECT {number}, string_agg(CAST(position AS text), ',') FROM (SELECT position FROM (SELECT "
    "position FROM memories WHERE string_to_array(terms, ' ') && string_to_array(:terms{number}, ' ') OFFSET 0) "
    f"AS found ORDER BY position DESC LIMIT {MAX_POSTINGS}) AS newest",
}
MERGE_TERMS = sa.text("INSERT INTO memory_terms (memory_terms, rank) VALUES ('merge', :pages)")
IN_PLACE = (
    is_item(memories.c.position),
    memories.c.agent_id + ZERO == sa.bindparam("agent", type_=sa.Integer()),
    memories.c.kind == sa.bindparam("kind_"),
    AUDIENCE.in_(sa.bindparam("audiences")),
)
CANDIDATE_ROWS = sa.select(
    memories.c.position, memories.c.terms, sa.type_coerce(memories.c.created_at, sa.BigInteger())
).where(*IN_PLACE, memories.c.id.not_in(sa.bindparam("excluded")))
MEMORY_ID = sa.select(memories.c.id).where(*IN_PLACE).limit(1)
COUNT_LINES = sa.select(sa.func.count()).select_from(
    sa.select(memories.c.position)
    .where(matches(memories, "kind"), memories.c.room_id.in_(sa.bindparam("audiences")))
    .limit(MAX_COUNTED)
    .subquery()
)


def _adjacent_position(function: Callable[[ColumnElement[int]], Any], is_wanted: Callable[[Any, Any], Any]) -> Any:
    """Return the position of the memory of the same room and kind that comes before or after one."""
    other = memories.alias("other")
    in_room = (other.c[name] == memories.c[name] for name in ("agent_id", "room_id", "kind"))
    query = sa.select(function(other.c.position)).where(*in_room, is_wanted(other.c.position, memories.c.position))
    return query.correlate(memories).scalar_subquery()


NEIGHBOURS = sa.select(
    memories.c.position, _adjacent_position(sa.func.max, operator.lt), _adjacent_position(sa.func.min, operator.gt)
).where(is_item(memories.c.position))


@dataclass(frozen=True, slots=True)
class Place:
    """What a search covers: the memories of one kind in some audiences of an agent."""

    agent: int
    kind: MemoryKind
    audiences: tuple[UUID, ...]

    @property
    def values(self) -> dict[str, Any]:
        """The values of the parameters of IN_PLACE."""
        return {"agent": self.agent, "kind_": self.kind, "audiences": self.audiences}


@dataclass(frozen=True, slots=True)
class Found:
    """Lines that a question finds, by position, and which lines of a conversation stand beside one another."""

    lines: dict[int, Candidate] = field(default_factory=dict)
    neighbours: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


@dataclass(frozen=True, slots=True)
class WordMatches:
    """What the words of a question find: how much each topic counts, and the lines that match best."""

    question: Question
    weights: Mapping[str, float]
    found: Found


def place_of(agent: int, scope: RecallScope, kind: MemoryKind) -> Place:
    """Return what a search covers: of a conversation, which belongs to its room, not what is shared everywhere."""
    audiences = audiences_of(scope)
    return Place(agent, kind, tuple(audiences[1:] if kind in TRANSCRIPT_KINDS else audiences))


def match_words(place: Place, query: SearchQuery, connection: Connection) -> WordMatches:
    """Return what the words of a question find."""
    question = parse_question(query)
    marks = [audience if audience != SHARED_AUDIENCE else None for audience in place.audiences]
    prefixes = [term_prefix(place.kind, audience) for audience in marks]
    terms = [[prefix + term for prefix in prefixes for term in sorted(topic)] for topic in question.topics.values()]
    found = dict(zip(question.topics, _find_positions(connection, terms), strict=True))
    total = max([connection.scalar(COUNT_LINES, place.values) or 0, *map(len, found.values())])
    weights = {label: idf(len(positions), total) for label, positions in found.items()}
    rough: defaultdict[int, float] = defaultdict(float)
    for label, positions in found.items():
        weight = weights[label]
        for position in positions:
            rough[position] += weight
    best = [position for _, position in nlargest(MAX_MATCHES, zip(rough.values(), rough, strict=True))]
    matches = WordMatches(question, weights, Found())
    _read_lines(connection, place, query, best, matches.found)
    return matches


def find_near(place: Place, query: SearchQuery, connection: Connection) -> dict[int, float]:
    """Return the similarities of the lines nearest in meaning to a question, by position, nearest first."""
    vector = VectorQuery(tuple(query.vector or ()), query.model, place.kind)
    return find_nearest(connection, place.agent, vector, place.audiences, MAX_NEAREST)


def rank_found(
    connection: Connection, place: Place, query: SearchQuery, matches: WordMatches, near: Mapping[int, float]
) -> list[tuple[int, float, dict[str, float]]]:
    """Return the positions of what was found by words and by meaning, with scores and their parts, best first."""
    found = matches.found
    if near:
        _read_lines(connection, place, query, list(near), found)
    return rank_candidates(matches.question, found.lines, matches.weights, near, found.neighbours, query.asked)


def _read_lines(
    connection: Connection, place: Place, query: SearchQuery, positions: Sequence[int], found: Found
) -> None:
    """Add the lines at some positions, best first, and those beside the best of them, if they are not there yet."""
    wanted = {*positions}
    if query.with_neighbours and place.kind == MemoryKind.MESSAGE:
        wanted |= _add_neighbours(connection, positions[:MAX_WITH_NEIGHBOURS], found.neighbours)
    wanted -= found.lines.keys()
    for position, terms, microseconds in rows_of(
        connection, CANDIDATE_ROWS, wanted, excluded=list(query.excluded), **place.values
    ):
        found.lines[position] = Candidate(*split_stored(terms), microseconds / 1_000_000)


@lru_cache(maxsize=2 * MAX_TOPICS)
def select_positions(dialect: str, count: int) -> TextClause:
    """Return the statement that finds the memories of so many topics."""
    return sa.text(" UNION ALL ".join(FIND_TERMS[dialect].format(number=number) for number in range(count)))


def _find_positions(connection: Connection, topics: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return for each topic the positions of the newest memories that have one of its terms."""
    if not topics:
        return []
    dialect = connection.dialect.name
    quoted = [
        " OR ".join(f'"{term}"' for term in terms) if dialect == "sqlite" else " ".join(terms) for terms in topics
    ]
    values = {f"terms{number}": terms for number, terms in enumerate(quoted)}
    rows = sorted(connection.execute(select_positions(dialect, len(topics)), values))
    return [list(map(int, positions.split(","))) if positions else [] for _, positions in rows]


def _add_neighbours(
    connection: Connection, positions: Collection[int], neighbours: defaultdict[int, set[int]]
) -> set[int]:
    """Add which lines of a conversation stand beside those at some positions; return the positions of all of these."""
    added = set[int]()
    for position, *others in rows_of(connection, NEIGHBOURS, positions):
        for other in filter(None, others):
            neighbours[position].add(other)
            neighbours[other].add(position)
            added |= {position, other}
    return added


def merge_deleted_terms(connection: Connection, pages: int) -> bool:
    """Rewrite some pages of SQLite's index without the terms of what was deleted; return whether more may be left.

    The first step has a negative number of pages: it begins to merge all parts of the index into one.
    """
    if connection.dialect.name != "sqlite":
        return False  # PostgreSQL removes them when it vacuums
    before = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
    connection.execute(MERGE_TERMS, {"pages": pages})
    return int(connection.exec_driver_sql("SELECT total_changes()").scalar_one()) - int(before) >= 2


def find_same_wording(connection: Connection, agent: int, memory: Memory, audience: UUID | None) -> UUID | None:
    """Return the id of a memory with the same text; PostgreSQL locks that text until the commit."""
    term = term_prefix(memory.kind, audience) + wording_term(memory.content.text, memory.entity_id)
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(term, 0))))
    in_place = {"agent": agent, "kind_": memory.kind, "audiences": [audience or SHARED_AUDIENCE]}
    [positions] = _find_positions(connection, [[term]])
    rows = rows_of(connection, MEMORY_ID, positions, **in_place)
    return rows[0][0] if rows else None
