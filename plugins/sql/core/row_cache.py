"""What is known to be in the database already, so that it need be neither asked for nor written again.

Only SQLite's writing connection keeps such knowledge: no other process of ours changes the file. It lasts
until a transaction is undone, or another program (somebody with a database browser) has written.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import Attendance, Entity, Room, World

T = TypeVar("T")
MOST = 10_000
PLACE = "greenroom-known"


class Rows(Generic[T]):
    """Some rows of one table as they are kept; all of them are forgotten when they become too many."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, T] = {}

    def get(self, key: Hashable) -> T | None:
        """Find a row."""
        return self._kept.get(key)

    def put(self, key: Hashable, kept: T) -> None:
        """Note what a row is now."""
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[key] = kept

    def drop(self, key: Hashable) -> None:
        """Know a row no longer."""
        self._kept.pop(key, None)


@dataclass(slots=True)
class Known:
    """Worlds, rooms, people and attendance by agent and id; the latest room, and who spoke last in one.

    `version` is the file's, as others have made it: it is another one once anybody else has committed.
    """

    version: int = 0
    worlds: Rows[World] = field(default_factory=Rows)
    rooms: Rows[Room] = field(default_factory=Rows)
    entities: Rows[Entity] = field(default_factory=Rows)
    attendance: Rows[Attendance] = field(default_factory=Rows)
    latest_rooms: Rows[UUID] = field(default_factory=Rows)
    latest_speakers: Rows[UUID] = field(default_factory=Rows)


def keep_knowledge(connection: Connection) -> None:
    """Begin to know what this connection writes."""
    connection.info[PLACE] = Known()


def known_to(connection: Connection) -> Known:
    """Give what a connection knows: nothing, where it is not the only one that writes."""
    found: Any = connection.info.get(PLACE)
    return found if isinstance(found, Known) else Known()


def forget_unless(connection: Connection, version: int) -> bool:
    """Forget everything where the file's version is not the one that the knowledge is of; tells whether."""
    is_strange = PLACE in connection.info and known_to(connection).version != version
    if is_strange:
        connection.info[PLACE] = Known(version)
    return is_strange


def forget(connection: Connection) -> None:
    """Forget everything: a transaction was undone."""
    if PLACE in connection.info:
        connection.info[PLACE] = Known(known_to(connection).version)
