"""Checks of `bot plugin check` on an imported plugin, which is not started; outcomes of contracts as findings."""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from bot.cli.plugin_cards import list_components
from bot.cli.variables import list_variables
from bot.errors import PluginError, SettingError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.bundled import PluginPurpose, bundled_names
from bot.plugin_system.components import Service
from bot.plugin_system.loading import find_plugin, sort_plugins
from bot.plugin_system.plugin import Plugin, check_templates, sort_services
from bot.plugin_system.registry import Registry
from bot.settings import load_settings

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]*")


class ContractOutcome(Protocol):
    """The outcome of one rule of a contract, as `bot.testing` returns it."""

    @property
    def rule(self) -> str: ...
    @property
    def problems(self) -> Sequence[str]: ...
    @property
    def skipped(self) -> str: ...


def check_plugin(plugin: Plugin) -> Iterator[Finding]:
    """Check a plugin together with bootstrap and the plugins it requires."""
    component_lines = list(list_components(plugin))
    yield Finding(FindingStatus.OK, "plugin", plugin.name)
    yield from (Finding(FindingStatus.OK, "brings", line) for line in component_lines)
    if not component_lines and plugin.init is None and plugin.store is None and not plugin.templates:
        yield Finding(FindingStatus.WARN, "brings", "nothing", "pass actions, providers, … to Plugin(...)")
    if not NAME_PATTERN.fullmatch(plugin.name):
        advice = "use lower-case letters, digits, _ and -: the name is used in paths and character files"
        yield Finding(FindingStatus.WARN, "name", repr(plugin.name), advice)
    yield from _check_descriptions(plugin)
    yield from _check_compatibility(plugin)
    yield from _check_settings(plugin)


def contract_findings(result: ContractOutcome) -> Iterator[Finding]:
    """Yield the outcome of one rule of a contract as findings."""
    if result.skipped:
        yield Finding(FindingStatus.WARN, "contract", f"not tested: {result.rule}", result.skipped)
    elif not result.problems:
        yield Finding(FindingStatus.OK, "contract", result.rule)
    for problem in result.problems:
        yield Finding(FindingStatus.FAIL, "contract", f"not so: {result.rule}", problem)


def _check_descriptions(plugin: Plugin) -> Iterator[Finding]:
    descriptions = {component.spec.name: component.spec.description for component in plugin.actions}
    descriptions |= {component.spec.name: component.spec.description for component in plugin.providers}
    for name, description in descriptions.items():
        if not description.strip():
            yield Finding(
                FindingStatus.WARN, "text", f"{name} has no description", "the model knows nothing else about it"
            )
    for action in plugin.actions:
        for name, schema in action.spec.parameters.get("properties", {}).items():
            if not schema.get("description"):
                advice = 'describe it: Annotated[str, "The city\'s name"]'
                yield Finding(FindingStatus.WARN, "text", f"{action.spec.name}: {name} has no description", advice)


def _check_compatibility(plugin: Plugin) -> Iterator[Finding]:
    """Check that a plugin can be registered with the base plugin and the plugins it requires."""
    for service in plugin.services:
        if not (isinstance(service, type) and issubclass(service, Service)):
            message = f"{service!r} is not a Service"
            yield Finding(FindingStatus.FAIL, "services", message, "derive it from bot.Service")
            return
    required_plugins: dict[str, Plugin] = {}
    try:
        for name in dict.fromkeys([*bundled_names(PluginPurpose.BASE), *plugin.requires]):
            required_plugin = find_plugin(name)
            if required_plugin is not None and required_plugin.name != plugin.name:
                required_plugins[required_plugin.name] = required_plugin
        plugins = sort_plugins([*required_plugins.values(), plugin])
        Registry(plugins)
        check_templates(plugins)
        sort_services(plugins)
    except PluginError as error:
        yield Finding(FindingStatus.FAIL, "plugins", str(error), "the plugin cannot be loaded like this")


def _check_settings(plugin: Plugin) -> Iterator[Finding]:
    settings = load_settings()
    if plugin.settings is not None:
        for variable in list_variables(plugin.settings):
            if not variable.description:
                advice = 'describe it: Field(…, description="…")'
                yield Finding(FindingStatus.WARN, "settings", f"{variable.name} has no description", advice)
        try:
            settings.load(plugin.settings)
        except SettingError as error:
            yield Finding(FindingStatus.WARN, "settings", str(error), "correct the variable")
    if missing_reason := plugin.missing_settings(settings):
        yield Finding(FindingStatus.WARN, "settings", f"it is off: {missing_reason}", "set it before using the plugin")
