"""A cache of people and of who takes part in a room, so that most turns need not read them from the file.

Triggers of SQLite's writing connection report every row of the two tables that changes; what they name is dropped
when that is committed. That a person has spoken, as in nearly every message, moves them to the front instead.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from bot import Entity

MAX_PEOPLE = 10_000
MAX_ROOMS = 10_000
MAX_PARTICIPANTS = 50  # longer lists are not cached
MAX_NAMES_LENGTH = 2_000  # of stored names and metadata; a person with more is not cached
MAX_TRACKED_CHANGES = 20_000
INFO_KEY = "greenroom-people"
SQL_FUNCTION = "greenroom_person"
TABLES = {"entities": "id", "participants": "room_id"}
EVENTS = {"INSERT": ("new",), "UPDATE": ("old", "new"), "DELETE": ("old",)}
Key = tuple[str, int, bytes]  # table, agent, and the id of the person or the room


@dataclass(frozen=True, slots=True)
class _Participants:
    """The `limit` most active people of a room, the latest first; fewer if there are no more."""

    limit: int
    ids: tuple[UUID, ...]

    def with_latest(self, entity_id: UUID) -> "_Participants":
        others = (other for other in self.ids if other != entity_id)
        return _Participants(self.limit, (entity_id, *others)[: self.limit])


class PeopleCache:
    """The people and rooms of one file that were read last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._people: dict[Key, Entity] = {}
        self._rooms: dict[Key, _Participants] = {}
        self._changed_in: dict[Key, int] = {}  # the version of each key's last change; `_first_version` if absent
        self._first_version = self._version = 0
        self._changed: set[Key] = set()  # in the open transaction
        self._speakers: list[tuple[Key, UUID]] = []  # likewise
        self._is_noting_speakers = False

    @property
    def version(self) -> int:
        """The number of changes so far; to be read before anything is read from the database."""
        return self._version

    def attach(self, connection: Connection) -> None:
        """Install triggers by which the writing connection reports changed rows."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(SQL_FUNCTION, 3, self._on_change)
        for table, column in TABLES.items():
            for event, rows in EVENTS.items():
                name = f"{SQL_FUNCTION}_{table}_{event.lower()}"
                action = "".join(f"SELECT {SQL_FUNCTION}('{table}', {row}.agent_id, {row}.{column});" for row in rows)
                driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.{table} BEGIN {action} END")
        connection.info[INFO_KEY] = self

    @contextmanager
    def note_speakers(self, agent: int, speakers: Collection[tuple[UUID, UUID]]) -> Iterator[None]:
        """Record pairs of a room and the person who becomes its latest speaker by what the block writes."""
        self._is_noting_speakers = True
        try:
            yield
        finally:
            self._is_noting_speakers = False
        self._speakers += ((_room_key(agent, room_id), entity_id) for room_id, entity_id in speakers)

    def on_commit(self) -> None:
        """Apply the recorded changes."""
        if not self._changed and not self._speakers:
            return
        changed, speakers = self._changed, self._speakers
        self._changed, self._speakers = set(), []
        with self._lock:
            self._version += 1
            for key in changed:
                self._changed_in[key] = self._version
                self._people.pop(key, None)
                self._rooms.pop(key, None)
            for key, entity_id in speakers:
                self._changed_in[key] = self._version
                if key in self._rooms:
                    self._rooms[key] = self._rooms[key].with_latest(entity_id)
            if len(self._changed_in) > MAX_TRACKED_CHANGES:
                self._changed_in, self._first_version = {}, self._version

    def on_rollback(self) -> None:
        """Discard the recorded changes."""
        self._changed.clear()
        self._speakers.clear()

    def invalidate(self) -> None:
        """Drop all that is recorded: some of it was rolled back."""
        self._changed |= {key for key, _ in self._speakers}
        self._speakers.clear()

    def clear(self) -> None:
        """Drop everything, because another program has changed the file."""
        with self._lock:
            self._version += 1
            self._first_version = self._version
            self._people.clear()
            self._rooms.clear()
            self._changed_in.clear()

    def get_people(self, agent: int, ids: Collection[UUID]) -> dict[UUID, Entity] | None:
        """Return people by id; None if one of them must be read."""
        with self._lock:
            return self._find_people(agent, ids)

    def store_people(self, agent: int, people: Collection[Entity], version: int) -> None:
        """Store people that were read at a version, unless they have changed since."""
        with self._lock:
            for entity in people:
                key = _person_key(agent, entity.id)
                if self._is_current(key, version) and _is_small(entity):
                    _put(self._people, key, entity, MAX_PEOPLE)

    def get_participants(self, agent: int, room_id: UUID, limit: int) -> list[Entity] | None:
        """Return the most active people of a room, the latest first; None if they must be read."""
        with self._lock:
            found = self._rooms.get(_room_key(agent, room_id))
            if found is None or not 1 <= limit <= found.limit:
                return None
            ids = found.ids[:limit]
            people = self._find_people(agent, ids)
            return None if people is None else [people[entity_id] for entity_id in ids]

    def store_participants(self, agent: int, room_id: UUID, limit: int, people: Sequence[Entity], version: int) -> None:
        """Store the most active people of a room as they were read at a version, unless they have changed since."""
        key = _room_key(agent, room_id)
        self.store_people(agent, people, version)
        with self._lock:
            if 1 <= limit <= MAX_PARTICIPANTS and self._is_current(key, version):
                _put(self._rooms, key, _Participants(limit, tuple(entity.id for entity in people)), MAX_ROOMS)

    def _find_people(self, agent: int, ids: Collection[UUID]) -> dict[UUID, Entity] | None:
        people = {entity_id: self._people.get(_person_key(agent, entity_id)) for entity_id in ids}
        found = {entity_id: entity for entity_id, entity in people.items() if entity is not None}
        return found if len(found) == len(people) else None

    def _is_current(self, key: Key, version: int) -> bool:
        return self._changed_in.get(key, self._first_version) <= version

    def _on_change(self, table: str, agent: int, row_id: bytes) -> None:
        if not (self._is_noting_speakers and table == "participants"):
            self._changed.add((table, agent, row_id))


def people_cache_of(connection: Connection) -> PeopleCache | None:
    """Return the cache that a connection reports its writes to, if any."""
    cache: Any = connection.info.get(INFO_KEY)
    return cache if isinstance(cache, PeopleCache) else None


def _person_key(agent: int, entity_id: UUID) -> Key:
    return "entities", agent, entity_id.bytes


def _room_key(agent: int, room_id: UUID) -> Key:
    return "participants", agent, room_id.bytes


def _put(rows: dict[Key, Any], key: Key, row: object, max_rows: int) -> None:
    rows.pop(key, None)
    rows[key] = row
    if len(rows) > max_rows:
        del rows[next(iter(rows))]


def _is_small(entity: Entity) -> bool:
    return len(str(entity.names)) + len(str(entity.metadata)) <= MAX_NAMES_LENGTH
