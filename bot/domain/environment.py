"""Worlds, rooms and entities, and what connects them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID


class ChannelType(StrEnum):
    """The kind of a room; spelled as in elizaOS, parsed in any case.

    `is_private_chat`: the platform shows the room to one person only, unlike API rooms, which programs read.
    `is_direct`: the agent has one conversation partner, a person or a client of the API.
    """

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

    is_direct: bool
    is_private_chat: bool

    def __init__(self, value: str) -> None:
        self.is_private_chat = value in {"DM", "VOICE_DM", "SELF"}
        self.is_direct = self.is_private_chat or value == "API"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        normalized = str(value).strip().upper()
        return next((member for member in cls if member.value == normalized), None)


class Role(StrEnum):
    """What a person may do in a world; `rank` orders the roles, 3 for OWNER down to 0 for NONE."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    MEMBER = "MEMBER"
    NONE = "NONE"

    rank: int

    def __init__(self, value: str) -> None:
        self.rank = ("NONE", "MEMBER", "ADMIN", "OWNER").index(value)

    def is_at_least(self, required: "Role") -> bool:
        """Return whether this role is `required` or higher."""
        return self.rank >= required.rank


@dataclass(frozen=True, slots=True)
class World:
    """A server, a group or a timeline: the container of rooms.

    `roles` holds the platform's roles of people; everyone else is a MEMBER. `grants` holds the roles that
    admins gave through the bot, and `settings` what they set: inbound messages do not change those.
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
        """Return the role of a person in this world.

        A grant overrides the platform's role, except that a platform's OWNER always stays OWNER.
        """
        platform_role = self.roles.get(entity_id, Role.MEMBER)
        return platform_role if platform_role is Role.OWNER else self.grants.get(entity_id, platform_role)

    def merge(self, stored: "World") -> Self:
        """Return this world with the name, roles, grants and settings of `stored` added; its own values win."""
        if (
            (self.name or not stored.name)
            and stored.roles.keys() <= self.roles.keys()
            and stored.grants.keys() <= self.grants.keys()
            and stored.settings.keys() <= self.settings.keys()
        ):
            return self
        return replace(
            self,
            name=self.name or stored.name,
            roles={**stored.roles, **self.roles},
            grants={**stored.grants, **self.grants},
            settings={**stored.settings, **self.settings},
        )

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> Self:
        """Return this world with the settings of a room under the room's new id."""
        suffix, new_suffix = f":{room_id}", f":{new_room_id}"
        settings = {
            name.removesuffix(suffix) + new_suffix if name.endswith(suffix) else name: value
            for name, value in self.settings.items()
        }
        return replace(self, settings=settings)

    @property
    def owners(self) -> frozenset[UUID]:
        """The ids of all OWNERs."""
        entity_ids = self.roles.keys() | self.grants.keys()
        return frozenset(entity_id for entity_id in entity_ids if self.role_of(entity_id) is Role.OWNER)


@dataclass(frozen=True, slots=True)
class Room:
    """One place with a sequence of messages.

    `account` is the platform account through which the agent is present, and `external_id` the platform's id
    of the room: together with `platform` they say where a reply goes.
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
    """A person, a bot or the agent itself, as one platform knows it.

    `names[0]` is the current display name; the others are former names and handles.
    """

    id: UUID
    platform: str
    external_id: str
    names: tuple[str, ...] = ()
    is_bot: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The current display name, as the platform gave it."""
        return self.names[0] if self.names else ""


@dataclass(frozen=True, slots=True)
class PersonActivity:
    """When a person wrote first and last, how many messages, and how many of them were answered.

    The counts of the last seconds are lost where a process ends without stopping.
    """

    entity_id: UUID
    first_at: datetime
    last_at: datetime
    messages: int = 0
    answered: int = 0

    def plus(self, other: "PersonActivity") -> Self:
        """Return the activity of both periods."""
        return replace(
            self,
            first_at=min(self.first_at, other.first_at),
            last_at=max(self.last_at, other.last_at),
            messages=self.messages + other.messages,
            answered=self.answered + other.answered,
        )


@dataclass(frozen=True, slots=True)
class Component:
    """One typed piece of data about an entity, and who stated it."""

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
    """A directed relationship from one entity to another."""

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
