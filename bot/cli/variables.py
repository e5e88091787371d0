"""Every variable there is: who declares it, what it means, and what it is when nobody sets it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SecretStr

from bot.costs.budget import MoneySettings
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.models.settings import ModelSettings
from bot.plugin_system.loading import find_adapters, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.settings import CoreSettings, SettingsModel, looks_secret, secret_fields


class NetworkSettings(SettingsModel):
    """The standard variables for every outgoing connection."""

    https_proxy: str | None = Field(None, description="The proxy for https addresses, as http://host:port.")
    http_proxy: str | None = Field(None, description="The proxy for http addresses.")
    no_proxy: str | None = Field(None, description="Hosts that are reached without it, parted by commas.")
    ssl_cert_file: str | None = Field(None, description="Certificates to trust instead of the system's.")


@dataclass(frozen=True, slots=True)
class Group:
    """The variables of one part of the program."""

    name: str
    model: type[SettingsModel]


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `default` is written as it would stand in `.env`."""

    name: str
    description: str
    default: str
    is_secret: bool


def known_groups(plugins: Sequence[Plugin] = ()) -> tuple[list[Group], list[str]]:
    """Find every settings model: the core's, all adapters', all plugins', and those of `plugins`.

    Gives also what could not be looked at, and why.
    """
    groups = [
        Group("core", CoreSettings),
        Group("network", NetworkSettings),
        Group("models", ModelSettings),
        Group("money", MoneySettings),
    ]
    problems: list[str] = []
    for name, found in find_adapters().items():
        if isinstance(found, AdapterSpec):
            groups.append(Group(f"{name} adapter", found.settings))
        else:
            problems.append(f"{name} adapter: {found}")
    by_name: dict[str, Plugin] = {}
    for name in plugin_names():
        try:
            if (plugin := find_plugin(name)) is not None:
                by_name[name] = plugin
        except PluginError as error:
            problems.append(str(error))
    by_name.update((plugin.name, plugin) for plugin in plugins)
    groups += [Group(f"{name} plugin", one.settings) for name, one in by_name.items() if one.settings]
    return groups, problems


def variables(model: type[SettingsModel]) -> Iterator[Variable]:
    """List a model's variables in the order in which it declares them."""
    secret = {name for name, _ in secret_fields(model)}
    for name, field in model.model_fields.items():
        alias = field.alias or name.upper()
        is_secret = name in secret or looks_secret(alias)
        default = field.get_default(call_default_factory=True)
        yield Variable(alias, field.description or "", "" if is_secret else _written(default), is_secret)


def purpose(model: type[SettingsModel]) -> str:
    """Say in a line what a group of variables is for."""
    lines = (model.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def _written(value: Any) -> str:
    if value is None or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | set | frozenset):
        return ",".join(map(_written, value))
    return str(value)
