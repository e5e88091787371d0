"""Puts together what answers an agent's commands and buttons."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from bot.agent import Agent
from bot.commands.builtin import BuiltinCommands
from bot.commands.choices import ChoiceHandler
from bot.commands.dispatcher import CommandDispatcher
from bot.domain.component_specs import CommandSpec
from bot.errors import PluginError
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox
from bot.plugin_system.registry import Registry


@dataclass(frozen=True, slots=True)
class CommandRouter:
    """Where people ask the bot itself: by command, or by a button."""

    dispatcher: CommandDispatcher
    choices: ChoiceHandler
    specs: tuple[CommandSpec, ...]


def build_commands(
    agent: Agent, registry: Registry, inbox: Inbox, edits: EditReporter, secrets: Collection[str] = ()
) -> CommandRouter:
    """Put the built-in commands before those of plugins; raises PluginError where two have one name."""
    builtin = {entry.spec.name: entry for entry in BuiltinCommands(inbox, edits, registry.plugins).commands()}
    plugin_by_command = {entry.name: entry.plugin for entry in agent.catalog.commands}
    if duplicates := builtin.keys() & plugin_by_command.keys():
        name = min(duplicates)
        raise PluginError(
            f"command {name} of plugin {plugin_by_command[name]!r}: every bot has one of that name"
        )
    commands = builtin | {
        spec.name: replace(registry.commands[spec.name], spec=spec) for spec in agent.catalog.commands
    }
    dispatcher = CommandDispatcher(agent, commands, inbox, secrets)
    specs = (*(entry.spec for entry in builtin.values()), *agent.catalog.commands)
    return CommandRouter(dispatcher, ChoiceHandler(agent, dispatcher, inbox), specs)
