"""Events, one class per kind, named in the past tense.

`event_class` maps the names of elizaOS (`MESSAGE_RECEIVED`, in any case and with `:` for `_`) to these
classes. An event of a plugin is a subclass of `Event`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import ActionResult, Degradation, Delivery, ModelCall, Outcome, Receipt
from bot.domain.memory import Memory
from bot.domain.proposal import Proposal


@dataclass(frozen=True, slots=True)
class Event:
    """Base of everything that happens to one agent."""

    agent_id: UUID


@dataclass(frozen=True, slots=True)
class WorldJoined(Event):
    """The agent joined a world."""

    world: World
    rooms: tuple[Room, ...] = ()
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldConnected(Event):
    """A known world is reachable again."""

    world: World


@dataclass(frozen=True, slots=True)
class WorldLeft(Event):
    """The agent left a world or was removed from it."""

    world: World


@dataclass(frozen=True, slots=True)
class EntityJoined(Event):
    """An entity joined a world."""

    entity: Entity
    world: World


@dataclass(frozen=True, slots=True)
class EntityLeft(Event):
    """An entity left a world."""

    entity: Entity
    world: World


@dataclass(frozen=True, slots=True)
class EntityUpdated(Event):
    """The name, role or picture of an entity changed."""

    entity: Entity
    world: World | None = None


@dataclass(frozen=True, slots=True)
class EntityErased(Event):
    """All data of an entity was deleted on request; plugins must delete theirs from their own tables."""

    entity_id: UUID


@dataclass(frozen=True, slots=True)
class RoomJoined(Event):
    """The agent joined a room."""

    room: Room


@dataclass(frozen=True, slots=True)
class RoomLeft(Event):
    """The agent left a room, or the room was deleted."""

    room: Room


@dataclass(frozen=True, slots=True)
class MessageReceived(Event):
    """A message was stored; whether it will be answered is not yet decided."""

    message: Memory
    room: Room
    author: Entity


@dataclass(frozen=True, slots=True)
class VoiceMessageReceived(MessageReceived):
    """A voice message was stored."""


@dataclass(frozen=True, slots=True)
class MessageSent(Event):
    """Every part of a message of the agent reached its platform, which calls the last one `external_id`."""

    message_id: UUID
    room_id: UUID
    turn_id: UUID
    external_id: str = ""


@dataclass(frozen=True, slots=True)
class MessageHeld(Event):
    """It cannot be found out whether a part of a message arrived: an operator decides about it."""

    message_id: UUID
    room_id: UUID
    delivery_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class MarkupRemoved(Event):
    """Markup of the model was removed from a reply before it was sent; `dialects` are its names.

    It should not happen: the reader of answers removes it.
    """

    room_id: UUID
    dialects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HumanClaimsReplaced(Event):
    """A reply claimed to be by a human: its claims were replaced before it was sent."""

    room_id: UUID
    count: int


@dataclass(frozen=True, slots=True)
class AnswerDegraded(Event):
    """A message is answered as a step of DEGRADE says, because little is left of a budget."""

    room_id: UUID
    degradation: Degradation


@dataclass(frozen=True, slots=True)
class TextFiltered(Event):
    """A filter replaced, held or stopped a text that came `in` or was to go `out`; `outcome` says which of them."""

    room_id: UUID
    filter: str
    direction: str
    outcome: str


@dataclass(frozen=True, slots=True)
class VoiceMessageSent(MessageSent):
    """A message of the agent that ends with a recording reached its platform."""


@dataclass(frozen=True, slots=True)
class MessageEdited(Event):
    """The author edited a message."""

    message: Memory
    previous: Memory


@dataclass(frozen=True, slots=True)
class MessageDeleted(Event):
    """A message was deleted."""

    message_id: UUID
    room_id: UUID


@dataclass(frozen=True, slots=True)
class ChannelCleared(Event):
    """All messages of a room were deleted."""

    room_id: UUID
    channel_id: str
    memory_count: int


@dataclass(frozen=True, slots=True)
class RoomMigrated(Event):
    """A room continues under another id; its messages are in `room` now."""

    room_id: UUID
    room: Room


@dataclass(frozen=True, slots=True)
class ReactionReceived(Event):
    """A user reacted to a message."""

    reaction: Memory
    room: Room
    author: Entity


@dataclass(frozen=True, slots=True)
class PostGenerated(Event):
    """A public post was written; it may still be rejected."""

    text: str
    room_id: UUID


@dataclass(frozen=True, slots=True)
class InteractionReceived(Event):
    """A user pressed a button or chose from a list."""

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
    """The agent started to work on a message."""

    run_id: UUID
    room_id: UUID
    message_id: UUID


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The work on a message ended; emitted exactly once for every RunStarted."""

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
class MessageClosed(Event):
    """The outcome of a message is stored: whether it was answered, and why or why not."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ProposalUpdated(Event):
    """A reply or post waits for a person, has another text, or does not wait any more; `proposal.state` says which."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class DeliveryFinished(Event):
    """A part of a message arrived, was held, failed or was cancelled; `delivery.state` says which."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class TaskEnded(Event):
    """A run of a scheduled task ended; `error` is empty for success, `next_run` None if it does not run again."""

    task_id: UUID
    name: str
    room_id: UUID | None = None
    error: str = ""
    next_run: datetime | None = None


@dataclass(frozen=True, slots=True)
class ActionStarted(Event):
    """An action is about to run."""

    run_id: UUID
    room_id: UUID
    action: str


@dataclass(frozen=True, slots=True)
class ActionCompleted(Event):
    """An action ended, with success or without."""

    run_id: UUID
    room_id: UUID
    result: ActionResult


@dataclass(frozen=True, slots=True)
class EvaluatorStarted(Event):
    """An evaluator is about to run."""

    run_id: UUID
    room_id: UUID
    evaluator: str


@dataclass(frozen=True, slots=True)
class EvaluatorCompleted(Event):
    """An evaluator ended."""

    run_id: UUID
    room_id: UUID
    evaluator: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ModelUsed(Event):
    """A model was called, with success or without."""

    call: ModelCall
    run_id: UUID | None = None
    room_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ModelRetried(Event):
    """A model is busy and will be called again in `delay` seconds; `room_id` is the room that waits for it."""

    model: str
    cause: str
    delay: float
    run_id: UUID | None = None
    room_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingRequested(Event):
    """A memory waits for its embedding."""

    memory_id: UUID


@dataclass(frozen=True, slots=True)
class EmbeddingCompleted(Event):
    """A memory has its embedding."""

    memory_id: UUID


@dataclass(frozen=True, slots=True)
class EmbeddingFailed(Event):
    """A memory could not be embedded and has no vector yet."""

    memory_id: UUID
    error: str


@dataclass(frozen=True, slots=True)
class ControlMessage(Event):
    """A plugin asks the front ends that show a room for something, such as `disable_input` or `enable_input`."""

    room_id: UUID
    action: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class CharacterReloaded(Event):
    """A changed character file was taken up; `changed` are its fields, and its settings as `settings.NAME`."""

    changed: tuple[str, ...]


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
    "MESSAGE_HELD": MessageHeld,
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
    "MODEL_RETRIED": ModelRetried,
    "EMBEDDING_GENERATION_REQUESTED": EmbeddingRequested,
    "EMBEDDING_GENERATION_COMPLETED": EmbeddingCompleted,
    "EMBEDDING_GENERATION_FAILED": EmbeddingFailed,
    "CONTROL_MESSAGE": ControlMessage,
    "CHARACTER_RELOADED": CharacterReloaded,
}


def event_class(name: str) -> type[Event] | None:
    """Return the class for an elizaOS name such as "MESSAGE_RECEIVED" or "message:received"."""
    return EVENT_CLASSES.get(re.sub(r"[^A-Z]+", "_", name.strip().upper()))
