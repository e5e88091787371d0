"""What the agent remembers, and from where it knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.domain.content import Content


class MemoryKind(StrEnum):
    """What sort of thing is remembered."""

    MESSAGE = "MESSAGE"
    FACT = "FACT"
    DOCUMENT = "DOCUMENT"
    FRAGMENT = "FRAGMENT"
    DESCRIPTION = "DESCRIPTION"
    REACTION = "REACTION"
    CUSTOM = "CUSTOM"


class MemoryScope(StrEnum):
    """How far a memory may travel when it is recalled."""

    ROOM = "ROOM"
    WORLD = "WORLD"
    SHARED = "SHARED"


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing remembered.

    A message's `entity_id` is its author. `source_id` is the memory that this one was drawn from,
    `turn_id` the turn that made it, `external_id` the platform's own id of a message.
    """

    id: UUID
    kind: MemoryKind
    entity_id: UUID
    room_id: UUID
    world_id: UUID
    content: Content
    created_at: datetime
    external_id: str = ""
    scope: MemoryScope = MemoryScope.ROOM
    source_id: UUID | None = None
    turn_id: UUID | None = None
    embedding: tuple[float, ...] | None = field(default=None, repr=False)
    embedding_model: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A memory found by meaning, and how near it is: 1 the same, 0 unrelated (cosine)."""

    memory: Memory
    similarity: float
