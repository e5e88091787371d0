"""Store protocols of worlds, rooms and entities; see `bot.store.protocols`."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import Protocol
from uuid import UUID

from bot.domain.environment import (
    Component,
    Entity,
    MarkedPerson,
    MarkOrigin,
    ParticipantState,
    PersonActivity,
    PersonMark,
    Relationship,
    Role,
    Room,
    TakeOver,
    World,
)


class WorldStore(Protocol):
    """Worlds, rooms, and what the agent has decided about them."""

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        """Insert or update a world and some of its rooms, which become the most recently active.

        A blank name does not replace a known one; roles, grants and settings are added to the known ones, the
        rest is replaced.
        """

    async def world(self, world_id: UUID) -> World | None:
        """Return a world."""

    async def room(self, room_id: UUID) -> Room | None:
        """Return a room."""

    async def worlds_by_id(self, ids: Collection[UUID]) -> dict[UUID, World]:
        """Return worlds by id."""

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        """Return rooms by id."""

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        """Return the rooms of a world, or all, the most recently active first."""

    async def participant_state(self, room_id: UUID) -> ParticipantState:
        """Return what the agent has decided about a room."""

    async def set_participant_state(self, room_id: UUID, state: ParticipantState) -> None:
        """Follow a room, mute it, or neither."""

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        """Grant a role in a world, which overrides the platform's role.

        Raises LookupError if the world is unknown.
        """

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        """Set a setting of a world; a blank value removes it. Raises LookupError if the world is unknown."""

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        """Return the rooms in which an entity takes part, the most recently active first."""

    async def worlds_owned_by(self, entity_id: UUID) -> list[World]:
        """Return the worlds in which an entity has the role OWNER, by name; it may have written in none of them."""


class EntityStore(Protocol):
    """Entities, their components, and their relationships."""

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        """Insert or update entities; with a room, they take part in it and are active there now.

        The given names come first, then the known ones, twenty in all; the rest is replaced.
        """

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        """Return entities by id, those who are not read without names."""

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        """Return the entities with exactly this current or former name, handle or platform id."""

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        """Return the participants of a room, the most recently active first, without those who are not read."""

    def check_components(self, check: Callable[[Component], None]) -> None:
        """Call `check` with every component before it is saved; where it raises, nothing is stored."""

    async def save_component(self, component: Component) -> None:
        """Insert or replace a component; unique by (entity, type, world or None, source or None).

        Raises ComponentDataError for data that do not fit a type that a plugin declares.
        """

    async def components(
        self, entity_id: UUID, kind: str | None = None, *, with_hidden: bool = False
    ) -> list[Component]:
        """Return the components of an entity; what people who are not read have stated only `with_hidden`."""

    async def save_relationship(self, relationship: Relationship) -> None:
        """Insert or replace the relationship from one entity to another."""

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        """Return the relationships of an entity, the most frequent contact first."""

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        """Add to the activity of these entities; each is named once."""

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        """Return the activity of an entity; None for one that never wrote."""

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        """Return the entities that wrote, the most recently active first, then by id.

        With `before`, the time of the last message and the id of an entity, those that come after it.
        """


class MarkStore(Protocol):
    """Marks of platform accounts. All of them are in memory, as of the last change here or `refresh`."""

    @property
    def not_read(self) -> Set[UUID]:
        """The people marked NOT_READ; the set changes with the marks."""

    @property
    def minors(self) -> Set[UUID]:
        """The people marked MINOR."""

    def find(self, entity_id: UUID | None = None, *, mark: PersonMark | None = None) -> list[MarkedPerson]:
        """Return the marks of a person or of all people, of one kind or of all, the latest first."""

    async def refresh(self) -> None:
        """Read the marks again, which another process may have changed."""

    async def save(self, marked: MarkedPerson) -> None:
        """Store a mark; it holds at once, and replaces one of the same person, kind, origin and world.

        What turns have noted of the words of a person who is not read is deleted.
        """

    async def remove(self, entity_id: UUID, mark: PersonMark, origin: MarkOrigin, world_id: UUID | None = None) -> bool:
        """Delete a mark; return False if there was none."""


class TakeOverStore(Protocol):
    """Rooms and people whom a person answers in place of the agent; in memory, as of the last change or `refresh`.

    Both mappings change with the take-overs; they have one for each room and each person there, None for the room.
    """

    @property
    def current(self) -> Mapping[tuple[UUID, UUID | None], TakeOver]:
        """The take-overs that hold."""

    @property
    def ended(self) -> Mapping[tuple[UUID, UUID | None], TakeOver]:
        """The last take-overs of rooms and people that have ended."""

    async def refresh(self) -> None:
        """Read the take-overs again, which another process may have changed."""

    async def begin(self, take_over: TakeOver) -> TakeOver:
        """Store a take-over unless one of the same room and person holds; return the one that holds."""

    async def end(self, room_id: UUID, person_id: UUID | None, ended_at: datetime) -> TakeOver | None:
        """End a take-over and return it; None if none holds."""
