"""A cache of each room's latest memories, so that most turns need not read them from the file.

SQLite's writing connection reports every memory that it inserts, changes or deletes; the cache is updated
when that is committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from bot.domain.memory import Memory

MAX_BYTES = 16 * 2**20  # of all windows, as estimated by `_size_of` and WINDOW_BYTES
WINDOW_BYTES, MEMORY_BYTES = 400, 1_500  # of the objects, without the texts; a room has four windows, by kind
MAX_MEMORIES = 50  # longer windows are not cached
MAX_TEXT_LENGTH = 2_000  # of texts and metadata; a window with a larger memory is not cached
MAX_TRACKED_CHANGES = 10_000
INFO_KEY = "greenroom-recents-told"
SQL_FUNCTION = "greenroom_memory"
KEY_COLUMNS = "{row}.agent_id, {row}.room_id, {row}.kind"
REPORT_OLD, REPORT_NEW = (f"SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row=row)});" for row in ("old", "new"))
TRIGGERS = {"DELETE": REPORT_OLD, "UPDATE": REPORT_OLD + REPORT_NEW}


class WindowKey(NamedTuple):
    """Names the memories of one kind in a room."""

    agent: int
    room: bytes
    kind: str


@dataclass(slots=True)
class _Window:
    """The last `limit` memories of a key, oldest first; fewer if there are no more."""

    limit: int
    memories: list[Memory]
    sizes: list[int]

    @property
    def size(self) -> int:
        return WINDOW_BYTES + sum(self.sizes)

    def append(self, memory: Memory) -> None:
        self.memories.append(memory)
        self.sizes.append(_size_of(memory))
        if len(self.memories) > self.limit:
            del self.memories[0], self.sizes[0]


class RecentMemoryCache:
    """The windows of one file that were read last."""

    def __init__(self, as_stored: Callable[[Memory], Memory]) -> None:
        self._as_stored = as_stored
        self._lock = Lock()
        self._windows: dict[WindowKey, _Window] = {}  # the one that was read last is the last
        self._size = 0  # of all windows, in bytes
        self._changed_in: dict[WindowKey, int] = {}  # the version of each key's last change; `_first_version` if absent
        self._first_version = self._version = 0
        self._pending: list[tuple[WindowKey, Memory]] = []  # in the open transaction
        self._invalidated: set[WindowKey] = set()

    @property
    def version(self) -> int:
        """The number of changes so far; to be read before a window is read from the database."""
        return self._version

    def attach(self, connection: Connection) -> None:
        """Install triggers by which the writing connection reports changed and deleted memories."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(SQL_FUNCTION, 3, lambda *columns: self._invalidated.add(WindowKey(*columns)))
        for event, action in TRIGGERS.items():
            name = f"{SQL_FUNCTION}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.memories BEGIN {action} END")
        connection.info[INFO_KEY] = self

    def notify(self, agent: int, memories: Sequence[Memory]) -> None:
        """Record memories that are inserted."""
        self._pending += ((WindowKey(agent, memory.room_id.bytes, str(memory.kind)), memory) for memory in memories)

    def on_commit(self) -> None:
        """Apply the recorded changes."""
        if not self._pending and not self._invalidated:
            return
        pending, invalidated = self._pending, self._invalidated
        self._pending, self._invalidated = [], set()
        last_ids = {key: memory.id for key, memory in pending}
        with self._lock:
            self._version += 1
            for key in invalidated:
                self._drop(key)
            for key, memory in pending:
                self._changed_in[key] = self._version
                window = self._windows.get(key)
                if window is not None and window.memories and window.memories[-1].id == last_ids[key]:
                    continue  # it was read after the commit
                if window is None or key in invalidated or not (stored := self._to_stored(memory)):
                    self._remove(key)
                else:
                    self._size -= window.size
                    window.append(stored)
                    self._size += window.size
                    if len(window.memories) > MAX_MEMORIES:
                        self._remove(key)
            self._limit_size()
            if len(self._changed_in) > MAX_TRACKED_CHANGES:
                self._changed_in, self._first_version = {}, self._version

    def _to_stored(self, memory: Memory) -> Memory | None:
        """Return a memory as it would be read; None if it is too large or unreadable."""
        try:
            return self._as_stored(memory) if is_small(memory) else None
        except Exception:  # reading it reports the error; the transaction is committed already
            return None

    def on_rollback(self) -> None:
        """Discard the recorded changes."""
        self._pending.clear()
        self._invalidated.clear()

    def invalidate(self) -> None:
        """Drop the windows of all recorded memories: some of them were rolled back."""
        self._invalidated |= {key for key, _ in self._pending}
        self._pending.clear()

    def clear(self) -> None:
        """Drop everything, because another program has changed the file."""
        with self._lock:
            self._version += 1
            self._first_version = self._version
            self._windows.clear()
            self._size = 0
            self._changed_in.clear()

    def get(self, key: WindowKey, limit: int) -> list[Memory] | None:
        """Return the last memories of a key, oldest first; None if they must be read."""
        with self._lock:
            window = self._windows.pop(key, None)
            if window is None:
                return None
            self._windows[key] = window  # now the last to be dropped
            return window.memories[-limit:] if 1 <= limit <= window.limit else None

    def find_replies(self, key: WindowKey, turn_id: UUID) -> list[Memory]:
        """Return the messages of a turn, all of them if the one that it answers is in the window too; else nothing."""
        with self._lock:
            window = self._windows.get(key)
            memories = [] if window is None else list(window.memories)
        replies = [memory for memory in memories if memory.turn_id == turn_id]
        is_whole = any(memory.id == replies[0].content.in_reply_to for memory in memories) if replies else False
        return replies if is_whole else []

    def store(self, key: WindowKey, limit: int, memories: Sequence[Memory], version: int) -> None:
        """Store what was read of a key at a version, unless it has changed since or one of the memories is large."""
        with self._lock:
            is_short = limit >= 1 and len(memories) <= MAX_MEMORIES
            if (
                not is_short
                or not all(map(is_small, memories))
                or self._changed_in.get(key, self._first_version) > version
            ):
                return
            self._remove(key)
            window = self._windows[key] = _Window(limit, list(memories), list(map(_size_of, memories)))
            self._size += window.size
            self._limit_size()

    def _drop(self, key: WindowKey) -> None:
        self._changed_in[key] = self._version
        self._remove(key)

    def _limit_size(self) -> None:
        while self._size > MAX_BYTES:
            self._remove(next(iter(self._windows)))

    def _remove(self, key: WindowKey) -> None:
        window = self._windows.pop(key, None)
        if window is not None:
            self._size -= window.size


def is_small(memory: Memory) -> bool:
    """Return whether a memory is small enough to be cached."""
    return _size_of(memory) <= MEMORY_BYTES + MAX_TEXT_LENGTH


def _size_of(memory: Memory) -> int:
    content = memory.content
    size = MEMORY_BYTES + len(content.text)
    size += sum(len(str(metadata)) for metadata in (memory.metadata, content.metadata) if metadata)
    return size + sum(
        len(item.text) + len(item.description) + len(item.data or b"") for item in content.all_attachments
    )


def recent_cache_of(connection: Connection) -> RecentMemoryCache | None:
    """Return the cache that a connection reports its writes to, if any."""
    cache: Any = connection.info.get(INFO_KEY)
    return cache if isinstance(cache, RecentMemoryCache) else None
