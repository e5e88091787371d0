"""Memories: what the agent remembers, and where it may be recalled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from bot.domain.content import Content

ACCESS_TOKEN_KEY = "access_token_id"  # in the metadata of a message, and of a fact from it: with which it was sent
AUTHORS_KEY = "authors"  # in a memory's metadata: the ids of those whose words it may repeat
# in the metadata of a reply: `id` and `text` of the AI notice that was sent before it
NOTICE_KEY = "ai_notice"
PROGRESS_KEY = "progress"  # in the metadata of a message that only says that an action is under way: its versions
REFERRAL_KEY = "referral"  # in the metadata of a message that refers a person in distress to help
WRITTEN_BY_KEY = "written_by"  # in the metadata of a message of the agent that a person wrote: their name
REFERRAL_NOTE = "its author was referred to help"  # in the receipt of the message of distress
MAX_KIND_LENGTH = 64
CUSTOM_KIND = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


class MemoryKind(StrEnum):
    """The kind of a memory; a plugin may declare others, `MemoryKind("DIARY_ENTRY")`.

    Compare kinds with `==`: those of plugins are not the same object each time.
    """

    MESSAGE = "MESSAGE"
    FACT = "FACT"
    DOCUMENT = "DOCUMENT"
    FRAGMENT = "FRAGMENT"
    DESCRIPTION = "DESCRIPTION"
    REACTION = "REACTION"
    ACTION_RESULT = "ACTION_RESULT"
    CUSTOM = "CUSTOM"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Return the kind of a plugin; its name has an underscore, unlike most of ours."""
        if not isinstance(value, str) or len(value) > MAX_KIND_LENGTH or not CUSTOM_KIND.fullmatch(value):
            return None
        kind = str.__new__(cls, value)
        kind._name_, kind._value_ = value, value
        return kind


class MemoryScope(StrEnum):
    """Where a memory may be recalled."""

    ROOM = "ROOM"
    WORLD = "WORLD"
    SHARED = "SHARED"


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered item.

    A message's `entity_id` is its author. `source_id` is the memory from which this one was derived,
    `turn_id` the turn that created it, `external_id` the platform's id of a message.
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

    @property
    def is_reply(self) -> bool:
        """Whether something of a turn is a message that says more than that an action is under way."""
        return self.kind is MemoryKind.MESSAGE and PROGRESS_KEY not in self.metadata


@dataclass(frozen=True, slots=True)
class Summary:
    """What was said in a room, in a few lines that a model wrote; empty where it has to be written anew.

    It covers the messages from `first_id` to `last_id`; `author_ids` are those whose words it may repeat. The store
    sets the positions, and counts `revision` up when a message of the room is changed or deleted.
    """

    room_id: UUID
    text: str = ""
    model: str = ""
    author_ids: frozenset[UUID] = frozenset()
    first_id: UUID | None = None
    last_id: UUID | None = None
    first_position: int = 0
    last_position: int = 0
    revision: int = 0
    first_at: datetime | None = None
    at: datetime | None = None


MAX_CONVERSATION_RESULTS = 20
MAX_CONVERSATION_REACTIONS = 50


@dataclass(frozen=True, slots=True)
class Conversation:
    """The last messages of a room, and the last results of its actions and reactions there; oldest first.

    At most MAX_CONVERSATION_RESULTS and MAX_CONVERSATION_REACTIONS, which may be older than the messages.
    """

    messages: Sequence[Memory] = ()
    results: Sequence[Memory] = ()
    reactions: Sequence[Memory] = ()


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A memory found by meaning, and its cosine similarity: 1 for the same direction, 0 for unrelated."""

    memory: Memory
    similarity: float
