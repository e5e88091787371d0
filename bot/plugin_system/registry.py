"""`Registry`: all components of one agent's plugins, by name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import Any, TypeVar

from bot.domain.component_specs import Catalog, ProviderKind
from bot.errors import PluginError
from bot.plugin_system.action import Action
from bot.plugin_system.command import Command
from bot.plugin_system.components import Evaluator, Provider, Worker
from bot.plugin_system.plugin import Plugin

T = TypeVar("T")
FOLD_TABLE = MappingProxyType(str.maketrans(ascii_lowercase, ascii_uppercase, "_ "))


def fold_name(name: str) -> str:
    """Return a component's name in upper case, without underscores and spaces, to compare what models write.

    Only ASCII letters are converted: some others become ASCII letters in upper case (`ſ`, `ı`).
    """
    return name.strip().translate(FOLD_TABLE)


class Registry:
    """The components of an agent; built once, then only read.

    Raises PluginError for two components of one name, naming both plugins (FOLLOW_ROOM and FOLLOWROOM are the
    same to a model), and for two routes of a plugin with one address. `prompt_providers` are in the order of
    their texts in a prompt.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        actions = ((plugin, component.spec.name, component) for plugin in plugins for component in plugin.actions)
        providers = ((plugin, component.spec.name, component) for plugin in plugins for component in plugin.providers)
        evaluators = ((plugin, component.spec.name, component) for plugin in plugins for component in plugin.evaluators)
        workers = ((plugin, component.name, component) for plugin in plugins for component in plugin.workers)
        commands = ((plugin, component.spec.name, component) for plugin in plugins for component in plugin.commands)
        self.actions: Mapping[str, Action[Any]] = _index_unique("action", actions)
        self.providers: Mapping[str, Provider] = _index_unique("provider", providers)
        self.evaluators: Mapping[str, Evaluator] = _index_unique("evaluator", evaluators)
        self.commands: Mapping[str, Command[Any]] = _index_unique("command", commands)
        self.workers: Mapping[str, Worker] = _index_unique("worker", workers)
        for plugin in plugins:
            _check_duplicate_routes(plugin)
        self._trusted_ids = {
            id(component)
            for plugin in plugins
            if plugin.is_trusted
            for component in (*plugin.actions, *plugin.providers, *plugin.evaluators, *plugin.workers)
        }
        self._actions_by_folded_name = dict(
            reversed([(name, component) for component in self.actions.values() for name in _folded_similes(component)])
        )
        self._actions_by_folded_name |= {fold_name(name): component for name, component in self.actions.items()}
        self._providers_by_folded_name = {fold_name(name): component for name, component in self.providers.items()}
        ordered_providers = sorted(
            self.providers.values(), key=lambda component: (component.spec.position, component.spec.name)
        )
        self.prompt_providers = tuple(ordered_providers)
        self._names_by_kind: dict[ProviderKind, list[str]] = {kind: [] for kind in ProviderKind}
        for provider in self.prompt_providers:
            self._names_by_kind[provider.spec.kind].append(provider.spec.name)

    def is_trusted(self, component: Action[Any] | Provider | Evaluator | Worker) -> bool:
        """Whether a component belongs to a trusted plugin, whose code needs no task of its own."""
        return id(component) in self._trusted_ids

    def find_action(self, name: str) -> Action[Any] | None:
        """Return the action of this folded name or simile; None if there is none."""
        return self._actions_by_folded_name.get(fold_name(name))

    def find_provider(self, name: str) -> Provider | None:
        """Return the provider of this folded name; None if there is none."""
        return self._providers_by_folded_name.get(fold_name(name))

    def provider_names(self, *kinds: ProviderKind) -> list[str]:
        """Return the names of the providers of these kinds, kind by kind in the order of the prompt."""
        return [name for kind in kinds for name in self._names_by_kind[kind]]

    def build_catalog(self) -> Catalog:
        """Return the descriptions of all components, in the order of the plugins."""
        plugin_names = {
            id(component): plugin.name
            for plugin in self.plugins
            for component in (*plugin.actions, *plugin.providers, *plugin.evaluators, *plugin.commands)
        }
        services = [service for plugin in self.plugins for service in plugin.services]
        return Catalog(
            plugins=tuple(plugin.name for plugin in self.plugins),
            actions=tuple(
                replace(component.spec, plugin=plugin_names[id(component)]) for component in self.actions.values()
            ),
            providers=tuple(
                replace(
                    component.spec,
                    plugin=plugin_names[id(component)],
                    is_trusted_content=component.spec.is_trusted_content and self.is_trusted(component),
                )
                for component in self.providers.values()
            ),
            evaluators=tuple(
                replace(component.spec, plugin=plugin_names[id(component)]) for component in self.evaluators.values()
            ),
            services=tuple(service.__name__ for service in services),
            capabilities=tuple(service.capability for service in services if service.capability),
            commands=tuple(
                replace(component.spec, plugin=plugin_names[id(component)]) for component in self.commands.values()
            ),
        )


def _folded_similes(action: Action[Any]) -> Iterator[str]:
    yield from map(fold_name, action.spec.similes)


def _check_duplicate_routes(plugin: Plugin) -> None:
    addresses = Counter((route.method, route.path) for route in plugin.routes)
    for (method, path), count in addresses.items():
        if count > 1:
            raise PluginError(f"plugin {plugin.name!r} brings {count} routes at {method} {path}: keep one of them")


def _index_unique(kind: str, components: Iterable[tuple[Plugin, str, T]]) -> dict[str, T]:
    by_name: dict[str, T] = {}
    plugin_names: dict[str, str] = {}
    for plugin, name, component in components:
        if fold_name(name) in plugin_names:
            raise PluginError(
                f"{kind} {name} is brought by plugin {plugin_names[fold_name(name)]!r} and by plugin "
                f"{plugin.name!r}: remove one of the two from the character's plugins"
            )
        by_name[name] = component
        plugin_names[fold_name(name)] = plugin.name
    return by_name
