"""A cache of rows that are known to be stored, so that they are neither read nor written again.

Only SQLite's writing connection has one, because no other process of Greenroom changes the file. It is valid
until a transaction is rolled back or another program (such as a database browser) has written.
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
    """Some rows of one table; all are dropped when there are too many."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, T] = {}

    def get(self, key: Hashable) -> T | None:
        """Return a cached row."""
        return self._rows.get(key)

    def put(self, key: Hashable, row: T) -> None:
        """Store the current state of a row."""
        if len(self._rows) >= MAX_ROWS:
            self._rows.clear()
        self._rows[key] = row

    def drop(self, key: Hashable) -> None:
        """Remove a row."""
        self._rows.pop(key, None)


@dataclass(slots=True)
class RowCache:
    """Worlds, rooms, entities and participant states by agent and id; the latest room and speakers.

    `version` is SQLite's data version, which changes when another connection has committed.
    """

    version: int = 0
    worlds: CachedRows[World] = field(default_factory=CachedRows)
    rooms: CachedRows[Room] = field(default_factory=CachedRows)
    entities: CachedRows[Entity] = field(default_factory=CachedRows)
    participant_states: CachedRows[ParticipantState] = field(default_factory=CachedRows)
    latest_rooms: CachedRows[UUID] = field(default_factory=CachedRows)
    latest_speakers: CachedRows[UUID] = field(default_factory=CachedRows)


def enable_row_cache(connection: Connection) -> None:
    """Cache the rows that this connection writes."""
    connection.info[INFO_KEY] = RowCache()


def row_cache_of(connection: Connection) -> RowCache:
    """Return a connection's cache; an empty one if the connection has none."""
    cache: Any = connection.info.get(INFO_KEY)
    return cache if isinstance(cache, RowCache) else RowCache()


def invalidate_unless(connection: Connection, version: int) -> bool:
    """Drop all rows if the file's version differs from the cache's; return whether it did."""
    is_outdated = INFO_KEY in connection.info and row_cache_of(connection).version != version
    if is_outdated:
        connection.info[INFO_KEY] = RowCache(version)
    return is_outdated


def invalidate(connection: Connection) -> None:
    """Drop all rows, after a rollback."""
    if INFO_KEY in connection.info:
        connection.info[INFO_KEY] = RowCache(row_cache_of(connection).version)
