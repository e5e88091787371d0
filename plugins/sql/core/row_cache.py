"""A cache of rows that are known to be stored, so that they are neither read nor written again.

Only SQLite's writing connection has one, because no other process of Greenroom changes the file. It is valid
until a transaction is rolled back or another program (such as a database browser) has written.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import Entity, ParticipantState, Room, World

T = TypeVar("T")
MAX_ROWS = 10_000  # of one table
INFO_KEY = "greenroom-known"


@dataclass(slots=True)
class RowCache:
    """Worlds, rooms, entities and participant states by agent and id; the latest room and speakers.

    `version` is SQLite's data version, which changes when another connection has committed.
    """

    version: int = 0
    worlds: dict[Hashable, World] = field(default_factory=dict)
    rooms: dict[Hashable, Room] = field(default_factory=dict)
    entities: dict[Hashable, Entity] = field(default_factory=dict)
    participant_states: dict[Hashable, ParticipantState] = field(default_factory=dict)
    latest_rooms: dict[Hashable, UUID] = field(default_factory=dict)
    latest_speakers: dict[Hashable, UUID] = field(default_factory=dict)


def cache_row(rows: dict[Hashable, T], key: Hashable, row: T) -> None:
    """Store the current state of a row; drop all others if there are too many."""
    if len(rows) >= MAX_ROWS:
        rows.clear()
    rows[key] = row


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
