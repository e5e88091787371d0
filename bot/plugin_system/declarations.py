"""What a plugin declares beside its components: API version, component types, settings of worlds, tests."""

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.agent import Agent
from bot.domain.component_specs import WorldSettingSpec
from bot.domain.environment import World
from bot.errors import ComponentDataError, PluginError
from bot.plugin_system.action import check_name

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
