"""What has happened, told to whoever listens: one class per kind of event, in the past tense.

`NAMES` in the sources (`MESSAGE_RECEIVED`, read in any case and with `:` for `_`) map to these
classes through `event_class`. A plugin's own event is a subclass of `Event`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import ModelCall, Outcome
from bot.domain.memory import Memory
from bot.domain.results import ActionResult


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened to one agent."""

    agent_id: UUID


@dataclass(frozen=True, slots=True)
class WorldJoined(Event):
    """The agent came into a world."""

    world: World
    rooms: tuple[Room, ...] = ()
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldConnected(Event):
    """A world the agent knew is reachable again."""

    world: World


@dataclass(frozen=True, slots=True)
class WorldLeft(Event):
    """The agent left a world, or was sent away."""

    world: World


@dataclass(frozen=True, slots=True)
class EntityJoined(Event):
    """Somebody came into a world."""

    entity: Entity
    world: World


@dataclass(frozen=True, slots=True)
class EntityLeft(Event):
    """Somebody left a world."""

    entity: Entity
    world: World


@dataclass(frozen=True, slots=True)
class EntityUpdated(Event):
    """Somebody changed: a name, a role, a picture."""

    entity: Entity
    world: World | None = None


@dataclass(frozen=True, slots=True)
class EntityErased(Event):
    """Somebody has had everything deleted that was kept of them; a plugin's own tables are its own duty."""

    entity_id: UUID


@dataclass(frozen=True, slots=True)
class RoomJoined(Event):
    """The agent came into a room."""

    room: Room


@dataclass(frozen=True, slots=True)
class RoomLeft(Event):
    """The agent left a room, or the room is gone."""

    room: Room


@dataclass(frozen=True, slots=True)
class MessageReceived(Event):
    """A message was stored; whether it is answered is not yet known."""

    message: Memory
    room: Room
    author: Entity


@dataclass(frozen=True, slots=True)
class VoiceMessageReceived(MessageReceived):
    """A spoken message was stored."""


@dataclass(frozen=True, slots=True)
class MessageSent(Event):
    """Every part of a message of ours has reached its platform."""

    message_id: UUID
    room_id: UUID
    turn_id: UUID


@dataclass(frozen=True, slots=True)
class VoiceMessageSent(MessageSent):
    """A spoken message of ours has reached its platform."""


@dataclass(frozen=True, slots=True)
class MessageEdited(Event):
    """The author changed a message."""

    message: Memory
    previous: Memory


@dataclass(frozen=True, slots=True)
class MessageDeleted(Event):
    """A message was taken back."""

    message_id: UUID
    room_id: UUID


@dataclass(frozen=True, slots=True)
class ChannelCleared(Event):
    """All messages of a room were removed."""

    room_id: UUID
    channel_id: str
    memory_count: int


@dataclass(frozen=True, slots=True)
class RoomMigrated(Event):
    """A room goes on under another id; what was said in it is in `room` now."""

    room_id: UUID
    room: Room


@dataclass(frozen=True, slots=True)
class ReactionReceived(Event):
    """Somebody reacted to a message."""

    reaction: Memory
    room: Room
    author: Entity


@dataclass(frozen=True, slots=True)
class PostGenerated(Event):
    """A public post was written; it may still be refused."""

    text: str
    room_id: UUID


@dataclass(frozen=True, slots=True)
class InteractionReceived(Event):
    """Somebody pressed a button or chose from a list."""

    room: Room
    author: Entity
    choice: str
    data: Mapping[str, Any] = field(default_factory=dict)


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    IGNORED = "ignored"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    ERROR = "error"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The agent began to work on a message."""

    run_id: UUID
    room_id: UUID
    message_id: UUID


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The work on a message is over; told exactly once for every RunStarted."""

    run_id: UUID
    room_id: UUID
    message_id: UUID
    status: RunStatus
    outcome: Outcome
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunTimedOut(Event):
    """A run reached RESPONSE_TIMEOUT; its RunEnded follows."""

    run_id: UUID
    room_id: UUID
    message_id: UUID
    seconds: float


@dataclass(frozen=True, slots=True)
class ActionStarted(Event):
    """An action is about to run."""

    run_id: UUID
    room_id: UUID
    action: str


@dataclass(frozen=True, slots=True)
class ActionCompleted(Event):
    """An action has run, well or badly."""

    run_id: UUID
    room_id: UUID
    result: ActionResult


@dataclass(frozen=True, slots=True)
class EvaluatorStarted(Event):
    """An evaluator is about to look at a turn."""

    run_id: UUID
    room_id: UUID
    evaluator: str


@dataclass(frozen=True, slots=True)
class EvaluatorCompleted(Event):
    """An evaluator has looked at a turn."""

    run_id: UUID
    room_id: UUID
    evaluator: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ModelUsed(Event):
    """A model was called, successfully or not."""

    call: ModelCall
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingRequested(Event):
    """A memory waits for its vector."""

    memory_id: UUID


@dataclass(frozen=True, slots=True)
class EmbeddingCompleted(Event):
    """A memory has its vector."""

    memory_id: UUID


@dataclass(frozen=True, slots=True)
class EmbeddingFailed(Event):
    """A memory stays without a vector for now."""

    memory_id: UUID
    error: str


@dataclass(frozen=True, slots=True)
class ControlMessage(Event):
    """The agent asks an attached front end to do something (disable input, show a hint)."""

    room_id: UUID
    action: str
    target: str = ""


EVENT_CLASSES: Mapping[str, type[Event]] = {
    "WORLD_JOINED": WorldJoined,
    "WORLD_CONNECTED": WorldConnected,
    "WORLD_LEFT": WorldLeft,
    "ENTITY_JOINED": EntityJoined,
    "ENTITY_LEFT": EntityLeft,
    "ENTITY_UPDATED": EntityUpdated,
    "ENTITY_FORGOTTEN": EntityErased,
    "ROOM_JOINED": RoomJoined,
    "ROOM_LEFT": RoomLeft,
    "MESSAGE_RECEIVED": MessageReceived,
    "MESSAGE_SENT": MessageSent,
    "MESSAGE_EDITED": MessageEdited,
    "MESSAGE_DELETED": MessageDeleted,
    "CHANNEL_CLEARED": ChannelCleared,
    "ROOM_MOVED": RoomMigrated,
    "VOICE_MESSAGE_RECEIVED": VoiceMessageReceived,
    "VOICE_MESSAGE_SENT": VoiceMessageSent,
    "REACTION_RECEIVED": ReactionReceived,
    "POST_GENERATED": PostGenerated,
    "INTERACTION_RECEIVED": InteractionReceived,
    "RUN_STARTED": RunStarted,
    "RUN_ENDED": RunEnded,
    "RUN_TIMEOUT": RunTimedOut,
    "ACTION_STARTED": ActionStarted,
    "ACTION_COMPLETED": ActionCompleted,
    "EVALUATOR_STARTED": EvaluatorStarted,
    "EVALUATOR_COMPLETED": EvaluatorCompleted,
    "MODEL_USED": ModelUsed,
    "EMBEDDING_GENERATION_REQUESTED": EmbeddingRequested,
    "EMBEDDING_GENERATION_COMPLETED": EmbeddingCompleted,
    "EMBEDDING_GENERATION_FAILED": EmbeddingFailed,
    "CONTROL_MESSAGE": ControlMessage,
}


def event_class(name: str) -> type[Event] | None:
    """Find the class for a name of the sources: "MESSAGE_RECEIVED", "message:received"."""
    return EVENT_CLASSES.get(re.sub(r"[^A-Z]+", "_", name.strip().upper()))
