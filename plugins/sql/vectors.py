"""Vectors as half-precision numbers, compared exactly.

By pgvector in PostgreSQL; for SQLite here, with numpy where it is there, else in plain Python.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from importlib import import_module
from math import hypot
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Double, case, delete, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot import MemoryKind, Scope, cosine
from plugins.sql.schema import embeddings, memories
from plugins.sql.statements import Insert, Listing, Row, Statement, limit, same, value
from plugins.sql.values import NO_ID

EVERYBODY = NO_ID
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
    embeddings.c.audience.in_([value(embeddings.c.audience, name) for name in ("all", "world", "room")]),
)
IN_SCOPE = ("agent", "model", "dimension", "kind", "all", "world", "room")
CANDIDATES = Statement(lambda _: select(embeddings.c.memory, embeddings.c.vector).where(*SCOPE), *IN_SCOPE)


def _nearest_in_postgresql(_: Insert) -> Executable:
    """Compare what the key has found; a vector without a direction is like none, and pgvector says NaN."""
    distance: ColumnElement[float] = embeddings.c.vector.op("<=>", return_type=Double())(
        value(embeddings.c.vector, "wanted")
    )
    similarity = func.coalesce(func.nullif(1 - distance, literal_column("'NaN'")), 0).label("similarity")
    found = select(embeddings.c.memory, similarity).where(*SCOPE)
    return found.order_by(similarity.desc()).limit(limit())


NEAREST = Statement(_nearest_in_postgresql, "wanted", *IN_SCOPE, "limit")


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
    key = (agent, wanted.model, len(wanted.vector), wanted.kind.value, *audiences)
    if not most:
        return {}
    if connection.dialect.name == "postgresql":
        return dict(map(tuple, NEAREST.rows(connection, packed(wanted.vector), *key, most)))
    rows = CANDIDATES.rows(connection, *key)
    if not rows:
        return {}
    numpy = _numpy()
    compare = _compared if numpy is None else _compared_at_once
    return dict(compare(numpy, rows, wanted.vector, most))


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
    numpy: None, rows: Sequence[Row], wanted: Sequence[float], limit: int
) -> list[tuple[int, float]]:
    scored = ((position, cosine(wanted, unpacked(data))) for position, data in rows)
    return nlargest(limit, scored, key=lambda pair: pair[1])


def _compared_at_once(
    numpy: Any, rows: Sequence[Row], wanted: Sequence[float], limit: int
) -> list[tuple[int, float]]:
    positions, data = zip(*rows, strict=True)
    matrix = numpy.frombuffer(b"".join(data), dtype="<f2").reshape(len(rows), -1).astype(numpy.float32)
    query = numpy.asarray(wanted, dtype=numpy.float32)
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix)) * numpy.sqrt(query @ query)
    scores = numpy.divide(
        matrix @ query, lengths, out=numpy.zeros(len(rows), numpy.float32), where=lengths > 0
    )
    limit = min(limit, len(rows))
    best = numpy.argpartition(-scores, limit - 1)[:limit]
    order = best[numpy.argsort(-scores[best], kind="stable")]
    return [(positions[place], float(scores[place])) for place in order]


@lru_cache(maxsize=1)
def _numpy() -> Any | None:
    """Load numpy when it is first needed: it takes a tenth of a second, and is not a must."""
    try:
        return import_module("numpy")
    except ImportError:
        return None
