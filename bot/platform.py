"""Public module for authors of platform adapters: the contract, inbound values, deliveries and tools."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bot.adapter.access_tokens import AccessTokens, TokenScope, token_cookie
from bot.adapter.adapter import (
    Adapter,
    AnswerPolicy,
    Feed,
    FoundPost,
    KnownPeople,
    RoomRule,
    RoomRules,
    TerminalSession,
    select_accounts,
)
from bot.adapter.connection_status import (
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    DisconnectCause,
    TokenCheck,
)
from bot.adapter.http_client import NOT_SENT_ERRORS, PlatformNetwork, find_network, read_bounded
from bot.adapter.pacing import SlidingWindow, TypingIndicator
from bot.concurrency.clock import Backoff, TimeSource
from bot.concurrency.tasks import Batcher, BoundedDict, BoundedSet, MemorySemaphore, TaskSet
from bot.costs.budget import CostLimits, LimitState
from bot.domain.character import CommandSpec
from bot.domain.content import MentionContext, PostOperation, PostOperationKind, Quotation, build_forward_metadata
from bot.domain.inbound import (
    RESPONSE_SOURCE,
    ChoiceSelection,
    CommandInvocation,
    InboundMessage,
    MessageVersion,
    Reaction,
    ResponseTarget,
    StreamCursor,
    is_complete,
    list_versions,
)
from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryState, EventKey
from bot.domain.memory import ACCESS_TOKEN_KEY
from bot.errors import (
    AnswerRefused,
    DeliveryError,
    DeliveryHeld,
    DeliveryUnknown,
    FileProblem,
    InboxClosed,
    MemoryLimitReached,
    MessageGone,
    NotSent,
    Undeliverable,
)
from bot.fetch.client import describe_client_error, sniff_media_type
from bot.fetch.documents import DocumentFormat, ReaderNotInstalled, extract_document_text, extract_pdf_text
from bot.http import (
    WILDCARD_HOSTS,
    BoundRoute,
    HttpProblem,
    RouteCaller,
    RouteEvent,
    RouteScope,
    ServerLimits,
    UploadedFile,
    allowed_hosts,
    is_cross_site,
    is_same_origin,
    parse_host_header,
)
from bot.inbound.activity import ActivityRange, AgentActivity, Arrivals, Spending
from bot.inbound.agent_handle import (
    AccountCheck,
    AdapterSpec,
    AgentHandle,
    CursorReader,
    EmulatedPlatform,
    MembershipReporter,
    Publishing,
    ReloadResult,
)
from bot.inbound.operator_tools import (
    CharacterCheck,
    CharacterText,
    CharacterTools,
    FileConflict,
    Finding,
    FindingStatus,
    OperatorTools,
    PluginState,
    PromptSection,
    SectionShare,
    StoredVersion,
    TaskControl,
    TaskDecision,
    TaskState,
    TrialReply,
    VariableState,
    last_run_of,
)
from bot.inbound.people import FoundFact, People, Person, PersonWorld
from bot.logs import LogBuffer, LogLine, find_log_buffer
from bot.outbound.content_filter import filter_partial_text
from bot.outbound.outbox import DeliveryDecision, DeliveryStatus, UndeliveredParts, is_dropped
from bot.plugin_system.loading import LazyImport, LazyModule, install_command
from bot.receipts import GateCheck, TraceStep, describe_receipt, list_checks, read_sections, read_steps
from bot.runs import current_run
from bot.settings import AllowList
from bot.watchdog.conditions import (
    AccountSituation,
    Condition,
    ConditionKind,
    ConditionLevel,
    ModelSituation,
    ModelState,
    Situation,
    connections_of,
    find_conditions,
    format_dollars,
    limit_of,
    list_models,
    platform_name,
    read_situation,
    store_text,
)

if TYPE_CHECKING:
    from bot.adapter.adapter import disconnect_cause
    from bot.http_server import ConnectionPool, GuessLimiter, HttpServer, TrustedProxies, body_timeout

from bot.errors import FetchError
from bot.outbound.sender import OutgoingReply
from bot.settings import BaseUrl, QuietHours, TimeZoneName, is_quiet

__all__ = [
    "ACCESS_TOKEN_KEY",
    "DROPPED_CAUSE",
    "NOT_SENT_ERRORS",
    "RESPONSE_SOURCE",
    "WILDCARD_HOSTS",
    "AccessTokens",
    "AccountCheck",
    "AccountSituation",
    "ActivityRange",
    "Adapter",
    "AdapterSpec",
    "AgentActivity",
    "AgentHandle",
    "AllowList",
    "AnswerPolicy",
    "AnswerRefused",
    "Arrivals",
    "Backoff",
    "BaseUrl",
    "Batcher",
    "BoundRoute",
    "BoundedDict",
    "BoundedSet",
    "CharacterCheck",
    "CharacterText",
    "CharacterTools",
    "ChoiceSelection",
    "CommandInvocation",
    "CommandSpec",
    "Condition",
    "ConditionKind",
    "ConditionLevel",
    "ConnectionPool",
    "ConnectionSnapshot",
    "ConnectionState",
    "ConnectionStatus",
    "CostLimits",
    "CursorReader",
    "Delivery",
    "DeliveryDecision",
    "DeliveryError",
    "DeliveryHeld",
    "DeliveryState",
    "DeliveryStatus",
    "DeliveryUnknown",
    "DisconnectCause",
    "DocumentFormat",
    "EmulatedPlatform",
    "EventKey",
    "Feed",
    "FetchError",
    "FileConflict",
    "FileProblem",
    "Finding",
    "FindingStatus",
    "FoundFact",
    "FoundPost",
    "GateCheck",
    "GuessLimiter",
    "HttpProblem",
    "HttpServer",
    "InboundMessage",
    "InboxClosed",
    "KnownPeople",
    "LazyImport",
    "LazyModule",
    "LimitState",
    "LogBuffer",
    "LogLine",
    "MembershipReporter",
    "MemoryLimitReached",
    "MemorySemaphore",
    "MentionContext",
    "MessageGone",
    "MessageVersion",
    "ModelSituation",
    "ModelState",
    "NotSent",
    "OperatorTools",
    "OutgoingReply",
    "People",
    "Person",
    "PersonWorld",
    "PlatformNetwork",
    "PluginState",
    "PostOperation",
    "PostOperationKind",
    "PromptSection",
    "Publishing",
    "QuietHours",
    "Quotation",
    "Reaction",
    "ReaderNotInstalled",
    "ReloadResult",
    "ResponseTarget",
    "RoomRule",
    "RoomRules",
    "RouteCaller",
    "RouteEvent",
    "RouteScope",
    "SectionShare",
    "ServerLimits",
    "Situation",
    "SlidingWindow",
    "Spending",
    "StoredVersion",
    "StreamCursor",
    "TaskControl",
    "TaskDecision",
    "TaskSet",
    "TaskState",
    "TerminalSession",
    "TimeSource",
    "TimeZoneName",
    "TokenCheck",
    "TokenScope",
    "TraceStep",
    "TrialReply",
    "TrustedProxies",
    "TypingIndicator",
    "Undeliverable",
    "UndeliveredParts",
    "UploadedFile",
    "VariableState",
    "allowed_hosts",
    "body_timeout",
    "build_forward_metadata",
    "connections_of",
    "current_run",
    "describe_client_error",
    "describe_receipt",
    "disconnect_cause",
    "extract_document_text",
    "extract_pdf_text",
    "filter_partial_text",
    "find_conditions",
    "find_log_buffer",
    "find_network",
    "format_dollars",
    "install_command",
    "is_complete",
    "is_cross_site",
    "is_dropped",
    "is_quiet",
    "is_same_origin",
    "last_run_of",
    "limit_of",
    "list_checks",
    "list_models",
    "list_versions",
    "parse_host_header",
    "platform_name",
    "read_bounded",
    "read_sections",
    "read_situation",
    "read_steps",
    "select_accounts",
    "sniff_media_type",
    "store_text",
    "token_cookie",
]

LOADED_WHEN_USED = {  # they load aiohttp
    "ConnectionPool": "bot.http_server",
    "GuessLimiter": "bot.http_server",
    "HttpServer": "bot.http_server",
    "TrustedProxies": "bot.http_server",
    "body_timeout": "bot.http_server",
    "disconnect_cause": "bot.adapter.adapter",
}


def __getattr__(name: str) -> Any:
    if name in LOADED_WHEN_USED:
        return getattr(import_module(LOADED_WHEN_USED[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
