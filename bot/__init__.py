"""Greenroom: chat bots with character.

What stands here is public; everything else in the package may change. `Runtime` and `Blueprint` are
loaded when first asked for: they bring the HTTP client with them, which describing a plugin does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bot.agent import Agent
from bot.components.action import Action, action
from bot.components.command import Asking, Command, command
from bot.components.evaluator import Evaluator, evaluator
from bot.components.listener import Listener, on
from bot.components.model import Model, model
from bot.components.provider import Provider, provider
from bot.components.route import Route, route
from bot.components.service import Service
from bot.components.worker import Worker, worker
from bot.concurrency.bounded import Remembered
from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.crash_points import reached
from bot.concurrency.tasks import Gathering
from bot.confirming import ask_twice
from bot.deferred import Deferred
from bot.domain.character import Character
from bot.domain.choices import ABORT, choices_of, chosen, is_open, objection, option_named, options_of
from bot.domain.component_specs import (
    ActionSpec,
    Catalog,
    CommandSpec,
    Effect,
    EvaluatorSpec,
    Example,
    ProviderSpec,
)
from bot.domain.content import Attachment, Choice, Content, MediaKind, MentionContext
from bot.domain.costs import Spending, summed
from bot.domain.edits import (
    FORGOTTEN,
    LATEST,
    Forgotten,
    Reaction,
    Removed,
    Revised,
    blotted,
    cancelled,
    nobody,
    opted_out,
    sent_as,
    unasked,
    weighed,
    withheld,
)
from bot.domain.environment import Attendance, ChannelType, Component, Entity, Relationship, Role, Room, World
from bot.domain.events import (
    ActionCompleted,
    ActionStarted,
    ChannelCleared,
    ControlMessage,
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EntityForgotten,
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
from bot.domain.inbound import (
    REMEMBERED,
    Arrival,
    Asked,
    Cursor,
    Notice,
    Noticed,
    Pressed,
    Received,
    Shown,
    first_claim,
)
from bot.domain.ledger import Delivery, DeliveryState, EventKey, ModelCall, Outcome, Receipt, Step, StepState
from bot.domain.memory import Memory, MemoryKind, Recalled, Scope
from bot.domain.results import ActionPlan, ActionResult, PlanStep, ProviderResult, State, StepStatus
from bot.domain.task import AWAITING_CHOICE, IMMEDIATE, QUEUE, REPEAT, Task
from bot.errors import (
    BotError,
    CharacterError,
    ConfigError,
    DeliveryError,
    FetchError,
    IntakeClosed,
    LaneLost,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NotSent,
    PluginError,
    PromptTooLong,
    SettingError,
    StoreRefused,
    StoreUnavailable,
    TakenAway,
    TemplateError,
    TryAgain,
    Unclear,
    Undeliverable,
)
from bot.health import Health, Trouble
from bot.models.retrying import read_retry_after
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelType,
    Purpose,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TextSink,
    Tool,
    ToolCall,
    TranscriptionRequest,
    Usage,
)
from bot.origin import ANY_ADDRESS, allowed_hosts, host_name, is_foreign, is_own_page
from bot.platform.adapter import Adapter
from bot.platform.connections import AdapterSpec, Check, Door, ReadCursor, Trial
from bot.platform.egress import cleared_so_far
from bot.platform.feed import Feed, FoundPost
from bot.platform.link import Cause, Link, LinkState, Standing
from bot.platform.news import News
from bot.platform.packing import Outgoing
from bot.platform.routes import BoundRoute, RouteRequest, RouteResponse
from bot.platform.rules import Answers, RoomRule, RoomRules
from bot.platform.salvage import put_surely
from bot.platform.unsent import Decided, Unsent
from bot.plugin import Plugin
from bot.privacy import told_host
from bot.prompts.history import Line, last_lines, parse_history, render_history
from bot.prompts.reply_parser.tag_tree import Tree, read_tree
from bot.prompts.template_parser import render
from bot.registry import folded_name
from bot.setting_types import Allowed, BaseUrl, Secret, Words
from bot.settings import WORLD_SETTINGS, CoreSettings, Settings, SettingsModel, keep_key
from bot.store.ledger import Commitment
from bot.store.protocols import (
    AUDIT,
    MOST_NAMES,
    RUN_LOG,
    LogEntry,
    Reach,
    Store,
    Unembedded,
    audience_of,
)
from bot.store.schema import Schema, Schemas, Tables
from bot.store.sharing import OpenWork, Sharing
from bot.store.storage import NO_SCHEMAS, Checkup, Storage, Upgraded
from bot.store.vectors import cosine
from bot.store.words import (
    LAST_SAID,
    SAID,
    best_by_words,
    ranked_by_words,
    word_weights,
    wording,
    words_of,
)
from bot.text import clean_name, cut_line, escape_line, is_blank, last_break, shorten
from bot.turn import Turn

if TYPE_CHECKING:
    from bot.platform.causes import cause_of
    from bot.resident import Blueprint
    from bot.runtime import Runtime

__all__ = [
    "ABORT",
    "ANY_ADDRESS",
    "AUDIT",
    "AWAITING_CHOICE",
    "FORGOTTEN",
    "IMMEDIATE",
    "LAST_SAID",
    "LATEST",
    "MOST_NAMES",
    "NO_SCHEMAS",
    "QUEUE",
    "REMEMBERED",
    "REPEAT",
    "RUN_LOG",
    "SAID",
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
    "Allowed",
    "Answers",
    "Arrival",
    "Asked",
    "Asking",
    "Attachment",
    "Attendance",
    "BaseUrl",
    "Blueprint",
    "BotError",
    "BoundRoute",
    "Catalog",
    "Cause",
    "ChannelCleared",
    "ChannelType",
    "Character",
    "CharacterError",
    "Check",
    "Checkup",
    "Choice",
    "Clock",
    "Command",
    "CommandSpec",
    "Commitment",
    "Component",
    "ConfigError",
    "Content",
    "ControlMessage",
    "CoreSettings",
    "Cursor",
    "Decided",
    "Deferred",
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
    "EntityForgotten",
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
    "Feed",
    "FetchError",
    "Forgotten",
    "FoundPost",
    "Gathering",
    "Health",
    "ImageDescriptionRequest",
    "ImageRequest",
    "ImageResult",
    "IntakeClosed",
    "InteractionReceived",
    "LaneLost",
    "Line",
    "Link",
    "LinkState",
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
    "ModelBusy",
    "ModelCall",
    "ModelError",
    "ModelRefused",
    "ModelType",
    "ModelUnavailable",
    "ModelUsed",
    "News",
    "NotSent",
    "Notice",
    "Noticed",
    "OpenWork",
    "Outcome",
    "Outgoing",
    "PlanStep",
    "Plugin",
    "PluginError",
    "PostGenerated",
    "Pressed",
    "PromptTooLong",
    "Provider",
    "ProviderResult",
    "ProviderSpec",
    "Purpose",
    "Reach",
    "Reaction",
    "ReactionReceived",
    "ReadCursor",
    "Recalled",
    "Receipt",
    "Received",
    "Relationship",
    "Remembered",
    "Removed",
    "Revised",
    "Role",
    "Room",
    "RoomJoined",
    "RoomLeft",
    "RoomMoved",
    "RoomRule",
    "RoomRules",
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
    "Shown",
    "SpeechRequest",
    "SpeechResult",
    "Spending",
    "Standing",
    "State",
    "Step",
    "StepState",
    "StepStatus",
    "Storage",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Tables",
    "TakenAway",
    "Task",
    "TemplateError",
    "TextRequest",
    "TextResult",
    "TextSink",
    "Tool",
    "ToolCall",
    "TranscriptionRequest",
    "Tree",
    "Trial",
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
    "allowed_hosts",
    "ask_twice",
    "audience_of",
    "best_by_words",
    "blotted",
    "cancelled",
    "cause_of",
    "choices_of",
    "chosen",
    "clean_name",
    "cleared_so_far",
    "command",
    "cosine",
    "cut_line",
    "delivery_id",
    "derived_id",
    "escape_line",
    "evaluator",
    "event_class",
    "first_claim",
    "folded_name",
    "host_name",
    "is_blank",
    "is_foreign",
    "is_open",
    "is_own_page",
    "keep_key",
    "last_break",
    "last_lines",
    "model",
    "new_id",
    "nobody",
    "objection",
    "on",
    "opted_out",
    "option_named",
    "options_of",
    "parse_history",
    "provider",
    "put_surely",
    "ranked_by_words",
    "reached",
    "read_retry_after",
    "read_tree",
    "render",
    "render_history",
    "route",
    "sent_as",
    "short_id",
    "shorten",
    "summed",
    "system_clock",
    "told_host",
    "unasked",
    "weighed",
    "withheld",
    "word_weights",
    "wording",
    "words_of",
    "worker",
]


def __getattr__(name: str) -> Any:
    if name == "Blueprint":
        return import_module("bot.resident").Blueprint
    if name == "cause_of":
        return import_module("bot.platform.causes").cause_of
    if name == "Runtime":
        return import_module("bot.runtime").Runtime
    raise AttributeError(f"module 'bot' has no attribute {name!r}")
