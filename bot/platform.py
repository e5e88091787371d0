"""Public module for authors of platform adapters: the contract, inbound values, deliveries and tools."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bot.adapter.adapter import Adapter, Feed, FoundPost
from bot.adapter.connection_status import Cause, Link, LinkState, Standing
from bot.adapter.room_rules import Answers, RoomRule, RoomRules
from bot.concurrency.bounded import Remembered
from bot.domain.component_specs import CommandSpec
from bot.domain.content import MentionContext
from bot.domain.edits import Reaction
from bot.domain.inbound import Arrival, Asked, Cursor, Pressed
from bot.domain.ledger import Delivery, DeliveryState, EventKey
from bot.errors import DeliveryError, IntakeClosed, NotSent, TakenAway, Unclear, Undeliverable
from bot.http import ANY_ADDRESS, BoundRoute, allowed_hosts, host_name, is_foreign, is_own_page
from bot.inbound.agent_handle import AdapterSpec, Check, Door, ReadCursor, Trial
from bot.inbound.inbox import put_surely
from bot.inbound.membership import News
from bot.outbound.content_filter import cleared_so_far
from bot.outbound.undelivered import Decided, Unsent
from bot.plugin_system.imports import Deferred
from bot.settings import Allowed

if TYPE_CHECKING:
    from bot.adapter.network_causes import cause_of

__all__ = [
    "ANY_ADDRESS",
    "Adapter",
    "AdapterSpec",
    "Allowed",
    "Answers",
    "Arrival",
    "Asked",
    "BoundRoute",
    "Cause",
    "Check",
    "CommandSpec",
    "Cursor",
    "Decided",
    "Deferred",
    "Delivery",
    "DeliveryError",
    "DeliveryState",
    "Door",
    "EventKey",
    "Feed",
    "FoundPost",
    "IntakeClosed",
    "Link",
    "LinkState",
    "MentionContext",
    "News",
    "NotSent",
    "Pressed",
    "Reaction",
    "ReadCursor",
    "Remembered",
    "RoomRule",
    "RoomRules",
    "Standing",
    "TakenAway",
    "Trial",
    "Unclear",
    "Undeliverable",
    "Unsent",
    "allowed_hosts",
    "cause_of",
    "cleared_so_far",
    "host_name",
    "is_foreign",
    "is_own_page",
    "put_surely",
]


def __getattr__(name: str) -> Any:
    if name == "cause_of":  # loads aiohttp
        return import_module("bot.adapter.network_causes").cause_of
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
