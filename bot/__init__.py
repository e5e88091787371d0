"""Greenroom: chat bots with character.

What stands here is public; everything else in the package may change. `Runtime` and `Blueprint` are
loaded when first asked for: they bring the HTTP client with them, which describing a plugin does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bot.agent import Agent
from bot.components.action import Action, action
from bot.components.evaluator import Evaluator, evaluator
from bot.components.listener import Listener, on
from bot.components.model import Model, model
from bot.components.provider import Provider, provider
from bot.components.route import Route, route
from bot.components.service import Service
from bot.components.worker import Worker, worker
from bot.domain.arrival import Arrival, Cursor, Received, first_claim
from bot.domain.changes import (
    LATEST,
    Reaction,
    Removed,
    Revised,
    cancelled,
    sent_as,
    unasked,
    weighed,
    withheld,
)
from bot.domain.character import Character
from bot.domain.clock import Clock, system_clock
from bot.domain.content import Attachment, Content, MediaKind, MentionContext
from bot.domain.events import (
    ActionCompleted,
    ActionStarted,
    ChannelCleared,
    ControlMessage,
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EntityJoined,
    EntityLeft,
    EntityUpdated,
    EvaluatorCompleted,
    EvaluatorStarted,
    Event,
    InteractionReceived,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageSent,
    ModelUsed,
    PostGenerated,
    ReactionReceived,
    RoomJoined,
    RoomLeft,
    RoomMoved,
    RunEnded,
    RunStarted,
    RunStatus,
    RunTimedOut,
    VoiceMessageReceived,
    VoiceMessageSent,
    WorldConnected,
    WorldJoined,
    WorldLeft,
    event_class,
)
from bot.domain.ids import delivery_id, derived_id, new_id, short_id
from bot.domain.ledger import Delivery, DeliveryState, EventKey, ModelCall, Outcome, Receipt, Step, StepState
from bot.domain.memory import Memory, MemoryKind, Recalled, Scope
from bot.domain.people import Attendance, Component, Entity, Relationship
from bot.domain.places import ChannelType, Role, Room, World
from bot.domain.results import ActionPlan, ActionResult, PlanStep, ProviderResult, StepStatus
from bot.domain.specs import ActionSpec, Catalog, Effect, EvaluatorSpec, Example, ProviderSpec
from bot.domain.state import State
from bot.domain.task import AWAITING_CHOICE, IMMEDIATE, QUEUE, REPEAT, Task
from bot.errors import (
    BotError,
    CharacterError,
    ConfigError,
    DeliveryError,
    FetchError,
    IntakeClosed,
    LaneLost,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NotSent,
    PluginError,
    SettingError,
    StoreRefused,
    StoreUnavailable,
    TemplateError,
    TryAgain,
    Unclear,
    Undeliverable,
)
from bot.gathering import Gathering
from bot.health import Health, Trouble
from bot.killpoints import reached
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelType,
    Purpose,
    TextRequest,
    TextResult,
    TranscriptionRequest,
    Usage,
)
from bot.platform.adapter import Adapter
from bot.platform.connections import AdapterSpec, Door
from bot.platform.packing import Outgoing
from bot.platform.routes import BoundRoute, RouteRequest, RouteResponse
from bot.platform.unsent import Decided, Unsent
from bot.plugin import Plugin
from bot.prompts.history import Line, parse_history, render_history
from bot.prompts.mustache import render
from bot.prompts.reading.tree import Tree, read_tree
from bot.settings import WORLD_SETTINGS, CoreSettings, Secret, Settings, SettingsModel, Words
from bot.store.protocols import (
    AUDIT,
    MOST_NAMES,
    RUN_LOG,
    Commitment,
    LogEntry,
    Reach,
    Store,
    Unembedded,
)
from bot.store.schema import Schema, Schemas, Tables
from bot.store.sharing import OpenWork, Sharing
from bot.store.storage import NO_SCHEMAS, Checkup, Storage, Upgraded
from bot.store.vectors import cosine
from bot.text import clean_name, escape_line, is_blank, shorten
from bot.turn import Turn

if TYPE_CHECKING:
    from bot.resident import Blueprint
    from bot.runtime import Runtime

__all__ = [
    "AUDIT",
    "AWAITING_CHOICE",
    "IMMEDIATE",
    "LATEST",
    "MOST_NAMES",
    "NO_SCHEMAS",
    "QUEUE",
    "REPEAT",
    "RUN_LOG",
    "WORLD_SETTINGS",
    "Action",
    "ActionCompleted",
    "ActionPlan",
    "ActionResult",
    "ActionSpec",
    "ActionStarted",
    "Adapter",
    "AdapterSpec",
    "Agent",
    "Arrival",
    "Attachment",
    "Attendance",
    "Blueprint",
    "BotError",
    "BoundRoute",
    "Catalog",
    "ChannelCleared",
    "ChannelType",
    "Character",
    "CharacterError",
    "Checkup",
    "Clock",
    "Commitment",
    "Component",
    "ConfigError",
    "Content",
    "ControlMessage",
    "CoreSettings",
    "Cursor",
    "Decided",
    "Delivery",
    "DeliveryError",
    "DeliveryState",
    "Door",
    "Effect",
    "EmbeddingCompleted",
    "EmbeddingFailed",
    "EmbeddingRequest",
    "EmbeddingRequested",
    "EmbeddingResult",
    "Entity",
    "EntityJoined",
    "EntityLeft",
    "EntityUpdated",
    "Evaluator",
    "EvaluatorCompleted",
    "EvaluatorSpec",
    "EvaluatorStarted",
    "Event",
    "EventKey",
    "Example",
    "FetchError",
    "Gathering",
    "Health",
    "ImageDescriptionRequest",
    "ImageRequest",
    "ImageResult",
    "IntakeClosed",
    "InteractionReceived",
    "LaneLost",
    "Line",
    "Listener",
    "LogEntry",
    "MediaKind",
    "Memory",
    "MemoryKind",
    "MentionContext",
    "MessageDeleted",
    "MessageEdited",
    "MessageReceived",
    "MessageSent",
    "Model",
    "ModelCall",
    "ModelError",
    "ModelRefused",
    "ModelType",
    "ModelUnavailable",
    "ModelUsed",
    "NotSent",
    "OpenWork",
    "Outcome",
    "Outgoing",
    "PlanStep",
    "Plugin",
    "PluginError",
    "PostGenerated",
    "Provider",
    "ProviderResult",
    "ProviderSpec",
    "Purpose",
    "Reach",
    "Reaction",
    "ReactionReceived",
    "Recalled",
    "Receipt",
    "Received",
    "Relationship",
    "Removed",
    "Revised",
    "Role",
    "Room",
    "RoomJoined",
    "RoomLeft",
    "RoomMoved",
    "Route",
    "RouteRequest",
    "RouteResponse",
    "RunEnded",
    "RunStarted",
    "RunStatus",
    "RunTimedOut",
    "Runtime",
    "Schema",
    "Schemas",
    "Scope",
    "Secret",
    "Service",
    "SettingError",
    "Settings",
    "SettingsModel",
    "Sharing",
    "State",
    "Step",
    "StepState",
    "StepStatus",
    "Storage",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Tables",
    "Task",
    "TemplateError",
    "TextRequest",
    "TextResult",
    "TranscriptionRequest",
    "Tree",
    "Trouble",
    "TryAgain",
    "Turn",
    "Unclear",
    "Undeliverable",
    "Unembedded",
    "Unsent",
    "Upgraded",
    "Usage",
    "VoiceMessageReceived",
    "VoiceMessageSent",
    "Words",
    "Worker",
    "World",
    "WorldConnected",
    "WorldJoined",
    "WorldLeft",
    "action",
    "cancelled",
    "clean_name",
    "cosine",
    "delivery_id",
    "derived_id",
    "escape_line",
    "evaluator",
    "event_class",
    "first_claim",
    "is_blank",
    "model",
    "new_id",
    "on",
    "parse_history",
    "provider",
    "reached",
    "read_tree",
    "render",
    "render_history",
    "route",
    "sent_as",
    "short_id",
    "shorten",
    "system_clock",
    "unasked",
    "weighed",
    "withheld",
    "worker",
]


def __getattr__(name: str) -> Any:
    if name == "Blueprint":
        return import_module("bot.resident").Blueprint
    if name == "Runtime":
        return import_module("bot.runtime").Runtime
    raise AttributeError(f"module 'bot' has no attribute {name!r}")
