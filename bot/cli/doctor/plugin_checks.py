"""What `bot plugin check` looks at in a plugin that has been imported; nothing of it is started."""

import re
from collections.abc import Iterator

from bot.cli.doctor.checks import Finding, Status
from bot.cli.variables import variables
from bot.errors import PluginError, SettingError
from bot.plugin_system.components import Service
from bot.plugin_system.loading import BOOTSTRAP, find_plugin, sort_plugins
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.settings import read_settings

NAME = re.compile(r"[a-z][a-z0-9_-]*")


def check_plugin(plugin: Plugin) -> Iterator[Finding]:
    """Look at a plugin as it would stand beside the others."""
    parts = list(brought(plugin))
    yield Finding(Status.OK, "plugin", plugin.name)
    yield from (Finding(Status.OK, "brings", part) for part in parts)
    if not parts and plugin.init is None and plugin.store is None and not plugin.templates:
        yield Finding(Status.WARN, "brings", "nothing at all", "give Plugin(...) actions, providers, …")
    if not NAME.fullmatch(plugin.name):
        advice = "use lower-case letters, digits, _ and - : it stands in paths and character files"
        yield Finding(Status.WARN, "name", repr(plugin.name), advice)
    yield from _descriptions(plugin)
    yield from _company(plugin)
    yield from _settings(plugin)


def brought(plugin: Plugin) -> Iterator[str]:
    """Say what a plugin brings, a line a kind."""
    kinds = {
        "actions": [one.spec.name for one in plugin.actions],
        "providers": [one.spec.name for one in plugin.providers],
        "evaluators": [one.spec.name for one in plugin.evaluators],
        "services": [one.__name__ for one in plugin.services],
        "models": [one.type.value for one in plugin.models],
        "workers": [one.name for one in plugin.workers],
        "listeners": [one.kind.__name__ for one in plugin.listeners],
        "commands": [f"/{one.spec.name}" for one in plugin.commands],
        "routes": [f"{one.method} /plugins/{plugin.name}{one.path}" for one in plugin.routes],
    }
    for kind, names in kinds.items():
        if names:
            yield f"{kind}: {', '.join(names)}"


def _descriptions(plugin: Plugin) -> Iterator[Finding]:
    described = {one.spec.name: one.spec.description for one in plugin.actions}
    described |= {one.spec.name: one.spec.description for one in plugin.providers}
    for name, description in described.items():
        if not description.strip():
            yield Finding(
                Status.WARN, "text", f"{name} has no description", "it is all the model knows of it"
            )
    for action in plugin.actions:
        for name, schema in action.spec.parameters.get("properties", {}).items():
            if not schema.get("description"):
                advice = 'describe it: Annotated[str, "The city\'s name"]'
                yield Finding(Status.WARN, "text", f"{action.spec.name}: {name} has no description", advice)


def _company(plugin: Plugin) -> Iterator[Finding]:
    """Look at how it gets on with bootstrap and with those it requires."""
    for kind in plugin.services:
        if not (isinstance(kind, type) and issubclass(kind, Service)):
            yield Finding(Status.FAIL, "services", f"{kind!r} is no Service", "derive it from bot.Service")
    others: dict[str, Plugin] = {}
    try:
        for name in dict.fromkeys([BOOTSTRAP, *plugin.requires]):
            found = find_plugin(name)
            if found is not None and found.name != plugin.name:
                others[found.name] = found
        Registry(sort_plugins([*others.values(), plugin]))
    except PluginError as error:
        yield Finding(Status.FAIL, "company", str(error), "it cannot be loaded like this")


def _settings(plugin: Plugin) -> Iterator[Finding]:
    settings = read_settings()
    if plugin.settings is not None:
        for variable in variables(plugin.settings):
            if not variable.description:
                advice = 'say what it is for: Field(…, description="…")'
                yield Finding(Status.WARN, "settings", f"{variable.name} has no description", advice)
        try:
            settings.load(plugin.settings)
        except SettingError as error:
            yield Finding(Status.WARN, "settings", str(error), "correct it where it stands")
    if missing := plugin.lacks(settings):
        yield Finding(Status.WARN, "settings", f"it is off here: {missing}", "set it before using the plugin")
