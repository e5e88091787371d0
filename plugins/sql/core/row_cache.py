"""What is known to be in the database already, so that it need be neither asked for nor written again.

Only SQLite's writing connection keeps such knowledge: no other process of ours changes the file. It lasts
until a transaction is undone, or another program (somebody with a database browser) has written.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import Entity, ParticipantState, Room, World

T = TypeVar("T")
MAX_ROWS = 10_000
INFO_KEY = "greenroom-known"


class CachedRows(Generic[T]):
    """Some rows of one table as they are kept; all of them are forgotten when they become too many."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, T] = {}

    def get(self, key: Hashable) -> T | None:
        """Find a row."""
        return self._rows.get(key)

    def put(self, key: Hashable, row: T) -> None:
        """Note what a row is now."""
        if len(self._rows) >= MAX_ROWS:
            self._rows.clear()
        self._rows[key] = row

    def drop(self, key: Hashable) -> None:
        """Know a row no longer."""
        self._rows.pop(key, None)


@dataclass(slots=True)
class RowCache:
    """Worlds, rooms, people and attendance by agent and id; the latest room, and who spoke last in one.

    `version` is the file's, as others have made it: it is another one once anybody else has committed.
    """

    version: int = 0
    worlds: CachedRows[World] = field(default_factory=CachedRows)
    rooms: CachedRows[Room] = field(default_factory=CachedRows)
    entities: CachedRows[Entity] = field(default_factory=CachedRows)
    participant_states: CachedRows[ParticipantState] = field(default_factory=CachedRows)
    latest_rooms: CachedRows[UUID] = field(default_factory=CachedRows)
    latest_speakers: CachedRows[UUID] = field(default_factory=CachedRows)


def enable_row_cache(connection: Connection) -> None:
    """Begin to know what this connection writes."""
    connection.info[INFO_KEY] = RowCache()


def row_cache_of(connection: Connection) -> RowCache:
    """Give what a connection knows: nothing, where it is not the only one that writes."""
    cache: Any = connection.info.get(INFO_KEY)
    return cache if isinstance(cache, RowCache) else RowCache()


def invalidate_unless(connection: Connection, version: int) -> bool:
    """Forget everything where the file's version is not the one that the knowledge is of; tells whether."""
    is_outdated = INFO_KEY in connection.info and row_cache_of(connection).version != version
    if is_outdated:
        connection.info[INFO_KEY] = RowCache(version)
    return is_outdated


def invalidate(connection: Connection) -> None:
    """Forget everything: a transaction was undone."""
    if INFO_KEY in connection.info:
        connection.info[INFO_KEY] = RowCache(row_cache_of(connection).version)
