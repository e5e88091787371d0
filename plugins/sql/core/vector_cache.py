"""The vectors of large audiences, kept in memory: reading them takes longer than comparing them.

SQLite's one connection that writes tells of every vector that comes or goes, whatever it was that moved it;
what is kept here follows once that is committed. The thread that searches is the only one that looks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

from sqlalchemy import Connection

from plugins.sql.core.statements import Row

LARGE = 500  # vectors; fewer are read as quickly
MOST_BYTES = 128 * 1024 * 1024
WRITING, SEARCHING = "greenroom-matrices-watched", "greenroom-matrices-seen"
TELL = "greenroom_vector"
KEY = "{row}.agent_id, {row}.model, {row}.dimension, {row}.kind, {row}.audience, {row}.memory"
EVENTS = {
    "INSERT": f"SELECT {TELL}({KEY.format(row='new')}, 1);",
    "DELETE": f"SELECT {TELL}({KEY.format(row='old')}, 0);",
    "UPDATE": f"SELECT {TELL}({KEY.format(row='old')}, 0); SELECT {TELL}({KEY.format(row='new')}, 0);",
}


class Audience(NamedTuple):
    """Vectors that can be compared with one another, and are met together."""

    agent: int
    model: str
    dimension: int
    kind: str
    audience: bytes


class Matrix:
    """Vectors of length one, a row each, with the positions of their memories, which only grow."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._positions: list[int] = [row[0] for row in rows]
        self._units = _units([row[1] for row in rows])

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return int(self._units.nbytes)

    @property
    def newest(self) -> int:
        """The last position."""
        return self._positions[-1]

    def extend(self, other: "Matrix") -> None:
        """Take in what has come since; room for more is made now and then."""
        numpy, count, added = _numpy(), len(self), len(other)
        if count + added > len(self._units):
            grown = numpy.empty((count + added + count // 2, self._units.shape[1]), numpy.float32)
            grown[:count] = self._units[:count]
            self._units = grown
        self._units[count : count + added] = other._units[:added]
        self._positions += other._positions

    def nearest(self, wanted: Sequence[float], most: int) -> list[tuple[int, float]]:
        """Find the positions of the nearest, with how near they are, the nearest first."""
        numpy, count = _numpy(), len(self)
        query = numpy.asarray(wanted, dtype=numpy.float32)
        length = numpy.sqrt(query @ query)
        # not `@`: that is handed to several threads, which wait for one another on a busy machine
        scores = numpy.einsum("ij,j->i", self._units[:count], query / length if length else query)
        most = min(most, count)
        best = numpy.argpartition(-scores, most - 1)[:most]
        order = best[numpy.argsort(-scores[best], kind="stable")]
        return [(self._positions[place], float(scores[place])) for place in order]


class Matrices:
    """One file's matrices, the ones that were needed last; `most` bytes of them."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: dict[Audience, Matrix] = {}
        self._told: list[tuple[Audience, int, bool]] = []  # in the transaction that is being written
        self.version = 0

    def watch(self, connection: Connection) -> None:
        """Have the connection that writes tell of every vector."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(TELL, 7, self._note)
        for event, told in EVENTS.items():
            name = f"{TELL}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.embeddings BEGIN {told} END")
        connection.info[WRITING] = self

    def settle(self) -> None:
        """What was told is committed: what can no longer be completed by reading on is read anew."""
        told, self._told = self._told, []
        if not told:
            return
        with self._lock:
            self.version += 1
            for audience, position, is_new in told:
                matrix = self._kept.get(audience)
                if matrix is not None and not (is_new and position > matrix.newest):
                    del self._kept[audience]

    def undo(self) -> None:
        """What was told is not so."""
        self._told.clear()

    def clear(self) -> None:
        """Nobody knows what has changed."""
        with self._lock:
            self.version += 1
            self._kept.clear()

    def get(self, audience: Audience) -> Matrix | None:
        """Find a matrix; there may be newer vectors than it holds."""
        with self._lock:
            found = self._kept.pop(audience, None)
            if found is not None:
                self._kept[audience] = found  # the last one to go
        return found

    def keep(self, audience: Audience, known: Matrix | None, newer: Matrix, version: int) -> None:
        """Keep what was read of an audience, unless a vector has come or gone since that version."""
        with self._lock:
            if version != self.version or self._kept.get(audience) is not known:
                return
            if known is not None:
                known.extend(newer)
                newer = self._kept.pop(audience)
            if len(newer) >= LARGE:
                self._kept[audience] = newer
            while sum(one.size for one in self._kept.values()) > self._most:
                del self._kept[next(iter(self._kept))]

    def _note(self, *told: Any) -> None:
        *audience, position, is_new = told
        self._told.append((Audience(*audience), position, bool(is_new)))


@dataclass(slots=True)
class View:
    """What a searching connection sees of the matrices, and their version when its transaction began."""

    matrices: Matrices
    version: int = 0


def search_with(connection: Connection, matrices: Matrices) -> None:
    """Let a connection search in matrices."""
    connection.info[SEARCHING] = View(matrices)


def begun(connection: Connection) -> None:
    """Note what is settled before a transaction sees anything."""
    view = view_of(connection)
    if view is not None:
        view.version = view.matrices.version


def view_of(connection: Connection) -> View | None:
    """Give what a connection sees, where it searches in matrices at all."""
    found: Any = connection.info.get(SEARCHING)
    return found if isinstance(found, View) else None


def watched_by(connection: Connection) -> Matrices:
    """Give the matrices that a connection tells of what it writes; where it tells none, some of no use."""
    found: Any = connection.info.get(WRITING)
    return found if isinstance(found, Matrices) else Matrices()


@lru_cache(maxsize=1)
def has_numpy() -> bool:
    """Tell whether numpy is there: it is not a must."""
    return find_spec("numpy") is not None


@lru_cache(maxsize=1)
def _numpy() -> Any:
    """Load numpy when it is first needed: it takes a tenth of a second."""
    return import_module("numpy")


def _units(vectors: Sequence[bytes]) -> Any:
    numpy = _numpy()
    matrix = numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix))[:, None]
    return numpy.divide(matrix, lengths, out=matrix, where=lengths > 0)
