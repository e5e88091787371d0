"""Vectors as half-precision numbers, compared exactly.

By pgvector in PostgreSQL; for SQLite here, with numpy where it is there, else in plain Python.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import hypot
from uuid import UUID

from sqlalchemy import Connection, Double, bindparam, case, delete, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot import MemoryKind, Scope, cosine
from plugins.sql.matrices import Audience, Matrices, Matrix, View, has_numpy, view_of
from plugins.sql.schema import embeddings, memories
from plugins.sql.statements import Insert, Listing, Statement, limit, same, value
from plugins.sql.values import NO_ID

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


def _insert(insert: Insert) -> Executable:
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


INSERT = Statement(_insert, "agent", "id", "model", "dimension", "vector")
DROP = Listing(
    lambda ids: delete(embeddings).where(
        embeddings.c.memory.in_(
            select(memories.c.position).where(same(memories.c.agent_id, "agent"), memories.c.id.in_(ids))
        )
    ),
    "agent",
)
SCOPE = (
    same(embeddings.c.agent_id, "agent"),
    same(embeddings.c.model, "model"),
    same(embeddings.c.dimension, "dimension"),
    same(embeddings.c.kind, "kind"),
)
IN_SCOPE = ("agent", "model", "dimension", "kind")
AUDIENCES = ("all", "world", "room")
CANDIDATES = Statement(
    lambda _: (
        select(embeddings.c.memory, embeddings.c.vector)
        .where(*SCOPE, same(embeddings.c.audience, "audience"), embeddings.c.memory > bindparam("after"))
        .order_by(embeddings.c.memory)
    ),
    *IN_SCOPE,
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
    found = select(embeddings.c.memory, similarity).where(*SCOPE, heard)
    return found.order_by(similarity.desc()).limit(limit())


NEAREST = Statement(_nearest_in_postgresql, "wanted", *IN_SCOPE, *AUDIENCES, "limit")


def put(connection: Connection, agent: int, kept: Sequence[Kept]) -> None:
    """Give memories their vectors; none of them has one yet."""
    INSERT.run_many(
        connection,
        [(agent, one.memory_id.bytes, one.model, len(one.vector), packed(one.vector)) for one in kept],
    )


def replace(connection: Connection, agent: int, kept: Sequence[Kept]) -> None:
    """Give memories their vectors instead of those they have."""
    drop(connection, agent, [one.memory_id for one in kept])
    put(connection, agent, kept)


def drop(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Forget the vectors of memories."""
    DROP.count(connection, agent, ids=[one.bytes for one in ids])


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
