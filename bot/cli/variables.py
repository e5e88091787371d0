"""All variables: which part declares them, their meaning, their default, and their value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field, SecretStr, create_model

from bot import settings
from bot.care.settings import CareSettings
from bot.characters.source import mask_secrets
from bot.costs.budget import BudgetSettings
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.models.handler import ModelSettings
from bot.operate.tools import VariableState
from bot.outbound.proposals import ApprovalSettings
from bot.plugin_system.loading import bundled_descriptions, find_adapters, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.watchdog.settings import OwnerSettings


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """The settings model of one part of the program."""

    name: str
    model: type[settings.SettingsModel]


MAX_MISSPELT_SHARE = 0.15  # of the name of a variable, which may be another program's
CORE_GROUPS = (
    SettingsGroup("core", settings.CoreSettings),
    SettingsGroup("network", settings.NetworkSettings),
    SettingsGroup("models", ModelSettings),
    SettingsGroup("money", BudgetSettings),
    SettingsGroup("owner", OwnerSettings),
    SettingsGroup("care", CareSettings),
    SettingsGroup("filters", settings.FilterSettings),
    SettingsGroup("approval", ApprovalSettings),
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `default` is formatted as in `.env`. A character's file sets only those that it may."""

    name: str
    description: str
    default: str
    is_secret: bool
    is_character_setting: bool


def find_adapter_groups() -> tuple[list[SettingsGroup], list[str]]:
    """Return the settings models of all adapters, which are quick to import, and load problems."""
    adapters = {f"{name} adapter": adapter for name, adapter in find_adapters().items()}
    groups = [SettingsGroup(name, item.settings) for name, item in adapters.items() if isinstance(item, AdapterSpec)]
    return groups, [f"{name}: {problem}" for name, problem in adapters.items() if isinstance(problem, str)]


def find_settings_groups(
    plugins: Sequence[Plugin] = (), *, imports_others: bool = True
) -> tuple[list[SettingsGroup], list[str]]:
    """Return the settings models of the core, all adapters, all plugins and `plugins`, and load problems.

    Without `imports_others`, as in a running bot, no plugin is imported: the bundled ones have a model made from their
    description, which accepts any text, and plugins of other distributions are left out. So has a bundled plugin of
    which a package is not installed.
    """
    adapter_groups, problems = find_adapter_groups()
    models: dict[str, type[settings.SettingsModel] | None] = {}
    if imports_others:
        for name in plugin_names():
            try:
                if (plugin := find_plugin(name)) is not None:
                    models[name] = plugin.settings
            except PluginError as error:
                if name in bundled_descriptions() and isinstance(error.__cause__, ModuleNotFoundError):
                    models[name] = _described_model(name)  # what it needs is an extra that is not installed
                else:
                    problems.append(str(error))
    else:
        models |= {name: _described_model(name) for name, item in bundled_descriptions().items() if item["variables"]}
    models.update((plugin.name, plugin.settings) for plugin in plugins)
    groups = [SettingsGroup(f"{name} plugin", model) for name, model in models.items() if model]
    return [*CORE_GROUPS, *adapter_groups, *groups], problems


@lru_cache(maxsize=64)  # the same plugin must have the same model
def _described_model(name: str) -> type[settings.SettingsModel]:
    """Return a model with the variables of a bundled plugin that is not imported."""
    variables = bundled_descriptions()[name]["variables"]
    fields: dict[str, Any] = {
        item["name"].lower(): (
            SecretStr | None if item["is_secret"] else str,
            Field(None if item["is_secret"] else item["default"], description=item["description"]),
        )
        for item in variables
    }
    own = frozenset(item["name"] for item in variables if item["is_character_setting"])
    model = create_model(f"{name}_settings", __base__=settings.SettingsModel, **fields)
    model.CHARACTER_SETTINGS = own
    return model


def known_variables(plugins: Sequence[Plugin], groups: Sequence[SettingsGroup] = CORE_GROUPS) -> dict[str, Variable]:
    """Return all variables of these groups and plugins by name."""
    models = [*(group.model for group in groups), *(plugin.settings for plugin in plugins)]
    return {variable.name: variable for model in models for variable in list_variables(model)}


def list_variables(model: type[settings.SettingsModel] | None) -> Iterator[Variable]:
    """Yield a model's variables in the order of declaration; none without a model."""
    if model is None:
        return
    secret_names = {name for name, _ in settings.secret_fields(model)}
    owners = settings.character_settings(model)
    for name, field in model.model_fields.items():
        alias = field.alias or name.upper()
        is_secret = name in secret_names or settings.is_secret_name(alias)
        default = field.get_default(call_default_factory=True)
        default_text = "" if is_secret else _format_default(default)
        yield Variable(alias, field.description or "", default_text, is_secret, owners[alias])


def group_summary(model: type[settings.SettingsModel]) -> str:
    """Return the first line of a settings model's docstring."""
    lines = (model.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def _format_default(value: Any) -> str:
    if value is None or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | set | frozenset):
        return ",".join(map(_format_default, value))
    return str(value)


def describe_variables(groups: Sequence[SettingsGroup], values: settings.Settings) -> list[VariableState]:
    """Return the variables of these groups with their values and where these stand; a secret has no value."""
    return [
        VariableState(
            name=variable.name,
            part=group.name,
            meaning=variable.description,
            value=None
            if variable.is_secret
            else mask_secrets(values.get(variable.name) or variable.default)[0] or None,
            default=variable.default,
            origin=values.source_of(variable.name),
            is_secret=variable.is_secret,
            is_character_setting=variable.is_character_setting,
        )
        for group in groups
        for variable in list_variables(group.model)
    ]
