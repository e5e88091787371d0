"""What was last said in rooms, as this process itself has written it: most turns need not read it again.

SQLite's one connection that writes tells of every memory that it puts there, changes or takes away; what
is kept here follows once that is committed.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple

from sqlalchemy import Connection

from bot import Memory
from plugins.sql.core.statements import Row

MOST_LANES = 256
MOST_LIMIT = 50  # of those that were asked for more, nothing is kept
LARGEST = 2_000  # characters of content and metadata as they are written; a lane with more in one is not kept
MOST_CHANGES = 10_000
WRITING = "greenroom-recents-told"
TELL = "greenroom_memory"
LANE = "{row}.agent_id, {row}.room_id, {row}.kind"
EVENTS = {
    "DELETE": f"SELECT {TELL}({LANE.format(row='old')});",
    "UPDATE": f"SELECT {TELL}({LANE.format(row='old')}); SELECT {TELL}({LANE.format(row='new')});",
}


class Lane(NamedTuple):
    """The memories of one kind in a room."""

    agent: int
    room: bytes
    kind: str


@dataclass(slots=True)
class _Window:
    """The last `limit` memories of a lane, oldest first; fewer where there are no more."""

    limit: int
    memories: list[Memory]

    def put(self, memory: Memory) -> None:
        place = bisect_left(self.memories, _place(memory), key=_place)
        is_there = self.memories[place : place + 1] and self.memories[place].id == memory.id
        self.memories[place : place + bool(is_there)] = [memory]
        del self.memories[: -self.limit]


class Recents:
    """One file's lanes that were asked for last, each as far as it was asked for."""

    def __init__(self, as_read: Callable[[Row, Memory], Memory]) -> None:
        self._as_read = as_read
        self._lock = Lock()
        self._kept: dict[Lane, _Window] = {}
        self._changed: dict[
            Lane, int
        ] = {}  # the version that each has changed in, if not before all of these
        self._first = self._version = 0
        self._told: list[tuple[Lane, Row, Memory]] = []  # in the transaction that is being written
        self._stirred: set[Lane] = set()

    @property
    def version(self) -> int:
        """To be asked for before a lane is read."""
        return self._version

    def watch(self, connection: Connection) -> None:
        """Have the connection that writes tell of every memory that changes or goes."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(TELL, 3, lambda *lane: self._stirred.add(Lane(*lane)))
        for event, told in EVENTS.items():
            name = f"{TELL}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.memories BEGIN {told} END")
        connection.info[WRITING] = self

    def tell(self, rows: Sequence[Row], memories: Sequence[Memory]) -> None:
        """Note memories that are put there, with what is written of each."""
        for row, memory in zip(rows, memories, strict=True):
            self._told.append((Lane(row[0], row[4], row[2]), row[1:], memory))

    def settle(self) -> None:
        """What was told is committed."""
        if not self._told and not self._stirred:
            return
        told, stirred = self._told, self._stirred
        self._told, self._stirred = [], set()
        with self._lock:
            self._version += 1
            for lane in stirred:
                self._drop(lane)
            for lane, row, memory in told:
                self._changed[lane] = self._version
                window = self._kept.get(lane)
                if window is None or lane in stirred or not (known := self._known(row, memory)):
                    self._kept.pop(lane, None)
                else:
                    window.put(known)
            if len(self._changed) > MOST_CHANGES:
                self._changed, self._first = {}, self._version

    def _known(self, row: Row, memory: Memory) -> Memory | None:
        """Give a memory as it comes back; None for one that is too large, or that cannot be read at all."""
        try:
            return self._as_read(row, memory) if is_small(row) else None
        except Exception:  # whoever reads it is told; it is committed, and what is beside it is all right
            return None

    def undo(self) -> None:
        """What was told is not so."""
        self._told.clear()
        self._stirred.clear()

    def doubt(self) -> None:
        """Of what was told some is not so: all of it is read anew."""
        self._stirred |= {lane for lane, *_ in self._told}
        self._told.clear()

    def clear(self) -> None:
        """Nobody knows what has changed."""
        with self._lock:
            self._version += 1
            self._first = self._version
            self._kept.clear()
            self._changed.clear()

    def get(self, lane: Lane, limit: int) -> list[Memory] | None:
        """Give the last memories of a lane, oldest first; None where they must be read."""
        with self._lock:
            window = self._kept.pop(lane, None)
            if window is None:
                return None
            self._kept[lane] = window  # the last one to go
            return window.memories[-limit:] if 1 <= limit <= window.limit else None

    def keep(self, lane: Lane, limit: int, memories: Sequence[Memory], version: int) -> None:
        """Keep what was read of a lane after that version, unless it has changed since."""
        with self._lock:
            if not 1 <= limit <= MOST_LIMIT or self._changed.get(lane, self._first) > version:
                return
            self._kept[lane] = _Window(limit, list(memories))
            while len(self._kept) > MOST_LANES:
                del self._kept[next(iter(self._kept))]

    def _drop(self, lane: Lane) -> None:
        self._changed[lane] = self._version
        self._kept.pop(lane, None)


def is_small(row: Row) -> bool:
    """Tell whether a memory, given as its columns, takes little room."""
    return len(row[5]) + len(row[11]) <= LARGEST


def told_by(connection: Connection) -> Recents | None:
    """Give the recents that a connection tells of what it writes, if any."""
    found: Any = connection.info.get(WRITING)
    return found if isinstance(found, Recents) else None


def _place(memory: Memory) -> tuple[datetime, bytes]:
    return memory.created_at, memory.id.bytes
