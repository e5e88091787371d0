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
    from bot.agent import Agent
    from bot.characters import load_character
    from bot.concurrency.clock import Clock, system_clock
    from bot.concurrency.crash_points import crash_point
    from bot.domain.character import Character
    from bot.domain.choices import ChoiceRequest
    from bot.domain.component_specs import ActionSpec, Catalog, Effect, ExampleLine, ProviderKind, Shortening
    from bot.domain.content import Attachment, Choice, Content, MediaKind
    from bot.domain.environment import ChannelType, Component, Entity, ParticipantState, Relationship, Role, Room, World
    from bot.domain.ids import derived_id, new_id, short_id
    from bot.domain.inbound import CommandResponse
    from bot.domain.ledger import Outcome, Receipt, Rule
    from bot.domain.memory import Memory, MemoryKind, MemoryScope
    from bot.domain.results import ActionPlan, ActionResult, ProviderResult, State
    from bot.domain.task import Task, TaskSchedule, TaskTag
    from bot.errors import BotError, CharacterError, ConfigError, PluginError, SettingError, TemporaryError
    from bot.http import RouteRequest, RouteResponse
    from bot.logs import configure_logging
    from bot.models.types import ModelType
    from bot.plugin_system.action import action
    from bot.plugin_system.command import CommandContext, command
    from bot.plugin_system.components import Service, evaluator, model, on, provider, worker
    from bot.plugin_system.confirmation import ask_to_confirm
    from bot.plugin_system.loading import find_adapter, load_plugins
    from bot.plugin_system.plugin import Plugin
    from bot.plugin_system.registry import fold_name
    from bot.plugin_system.routes import route
    from bot.runtime.agent_config import AgentConfig
    from bot.runtime.agent_runtime import AgentRuntime
    from bot.runtime.runtime import Runtime
    from bot.settings import (
        CommaList,
        CoreSettings,
        Secret,
        Settings,
        SettingsModel,
        load_settings,
        reject_redirected_key,
    )
    from bot.store.protocols import RecallScope
    from bot.turn import Turn

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
    "find_adapter",
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
    "bot.agent": "Agent",
    "bot.characters": "load_character",
    "bot.concurrency.clock": "Clock system_clock",
    "bot.concurrency.crash_points": "crash_point",
    "bot.domain.character": "Character",
    "bot.domain.choices": "ChoiceRequest",
    "bot.domain.component_specs": "ActionSpec Catalog Effect ExampleLine ProviderKind Shortening",
    "bot.domain.content": "Attachment Choice Content MediaKind",
    "bot.domain.environment": "ChannelType Component Entity ParticipantState Relationship Role Room World",
    "bot.domain.ids": "derived_id new_id short_id",
    "bot.domain.inbound": "CommandResponse",
    "bot.domain.ledger": "Outcome Receipt Rule",
    "bot.domain.memory": "Memory MemoryKind MemoryScope",
    "bot.domain.results": "ActionPlan ActionResult ProviderResult State",
    "bot.domain.task": "Task TaskSchedule TaskTag",
    "bot.errors": "BotError CharacterError ConfigError PluginError SettingError TemporaryError",
    "bot.http": "RouteRequest RouteResponse",
    "bot.logs": "configure_logging",
    "bot.models.types": "ModelType",
    "bot.plugin_system.action": "action",
    "bot.plugin_system.command": "CommandContext command",
    "bot.plugin_system.components": "Service evaluator model on provider worker",
    "bot.plugin_system.confirmation": "ask_to_confirm",
    "bot.plugin_system.loading": "find_adapter load_plugins",
    "bot.plugin_system.plugin": "Plugin",
    "bot.plugin_system.registry": "fold_name",
    "bot.plugin_system.routes": "route",
    "bot.runtime.agent_config": "AgentConfig",
    "bot.runtime.agent_runtime": "AgentRuntime",
    "bot.runtime.runtime": "Runtime",
    "bot.settings": "CommaList CoreSettings Secret Settings SettingsModel load_settings reject_redirected_key",
    "bot.store.protocols": "RecallScope",
    "bot.turn": "Turn",
}
PLACES = {name: module for module, names in MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker shall still report an unknown name

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module 'bot' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(PLACES[name]), name)
        return value
