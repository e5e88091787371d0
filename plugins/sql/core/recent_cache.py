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

MAX_WINDOWS = 256
MAX_LIMIT = 50  # of those that were asked for more, nothing is kept
MAX_TEXT_LENGTH = (
    2_000  # characters of content and metadata as they are written; a lane with more in one is not kept
)
MAX_TRACKED_CHANGES = 10_000
INFO_KEY = "greenroom-recents-told"
SQL_FUNCTION = "greenroom_memory"
KEY_COLUMNS = "{row}.agent_id, {row}.room_id, {row}.kind"
TRIGGERS = {
    "DELETE": f"SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row='old')});",
    "UPDATE": f"SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row='old')}); SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row='new')});",
}


class WindowKey(NamedTuple):
    """The memories of one kind in a room."""

    agent: int
    room: bytes
    kind: str


@dataclass(slots=True)
class _Window:
    """The last `limit` memories of a lane, oldest first; fewer where there are no more."""

    limit: int
    memories: list[Memory]

    def insert(self, memory: Memory) -> None:
        index = bisect_left(self.memories, _sort_key(memory), key=_sort_key)
        is_present = self.memories[index : index + 1] and self.memories[index].id == memory.id
        self.memories[index : index + bool(is_present)] = [memory]
        del self.memories[: -self.limit]


class RecentMemoryCache:
    """One file's lanes that were asked for last, each as far as it was asked for."""

    def __init__(self, as_stored: Callable[[Row, Memory], Memory]) -> None:
        self._as_stored = as_stored
        self._lock = Lock()
        self._windows: dict[WindowKey, _Window] = {}
        self._changed_in: dict[
            WindowKey, int
        ] = {}  # the version that each has changed in, if not before all of these
        self._first_version = self._version = 0
        self._pending: list[tuple[WindowKey, Row, Memory]] = []  # in the transaction that is being written
        self._invalidated: set[WindowKey] = set()

    @property
    def version(self) -> int:
        """To be asked for before a lane is read."""
        return self._version

    def attach(self, connection: Connection) -> None:
        """Have the connection that writes tell of every memory that changes or goes."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(SQL_FUNCTION, 3, lambda *columns: self._invalidated.add(WindowKey(*columns)))
        for event, action in TRIGGERS.items():
            name = f"{SQL_FUNCTION}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.memories BEGIN {action} END")
        connection.info[INFO_KEY] = self

    def notify(self, rows: Sequence[Row], memories: Sequence[Memory]) -> None:
        """Note memories that are put there, with what is written of each."""
        for row, memory in zip(rows, memories, strict=True):
            self._pending.append((WindowKey(row[0], row[4], row[2]), row[1:], memory))

    def on_commit(self) -> None:
        """What was told is committed."""
        if not self._pending and not self._invalidated:
            return
        pending, invalidated = self._pending, self._invalidated
        self._pending, self._invalidated = [], set()
        with self._lock:
            self._version += 1
            for key in invalidated:
                self._drop(key)
            for key, row, memory in pending:
                self._changed_in[key] = self._version
                window = self._windows.get(key)
                if window is None or key in invalidated or not (stored := self._to_stored(row, memory)):
                    self._windows.pop(key, None)
                else:
                    window.insert(stored)
            if len(self._changed_in) > MAX_TRACKED_CHANGES:
                self._changed_in, self._first_version = {}, self._version

    def _to_stored(self, row: Row, memory: Memory) -> Memory | None:
        """Give a memory as it comes back; None for one that is too large, or that cannot be read at all."""
        try:
            return self._as_stored(row, memory) if is_small(row) else None
        except Exception:  # whoever reads it is told; it is committed, and what is beside it is all right
            return None

    def on_rollback(self) -> None:
        """What was told is not so."""
        self._pending.clear()
        self._invalidated.clear()

    def invalidate(self) -> None:
        """Of what was told some is not so: all of it is read anew."""
        self._invalidated |= {key for key, *_ in self._pending}
        self._pending.clear()

    def clear(self) -> None:
        """Nobody knows what has changed."""
        with self._lock:
            self._version += 1
            self._first_version = self._version
            self._windows.clear()
            self._changed_in.clear()

    def get(self, key: WindowKey, limit: int) -> list[Memory] | None:
        """Give the last memories of a lane, oldest first; None where they must be read."""
        with self._lock:
            window = self._windows.pop(key, None)
            if window is None:
                return None
            self._windows[key] = window  # the last one to go
            return window.memories[-limit:] if 1 <= limit <= window.limit else None

    def store(self, key: WindowKey, limit: int, memories: Sequence[Memory], version: int) -> None:
        """Keep what was read of a lane after that version, unless it has changed since."""
        with self._lock:
            if not 1 <= limit <= MAX_LIMIT or self._changed_in.get(key, self._first_version) > version:
                return
            self._windows[key] = _Window(limit, list(memories))
            while len(self._windows) > MAX_WINDOWS:
                del self._windows[next(iter(self._windows))]

    def _drop(self, key: WindowKey) -> None:
        self._changed_in[key] = self._version
        self._windows.pop(key, None)


def is_small(row: Row) -> bool:
    """Tell whether a memory, given as its columns, takes little room."""
    return len(row[5]) + len(row[11]) <= MAX_TEXT_LENGTH


def recent_cache_of(connection: Connection) -> RecentMemoryCache | None:
    """Give the recents that a connection tells of what it writes, if any."""
    cache: Any = connection.info.get(INFO_KEY)
    return cache if isinstance(cache, RecentMemoryCache) else None


def _sort_key(memory: Memory) -> tuple[datetime, bytes]:
    return memory.created_at, memory.id.bytes
