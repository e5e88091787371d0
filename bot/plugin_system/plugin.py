"""`Plugin`: a named set of components.

What a plugin declares beside its components: API version, component types, settings of worlds, tests.
"""

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.care.settings import CareSettings
from bot.costs.budget import BudgetSettings
from bot.domain.character import WorldSettingSpec
from bot.domain.environment import World
from bot.errors import ComponentDataError, PluginError, SettingError
from bot.models.handler import ModelSettings
from bot.outbound.proposals import ApprovalSettings
from bot.plugin_system.components import (
    CONDITION,
    NUMBER,
    Action,
    Command,
    Evaluator,
    Filter,
    Listener,
    Model,
    Provider,
    Route,
    Service,
    Worker,
    check_name,
    check_types,
)
from bot.prompts.templates import DEFAULTS, find_problems
from bot.settings import CoreSettings, FilterSettings, NetworkSettings, Settings, SettingsModel, character_settings
from bot.store.protocols import Schema, Schemas
from bot.store.storage import OpenStore, SimpleStorage, Storage
from bot.turn import Agent
from bot.watchdog.settings import OwnerSettings

MIN_API, MAX_API = 1, 1
MAX_PROBLEMS = 5
OnSet = Callable[[Agent, World, Any], Awaitable[str | None]]


def check_api(plugin: str, api: str) -> None:
    """Raise PluginError for a plugin that was written for a version of the plugin API that is not supported."""
    if api.isascii() and api.isdigit() and MIN_API <= int(api) <= MAX_API:
        return
    supported = str(MAX_API) if MIN_API == MAX_API else f"{MIN_API} to {MAX_API}"
    advice = f'write api="{MAX_API}", or leave it out'
    if api.isascii() and api.isdigit():
        is_newer = int(api) > MAX_API
        advice = "upgrade Greenroom" if is_newer else "install a newer version of the plugin"
        advice += f', or change the plugin to version {MAX_API} and write api="{MAX_API}" (docs/writing-a-plugin.md)'
    raise PluginError(f"plugin {plugin!r} needs plugin API {api!r}, and this version supports {supported}: {advice}")


@dataclass(frozen=True, slots=True)
class ComponentType:
    """A type of entity components: what is stored about people under this name.

    `schema` is a pydantic model or a JSON schema; `validator` returns whether data that fit it are acceptable.
    Raises PluginError for a name that is not UPPER_SNAKE, and for a JSON schema without the library for it.
    """

    name: str
    description: str
    schema: type[BaseModel] | Mapping[str, Any]
    validator: Callable[[Mapping[str, Any]], bool] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "component type")
        if isinstance(self.schema, Mapping):
            _build_validator(self.name, self.schema)

    @property
    def json_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the data."""
        return self.schema if isinstance(self.schema, Mapping) else self.schema.model_json_schema()

    def check(self, data: Mapping[str, Any]) -> None:
        """Raise ComponentDataError with what does not fit."""
        problems = self._find_problems(data)
        if not problems and self.validator is not None and not self.validator(data):
            problems = ["its values are not accepted"]
        if problems:
            raise ComponentDataError(f"component {self.name}: {'; '.join(problems[:MAX_PROBLEMS])}")

    def _find_problems(self, data: Mapping[str, Any]) -> list[str]:
        if isinstance(self.schema, Mapping):
            errors = _build_validator(self.name, self.schema).iter_errors(dict(data))
            return [f"{error.json_path.removeprefix('$.')}: {error.message}" for error in errors]
        try:
            self.schema.model_validate(dict(data))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            return [f"{'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}" for problem in problems]
        return []


def _build_validator(name: str, schema: Mapping[str, Any]) -> Any:
    """Return a validator of a JSON schema, which reads no other document; raises PluginError."""
    try:
        jsonschema, specifications = map(importlib.import_module, ("jsonschema", "jsonschema_specifications"))
    except ModuleNotFoundError:
        raise PluginError(
            f"component type {name} is described by a JSON schema, and jsonschema is not installed: "
            "install the extra `schemas`, or describe it by a pydantic model"
        ) from None
    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise PluginError(f"component type {name}: its schema is no JSON schema: {error.message}") from None
    return jsonschema.Draft202012Validator(schema, registry=specifications.REGISTRY)


@dataclass(frozen=True, slots=True)
class WorldSetting:
    """A setting that the owner of a world fills: in a direct message, with `/settings`, or by the HTTP API.

    `description` says what it is, `usage` what its value does and looks like. A `secret` one is stored encrypted,
    and no model sees it. A `required` one is asked for until it is set. It can be set once those in `depends_on`
    are, and where `visible_if` returns True for the values of the plugin's settings by name, in which a secret
    that is set is `[redacted]`. `validation` returns what is wrong with a value; empty if it is valid. `on_set`
    is called with the agent, the world and the new value once it is stored, a `SecretStr` of a secret one and
    empty where it was removed; what it returns is told to the owner. Raises PluginError for a name that is not
    UPPER_SNAKE.
    """

    name: str
    description: str
    usage: str = ""
    secret: bool = False
    required: bool = False
    default: str = ""
    depends_on: Sequence[str] = ()
    visible_if: Callable[[Mapping[str, str]], bool] | None = None
    validation: Callable[[str], str] | None = None
    on_set: OnSet | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "setting of a world")
        if self.secret and self.default:
            raise PluginError(f"setting {self.name}: a secret has no default, which everybody could read")

    def to_spec(self, plugin: str) -> WorldSettingSpec:
        """Return its description, as a setting of this plugin."""
        return WorldSettingSpec(
            self.name,
            self.description,
            self.usage,
            is_secret=self.secret,
            is_required=self.required,
            depends_on=tuple(self.depends_on),
            plugin=plugin,
        )


@dataclass(frozen=True, slots=True)
class PluginTest:
    """One test of a plugin: its name, and an async function that takes an `AgentHarness` of `bot.testing`.

    It fails if the function raises.
    """

    name: str
    run: Callable[[Any], Awaitable[None]]
    description: str = ""


@dataclass(frozen=True, slots=True)
class PluginTestSuite:
    """Tests of a plugin that belong together; each gets a running agent of its own.

    `settings` are the variables of those agents.
    """

    name: str
    tests: Sequence[PluginTest]
    settings: Mapping[str, str] | None = None


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
    missing_settings: Callable[[Settings], str] = lambda settings: ""
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
    filters: Sequence[Filter] = ()
    api: str = str(MAX_API)
    notice: str = ""

    def __post_init__(self) -> None:
        texts = ("name", "description", "api", "notice")
        lists = ("services", "requires", "component_types", "replaces", "tests", "test_requires", "template_variables")
        check_types(
            f"plugin {self.name!r:.80}",
            **{name: (getattr(self, name), str) for name in texts},
            **{name: (getattr(self, name), Sequence) for name in lists},
            **{name: (getattr(self, name), Mapping) for name in ("templates", "memory_kinds")},
            **{name: (getattr(self, name), CONDITION) for name in ("init", "privacy_statement")},
            priority=(self.priority, NUMBER),
            missing_settings=(self.missing_settings, Callable),
            settings=(self.settings, type | None),
        )
        for service in self.services:
            check_types(f"plugin {self.name!r}: an item of its services", it=(service, type))
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

    def why_off(self, settings: Settings) -> str:
        """Return why the plugin cannot work with these settings; empty if it can.

        Raises SettingError for a setting of a bundled plugin that is not valid.
        """
        try:
            missing = self.missing_settings(settings)
        except SettingError as error:
            if self.is_trusted:
                raise
            return str(error)
        except Exception as error:  # a plugin's function may raise anything
            return f"its missing_settings failed: {type(error).__name__}: {error}"
        if not missing:
            return ""
        return missing if isinstance(missing, str) else f"its missing_settings returned {missing!r:.80}, not a text"


CORE_MODELS = (
    CoreSettings,
    NetworkSettings,
    ModelSettings,
    BudgetSettings,
    OwnerSettings,
    CareSettings,
    FilterSettings,
    ApprovalSettings,
)


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
    "filters": Filter,
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
