"""Everything the plugins of one agent brought, by name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import Any, TypeVar

from bot.domain.component_specs import Catalog
from bot.errors import PluginError
from bot.plugin_system.action import Action
from bot.plugin_system.command import Command
from bot.plugin_system.components import Evaluator, Provider, Worker
from bot.plugin_system.plugin import Plugin

T = TypeVar("T")
FOLDED = MappingProxyType(str.maketrans(ascii_lowercase, ascii_uppercase, "_ "))


def folded_name(name: str) -> str:
    """Fold a component's name as a model may write it: upper case, without underscores and spaces.

    Letters beyond ASCII stay as they are: some of them become others in upper case (`ſ`, `ı`).
    """
    return name.strip().translate(FOLDED)


class Registry:
    """The components of an agent; built once, then only read.

    Raises PluginError, naming both plugins, where two bring a component of the same name; names
    that a model cannot tell apart (FOLLOW_ROOM, FOLLOWROOM) are the same. So it does for two routes of a
    plugin at one address. `in_prompt` has the providers in the order in which a prompt has their texts.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        actions = ((plugin, one.spec.name, one) for plugin in plugins for one in plugin.actions)
        providers = ((plugin, one.spec.name, one) for plugin in plugins for one in plugin.providers)
        evaluators = ((plugin, one.spec.name, one) for plugin in plugins for one in plugin.evaluators)
        workers = ((plugin, one.name, one) for plugin in plugins for one in plugin.workers)
        commands = ((plugin, one.spec.name, one) for plugin in plugins for one in plugin.commands)
        self.actions: Mapping[str, Action[Any]] = _unique("action", actions)
        self.providers: Mapping[str, Provider] = _unique("provider", providers)
        self.evaluators: Mapping[str, Evaluator] = _unique("evaluator", evaluators)
        self.commands: Mapping[str, Command[Any]] = _unique("command", commands)
        self.workers: Mapping[str, Worker] = _unique("worker", workers)
        for plugin in plugins:
            _refuse_twins(plugin)
        self._by_folded = dict(
            reversed([(name, one) for one in self.actions.values() for name in _names(one)])
        )
        self._by_folded |= {folded_name(name): one for name, one in self.actions.items()}
        self._providers_folded = {folded_name(name): one for name, one in self.providers.items()}
        in_order = sorted(self.providers.values(), key=lambda one: (one.spec.position, one.spec.name))
        self.in_prompt = tuple(in_order)

    def action(self, name: str) -> Action[Any] | None:
        """Find the action a model means: its name exactly, folded, else a simile; never a part of one."""
        return self._by_folded.get(folded_name(name))

    def provider(self, name: str) -> Provider | None:
        """Find a provider by its name, folded as for actions."""
        return self._providers_folded.get(folded_name(name))

    def catalog(self) -> Catalog:
        """Describe everything, in the order in which it came."""
        owner = {
            id(one): plugin.name
            for plugin in self.plugins
            for one in (*plugin.actions, *plugin.providers, *plugin.evaluators, *plugin.commands)
        }
        services = [service for plugin in self.plugins for service in plugin.services]
        return Catalog(
            plugins=tuple(plugin.name for plugin in self.plugins),
            actions=tuple(replace(one.spec, plugin=owner[id(one)]) for one in self.actions.values()),
            providers=tuple(replace(one.spec, plugin=owner[id(one)]) for one in self.providers.values()),
            evaluators=tuple(replace(one.spec, plugin=owner[id(one)]) for one in self.evaluators.values()),
            services=tuple(service.__name__ for service in services),
            capabilities=tuple(service.capability for service in services if service.capability),
            commands=tuple(replace(one.spec, plugin=owner[id(one)]) for one in self.commands.values()),
        )


def _names(action: Action[Any]) -> Iterator[str]:
    yield from map(folded_name, action.spec.similes)


def _refuse_twins(plugin: Plugin) -> None:
    places = Counter((one.method, one.path) for one in plugin.routes)
    for (method, path), count in places.items():
        if count > 1:
            raise PluginError(
                f"plugin {plugin.name!r} brings {count} routes at {method} {path}: keep one of them"
            )


def _unique(kind: str, components: Iterable[tuple[Plugin, str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    brought_by: dict[str, str] = {}
    for plugin, name, component in components:
        if folded_name(name) in brought_by:
            raise PluginError(
                f"{kind} {name} is brought by plugin {brought_by[folded_name(name)]!r} and by plugin "
                f"{plugin.name!r}: remove one of the two from the character's plugins"
            )
        found[name] = component
        brought_by[folded_name(name)] = plugin.name
    return found
