"""Greenroom: chat bots with character.

Public module for plugin authors and for programs that embed the bot. The other public modules are
`bot.events`, `bot.platform`, `bot.models`, `bot.store`, `bot.prompts`, `bot.text` and `bot.testing`;
everything else may change. Each name is imported from its module when it is first used, so that a command
loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.adapter.adapter import Adapter
    from bot.characters import load_character
    from bot.concurrency.clock import Clock, system_clock
    from bot.concurrency.tasks import crash_point
    from bot.domain.character import ActionSpec, Catalog, Character, Effect, ExampleLine, ProviderKind, Shortening
    from bot.domain.content import Attachment, Choice, Content, MediaKind
    from bot.domain.environment import (
        ChannelType,
        ChoiceRequest,
        Component,
        Entity,
        ParticipantState,
        Relationship,
        Role,
        Room,
        World,
    )
    from bot.domain.filters import FilterDecision, FilterInput
    from bot.domain.ids import derived_id, new_id, short_id
    from bot.domain.inbound import CommandResponse
    from bot.domain.ledger import ActionPlan, ActionResult, Outcome, ProviderResult, Receipt, Rule, State
    from bot.domain.memory import Memory, MemoryKind, MemoryScope
    from bot.domain.task import Task, TaskSchedule, TaskTag
    from bot.errors import BotError, CharacterError, ConfigError, PluginError, SettingError, TemporaryError
    from bot.http import RouteRequest, RouteResponse
    from bot.logs import configure_logging
    from bot.models.types import ModelType
    from bot.plugin_system.components import (
        CommandContext,
        Service,
        action,
        command,
        evaluator,
        filter,
        model,
        on,
        provider,
        route,
        worker,
    )
    from bot.plugin_system.loading import find_adapter, load_plugins
    from bot.plugin_system.plugin import Plugin
    from bot.plugin_system.registry import ask_to_confirm, fold_name
    from bot.runtime.agent_runtime import AgentRuntime
    from bot.runtime.character_reload import AgentConfig
    from bot.runtime.runtime import Runtime
    from bot.settings import (
        CommaList,
        CoreSettings,
        Secret,
        Settings,
        SettingsModel,
        find_time_zone,
        load_settings,
        reject_redirected_key,
    )
    from bot.store.protocols import RecallScope
    from bot.turn import Agent, Turn

__all__ = [
    "ActionPlan",
    "ActionResult",
    "ActionSpec",
    "Adapter",
    "Agent",
    "AgentConfig",
    "AgentRuntime",
    "Attachment",
    "BotError",
    "Catalog",
    "ChannelType",
    "Character",
    "CharacterError",
    "Choice",
    "ChoiceRequest",
    "Clock",
    "CommaList",
    "CommandContext",
    "CommandResponse",
    "Component",
    "ConfigError",
    "Content",
    "CoreSettings",
    "Effect",
    "Entity",
    "ExampleLine",
    "FilterDecision",
    "FilterInput",
    "MediaKind",
    "Memory",
    "MemoryKind",
    "MemoryScope",
    "ModelType",
    "Outcome",
    "ParticipantState",
    "Plugin",
    "PluginError",
    "ProviderKind",
    "ProviderResult",
    "RecallScope",
    "Receipt",
    "Relationship",
    "Role",
    "Room",
    "RouteRequest",
    "RouteResponse",
    "Rule",
    "Runtime",
    "Secret",
    "Service",
    "SettingError",
    "Settings",
    "SettingsModel",
    "Shortening",
    "State",
    "Task",
    "TaskSchedule",
    "TaskTag",
    "TemporaryError",
    "Turn",
    "World",
    "action",
    "ask_to_confirm",
    "command",
    "configure_logging",
    "crash_point",
    "derived_id",
    "evaluator",
    "filter",
    "find_adapter",
    "find_time_zone",
    "fold_name",
    "load_character",
    "load_plugins",
    "load_settings",
    "model",
    "new_id",
    "on",
    "provider",
    "reject_redirected_key",
    "route",
    "short_id",
    "system_clock",
    "worker",
]

# The names of each module.
MODULES = {
    "bot.adapter.adapter": "Adapter",
    "bot.turn": "Agent Turn",
    "bot.characters": "load_character",
    "bot.concurrency.clock": "Clock system_clock",
    "bot.concurrency.tasks": "crash_point",
    "bot.domain.character": "ActionSpec Catalog Character Effect ExampleLine ProviderKind Shortening",
    "bot.domain.environment": "ChannelType ChoiceRequest Component Entity "
    "ParticipantState Relationship Role Room World",
    "bot.domain.content": "Attachment Choice Content MediaKind",
    "bot.domain.filters": "FilterDecision FilterInput",
    "bot.domain.ids": "derived_id new_id short_id",
    "bot.domain.inbound": "CommandResponse",
    "bot.domain.ledger": "ActionPlan ActionResult Outcome ProviderResult Receipt Rule State",
    "bot.domain.memory": "Memory MemoryKind MemoryScope",
    "bot.domain.task": "Task TaskSchedule TaskTag",
    "bot.errors": "BotError CharacterError ConfigError PluginError SettingError TemporaryError",
    "bot.http": "RouteRequest RouteResponse",
    "bot.logs": "configure_logging",
    "bot.models.types": "ModelType",
    "bot.plugin_system.components": "action command CommandContext evaluator filter "
    "model on provider route Service worker",
    "bot.plugin_system.registry": "ask_to_confirm fold_name",
    "bot.plugin_system.loading": "find_adapter load_plugins",
    "bot.plugin_system.plugin": "Plugin",
    "bot.runtime.character_reload": "AgentConfig",
    "bot.runtime.agent_runtime": "AgentRuntime",
    "bot.runtime.runtime": "Runtime",
    "bot.settings": "CommaList CoreSettings Secret Settings SettingsModel find_time_zone load_settings "
    "reject_redirected_key",
    "bot.store.protocols": "RecallScope",
}
PLACES = {name: module for module, names in MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker shall still report an unknown name

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module 'bot' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(PLACES[name]), name)
        return value
