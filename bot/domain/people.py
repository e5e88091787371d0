"""Who takes part: entities, what is known of them, and how they stand to rooms and each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


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


class Attendance(StrEnum):
    """What the agent has decided about a room."""

    DEFAULT = "DEFAULT"
    FOLLOWED = "FOLLOWED"
    MUTED = "MUTED"
