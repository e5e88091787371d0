"""`Plugin`: a named set of components."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

from bot.agent import Agent
from bot.costs.budget import BudgetSettings
from bot.errors import PluginError
from bot.models.settings import ModelSettings
from bot.plugin_system.action import Action
from bot.plugin_system.command import Command
from bot.plugin_system.components import Evaluator, Listener, Model, Provider, Service, Worker
from bot.plugin_system.declarations import MAX_API, ComponentType, PluginTestSuite, WorldSetting, check_api
from bot.plugin_system.routes import Route
from bot.prompts.templates import DEFAULTS, find_problems
from bot.settings import CoreSettings, NetworkSettings, Settings, SettingsModel, character_settings
from bot.store.protocols import Schema, Schemas
from bot.store.storage import OpenStore, SimpleStorage, Storage
from bot.watchdog.settings import OwnerSettings


def _nothing_missing(settings: Settings) -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """A named set of components; built by its author, bound to an agent by the runtime.

    `requires` names plugins that must be loaded before it; `test_requires` those that only its `tests` need.
    `missing_settings` returns why it cannot work with these settings (empty: it can); then it is left out with
    that note. `settings` declares its variables. `init` runs once the agent's services are up. `priority`
    decides between plugins: of two model handlers without a priority of their own, and of two templates of one
    name, that of the plugin with the higher one is used first. `replaces` names components of other plugins
    instead of which its own of these names are used. `template_variables` are names of values that its
    providers and actions set for templates. `component_types` are types of entity components: their
    data are checked before they are stored. `world_settings` are what the owners of worlds fill. `memory_kinds`
    are kinds of memories of its own, and how long they are stored. `api` is the version of the plugin API it was
    written for. `store`
    opens an agent's store; `bot db` maintains a `Storage`. `schema` are the plugin's own tables in that store.
    `privacy_statement` returns a sentence on what it stores about users and for how long, or where it sends
    their messages. `is_trusted` is set by the loader for plugins of this distribution: their code is awaited
    directly, not in a task that can be stopped by force. `notice` is a line for the operator at each start; `{name}`
    in it is the character's.
    """

    name: str
    description: str = ""
    actions: Sequence[Action[Any]] = ()
    providers: Sequence[Provider] = ()
    evaluators: Sequence[Evaluator] = ()
    services: Sequence[type[Service]] = ()
    models: Sequence[Model] = ()
    workers: Sequence[Worker] = ()
    listeners: Sequence[Listener[Any]] = ()
    commands: Sequence[Command[Any]] = ()
    routes: Sequence[Route] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    settings: type[SettingsModel] | None = None
    requires: Sequence[str] = ()
    priority: int = 0
    missing_settings: Callable[[Settings], str] = _nothing_missing
    init: Callable[[Agent], Awaitable[None]] | None = None
    store: Storage | OpenStore | None = None
    schema: Schema | None = None
    privacy_statement: Callable[[Settings], str] | None = None
    is_trusted: bool = False
    component_types: Sequence[ComponentType] = ()
    replaces: Sequence[str] = ()
    tests: Sequence[PluginTestSuite] = ()
    test_requires: Sequence[str] = ()
    template_variables: Sequence[str] = ()
    memory_kinds: Mapping[str, timedelta] = field(default_factory=dict)
    world_settings: Sequence[WorldSetting] = ()
    api: str = str(MAX_API)
    notice: str = ""

    def __post_init__(self) -> None:
        check_api(self.name, self.api)
        _check_settings(self)
        for part, kind in COMPONENT_KINDS.items():
            items = getattr(self, part)
            if not isinstance(items, Sequence):
                raise PluginError(f"plugin {self.name!r}: {part} is a {type(items).__name__}: write a list")
            for item in items:
                if not isinstance(item, kind):
                    label = getattr(item, "__name__", repr(item))[:80]
                    hint = f"decorate the function with @{part[:-1] if part != 'listeners' else 'on'}(...)"
                    raise PluginError(f"plugin {self.name!r}: {label} in its {part} is none of them: {hint}")


CORE_MODELS = (CoreSettings, NetworkSettings, ModelSettings, BudgetSettings, OwnerSettings)


def _check_settings(plugin: Plugin) -> None:
    """Raise PluginError for a plugin that declares a variable of the program: it could change who may set it."""
    declared = character_settings(plugin.settings) if plugin.settings is not None else {}
    taken = declared.keys() & {name for model in CORE_MODELS for name in character_settings(model)}
    if taken:
        names = ", ".join(sorted(taken))
        raise PluginError(
            f"plugin {plugin.name!r}: its settings declare {names}, which the program itself reads: "
            f"choose another name, such as {plugin.name.upper()}_{min(taken)}"
        )


COMPONENT_KINDS = {
    "actions": Action,
    "providers": Provider,
    "evaluators": Evaluator,
    "models": Model,
    "workers": Worker,
    "listeners": Listener,
    "commands": Command,
    "routes": Route,
}


def find_storage(plugins: Sequence[Plugin]) -> Storage | None:
    """Return the storage of the first plugin that has one."""
    store = next((plugin.store for plugin in plugins if plugin.store is not None), None)
    return store if store is None or isinstance(store, Storage) else SimpleStorage(store)


def collect_schemas(plugins: Iterable[Plugin]) -> Schemas:
    """Return the schemas of these plugins by plugin name."""
    return {plugin.name: plugin.schema for plugin in plugins if plugin.schema is not None}


def merge_templates(plugins: Iterable[Plugin]) -> dict[str, str]:
    """Return the templates of these plugins by name: that of the highest priority, then of the last plugin."""
    by_priority = sorted(plugins, key=lambda plugin: plugin.priority)
    return {name: text for plugin in by_priority for name, text in plugin.templates.items()}


def check_templates(plugins: Sequence[Plugin]) -> None:
    """Raise PluginError for a template of a plugin that cannot be compiled, or whose name or variable is misspelled.

    Names and variables that are unlike any known one are the plugin's own.
    """
    variables = {name for plugin in plugins for name in plugin.template_variables}
    for plugin in plugins:
        others = {**DEFAULTS, **merge_templates(other for other in plugins if other is not plugin)}
        for name, source in plugin.templates.items():
            for problem in find_problems(name, source, others, {*variables, *plugin.template_variables}):
                if problem.is_error:
                    raise PluginError(f"plugin {plugin.name!r}: template {name!r}: {problem.message}")


def sort_services(plugins: Sequence[Plugin]) -> list[type[Service]]:
    """Return the services of these plugins, each after those that it uses.

    Raises PluginError naming services that use one another.
    """
    services = dict.fromkeys(service for plugin in plugins for service in plugin.services)
    model_services = {service for plugin in plugins if plugin.models for service in plugin.services}
    model_services -= {service for service in model_services if service.uses_models}
    graph = TopologicalSorter[type[Service]](dict.fromkeys(services, ()))
    for service in services:
        graph.add(service, *(used for used in services if issubclass(used, service.uses) and used is not service))
        graph.add(service, *(model_services if service.uses_models else ()))
    try:
        return list(graph.static_order())
    except CycleError as error:
        names = ", ".join(service.__name__ for service in reversed(error.args[1][1:]))
        raise PluginError(f"services use one another: {names}") from None
