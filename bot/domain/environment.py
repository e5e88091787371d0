"""World, Room, ChannelType, Role, Entity, Component, Relationship, ParticipantState."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID


class ChannelType(StrEnum):
    """What kind of place a room is; spelled as in the sources, read in any case."""

    DM = "DM"
    GROUP = "GROUP"
    THREAD = "THREAD"
    FORUM = "FORUM"
    FEED = "FEED"
    VOICE_DM = "VOICE_DM"
    VOICE_GROUP = "VOICE_GROUP"
    SELF = "SELF"
    API = "API"
    BROADCAST = "BROADCAST"
    WORLD = "WORLD"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        normalized = str(value).strip().upper()
        return next((member for member in cls if member.value == normalized), None)


class Role(StrEnum):
    """What a person may do in a world."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    MEMBER = "MEMBER"
    NONE = "NONE"

    @property
    def rank(self) -> int:
        """Order the roles: 3 for OWNER down to 0 for NONE."""
        return _RANKS[self]

    def is_at_least(self, required: "Role") -> bool:
        """Tell whether this role is at least `needed`."""
        return _RANKS[self] >= _RANKS[required]


_RANKS = {Role.OWNER: 3, Role.ADMIN: 2, Role.MEMBER: 1, Role.NONE: 0}


@dataclass(frozen=True, slots=True)
class World:
    """A server, a group, a timeline: what rooms belong to.

    `roles` holds what the platform says of people; whoever is not in it is a MEMBER. `grants` holds
    the roles given here, by those who may, and `settings` what they have set: no arrival changes those.
    """

    id: UUID
    platform: str
    external_id: str
    name: str = ""
    roles: Mapping[UUID, Role] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    grants: Mapping[UUID, Role] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def role_of(self, entity_id: UUID) -> Role:
        """Tell which role a person has here.

        A grant counts more than the platform's word, but whoever owns the place there owns it here too.
        """
        platform_role = self.roles.get(entity_id, Role.MEMBER)
        return platform_role if platform_role is Role.OWNER else self.grants.get(entity_id, platform_role)

    def merge(self, stored: "World") -> Self:
        """Add what is said of people, and what was decided here, to what is known of another world."""
        return replace(
            self,
            roles={**stored.roles, **self.roles},
            grants={**stored.grants, **self.grants},
            settings={**stored.settings, **self.settings},
        )

    @property
    def owners(self) -> frozenset[UUID]:
        """Everybody who is an OWNER here."""
        entity_ids = self.roles.keys() | self.grants.keys()
        return frozenset(entity_id for entity_id in entity_ids if self.role_of(entity_id) is Role.OWNER)


@dataclass(frozen=True, slots=True)
class Room:
    """One place in which messages follow one another.

    `account` is the platform account through which the agent is present, and `external_id` what the
    platform calls the room: together with `platform` they say where a reply goes.
    """

    id: UUID
    world_id: UUID
    type: ChannelType
    platform: str
    external_id: str
    account: str = ""
    name: str = ""
    parent_id: UUID | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entity:
    """A person, a bot, or the agent itself, as one platform knows it.

    `names[0]` is the present display name; the others are former names and handles.
    """

    id: UUID
    platform: str
    external_id: str
    names: tuple[str, ...] = ()
    is_bot: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The present display name, as the platform gave it."""
        return self.names[0] if self.names else ""


@dataclass(frozen=True, slots=True)
class Component:
    """One typed piece of what is known of an entity, and who said so."""

    id: UUID
    entity_id: UUID
    type: str
    data: Mapping[str, Any]
    room_id: UUID | None = None
    world_id: UUID | None = None
    source_entity_id: UUID | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Relationship:
    """How one entity stands to another, in that direction."""

    source_id: UUID
    target_id: UUID
    tags: tuple[str, ...] = ()
    interactions: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)


class ParticipantState(StrEnum):
    """What the agent has decided about a room."""

    DEFAULT = "DEFAULT"
    FOLLOWED = "FOLLOWED"
    MUTED = "MUTED"
