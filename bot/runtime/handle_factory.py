"""Puts together what answers an agent's commands and buttons."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from bot.agent import Agent
from bot.commands.builtin import BuiltIn
from bot.commands.choices import Presses
from bot.commands.dispatcher import Desk
from bot.domain.component_specs import CommandSpec
from bot.errors import PluginError
from bot.inbound.edits import Changes
from bot.inbound.inbox import Inbox
from bot.plugin_system.registry import Registry


@dataclass(frozen=True, slots=True)
class Counter:
    """Where people ask the bot itself: by command, or by a button."""

    desk: Desk
    presses: Presses
    specs: tuple[CommandSpec, ...]


def open_counter(
    agent: Agent, registry: Registry, inbox: Inbox, changes: Changes, secrets: Collection[str] = ()
) -> Counter:
    """Put the built-in commands before those of plugins; raises PluginError where two have one name."""
    own = {one.spec.name: one for one in BuiltIn(inbox, changes, registry.plugins).commands()}
    brought = {one.name: one.plugin for one in agent.catalog.commands}
    if twice := own.keys() & brought.keys():
        name = min(twice)
        raise PluginError(f"command {name} of plugin {brought[name]!r}: every bot has one of that name")
    commands = own | {
        spec.name: replace(registry.commands[spec.name], spec=spec) for spec in agent.catalog.commands
    }
    desk = Desk(agent, commands, inbox, secrets)
    specs = (*(one.spec for one in own.values()), *agent.catalog.commands)
    return Counter(desk, Presses(agent, desk, inbox), specs)
