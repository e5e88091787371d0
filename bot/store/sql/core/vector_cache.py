"""A cache of the vectors of large audiences: reading them takes longer than comparing them.

SQLite's writing connection reports every vector that is inserted or deleted, for whatever reason; the cache
is updated when that is committed. Only the searching thread reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

from sqlalchemy import Connection

from bot.store.search import MAX_COMPARED
from bot.store.sql.core.mapping import Row

MIN_CACHED_VECTORS = 500  # vectors; fewer are read as quickly
MAX_BYTES = 192 * 1024 * 1024  # the 16,000 vectors of 384 numbers that are compared of a room take 23 MiB
WRITER_KEY, SEARCHER_KEY = "greenroom-matrices-watched", "greenroom-matrices-seen"
SQL_FUNCTION = "greenroom_vector"
KEY_COLUMNS = "{row}.agent_id, {row}.model, {row}.dimension, {row}.kind, {row}.audience, {row}.memory"
REPORT_INSERT, REPORT_OLD, REPORT_NEW = (
    f"SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row=row)}, {is_new});"
    for row, is_new in (("new", 1), ("old", 0), ("new", 0))
)
TRIGGERS = {"INSERT": REPORT_INSERT, "DELETE": REPORT_OLD, "UPDATE": REPORT_OLD + REPORT_NEW}


class RecallAudience(NamedTuple):
    """Names the vectors that are searched together."""

    agent: int
    model: str
    dimension: int
    kind: str
    audience: bytes


class Matrix:
    """Unit vectors, one per row, with the positions of their memories in ascending order."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._positions: list[int] = [row[0] for row in rows]
        self._unit_vectors = _to_unit_vectors([row[1] for row in rows])

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return int(self._unit_vectors.nbytes)

    @property
    def newest(self) -> int:
        """The highest position."""
        return self._positions[-1]

    def extend(self, other: "Matrix") -> None:
        """Append newer vectors; the array grows by half when it is full."""
        numpy, count, added_count = _numpy(), len(self), len(other)
        if count + added_count > len(self._unit_vectors):
            enlarged = numpy.empty((count + added_count + count // 2, self._unit_vectors.shape[1]), numpy.float32)
            enlarged[:count] = self._unit_vectors[:count]
            self._unit_vectors = enlarged
        self._unit_vectors[count : count + added_count] = other._unit_vectors[:added_count]
        self._positions += other._positions

    def find_nearest(self, vector: Sequence[float], limit: int) -> list[tuple[int, float]]:
        """Return the positions and similarities of the nearest vectors, nearest first."""
        numpy, count = _numpy(), len(self)
        first = max(0, count - MAX_COMPARED)
        query = numpy.asarray(vector, dtype=numpy.float32)
        length = numpy.sqrt(query @ query)
        # not `@`: it uses several threads, which wait for one another on a busy machine
        scores = numpy.einsum("ij,j->i", self._unit_vectors[first:count], query / length if length else query)
        limit = min(limit, count - first)
        best = numpy.argpartition(-scores, limit - 1)[:limit]
        order = best[numpy.argsort(-scores[best], kind="stable")]
        return [(self._positions[first + index], float(scores[index])) for index in order]


class VectorCache:
    """The matrices of one file that were used last, up to `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._matrices: dict[RecallAudience, Matrix] = {}
        self._pending: list[tuple[RecallAudience, int, bool]] = []  # in the transaction that is being written
        self.version = 0

    def attach(self, connection: Connection) -> None:
        """Install triggers by which the writing connection reports every vector."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(SQL_FUNCTION, 7, self._record_change)
        for event, action in TRIGGERS.items():
            name = f"{SQL_FUNCTION}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.embeddings BEGIN {action} END")
        connection.info[WRITER_KEY] = self

    def on_commit(self) -> None:
        """Apply the recorded changes: drop each matrix that newer rows alone cannot complete."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        with self._lock:
            self.version += 1
            for audience, position, is_new in pending:
                matrix = self._matrices.get(audience)
                if matrix is not None and not (is_new and position > matrix.newest):
                    del self._matrices[audience]

    def on_rollback(self) -> None:
        """Discard the recorded changes."""
        self._pending.clear()

    def clear(self) -> None:
        """Drop all matrices: what changed is unknown."""
        with self._lock:
            self.version += 1
            self._matrices.clear()

    def get(self, audience: RecallAudience) -> Matrix | None:
        """Return a matrix; the file may hold newer vectors than it does."""
        with self._lock:
            matrix = self._matrices.pop(audience, None)
            if matrix is not None:
                self._matrices[audience] = matrix  # the last one to go
        return matrix

    def store(self, audience: RecallAudience, cached: Matrix | None, newer: Matrix, version: int) -> None:
        """Store what was read of an audience, unless a vector has changed since that version."""
        with self._lock:
            if version != self.version or self._matrices.get(audience) is not cached:
                return
            if cached is not None:
                cached.extend(newer)
                newer = self._matrices.pop(audience)
            if MIN_CACHED_VECTORS <= len(newer) <= 2 * MAX_COMPARED:  # else the newest are read again
                self._matrices[audience] = newer
            while sum(matrix.size for matrix in self._matrices.values()) > self._max_bytes:
                del self._matrices[next(iter(self._matrices))]

    def _record_change(self, *values: Any) -> None:
        *audience, position, is_new = values
        self._pending.append((RecallAudience(*audience), position, bool(is_new)))


@dataclass(slots=True)
class VectorCacheView:
    """The cache as a searching connection sees it, with its version when the transaction began."""

    cache: VectorCache
    version: int = 0


def enable_vector_search(connection: Connection, cache: VectorCache) -> None:
    """Register a cache in which a connection searches."""
    connection.info[SEARCHER_KEY] = VectorCacheView(cache)


def on_begin(connection: Connection) -> None:
    """Record the cache's version before a transaction reads anything."""
    view = view_of(connection)
    if view is not None:
        view.version = view.cache.version


def view_of(connection: Connection) -> VectorCacheView | None:
    """Return the view of a connection, or None if it does not search in a cache."""
    view: Any = connection.info.get(SEARCHER_KEY)
    return view if isinstance(view, VectorCacheView) else None


@lru_cache(maxsize=1)
def has_numpy() -> bool:
    """Return whether numpy, which is optional, is installed."""
    return find_spec("numpy") is not None


@lru_cache(maxsize=1)
def _numpy() -> Any:
    """Import numpy on first use: it takes a tenth of a second."""
    return import_module("numpy")


def _to_unit_vectors(vectors: Sequence[bytes]) -> Any:
    numpy = _numpy()
    matrix = numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix))[:, None]
    return numpy.divide(matrix, lengths, out=matrix, where=lengths > 0)
