"""Plugins, variables and checks of the program around a running agent."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from bot.characters import load_character
from bot.characters.secret_detection import mask_secrets
from bot.cli.characters import CharacterConfig, ignored_settings_note, reload_character_config
from bot.cli.doctor import checks
from bot.cli.doctor.account_checks import check_accounts, check_tasks
from bot.cli.doctor.model_checks import check_budget
from bot.cli.platforms import WEB, list_platforms
from bot.cli.plugin_cards import describe_unused_plugins, list_cards
from bot.cli.variables import SettingsGroup, Variable, find_settings_groups, list_variables
from bot.errors import ConfigError, SettingError
from bot.inbound.operator_tools import Finding, FindingStatus, PluginState, VariableState
from bot.plugin_system.plugin import Plugin
from bot.settings import CoreSettings, Settings

LOG_ADVICE = "the log says more; correct the cause and start the bot again"


async def read_installed_plugins(config: CharacterConfig) -> list[Mapping[str, Any]]:
    """Return what `bot plugin list --json` prints of the plugins that a character does not use, without their code.

    The libraries of plugins that are off would double the size of this process.
    """
    return await asyncio.to_thread(lambda: list(describe_unused_plugins(config)))


def list_plugin_states(
    config: CharacterConfig,
    inactive: Mapping[str, str],
    failures: Mapping[type, str],
    installed: Sequence[Mapping[str, Any]],
) -> list[PluginState]:
    """Return the installed plugins, those with a problem first.

    `failures` are those of services, by class; `installed` is what `read_installed_plugins` returns.
    """
    causes = find_failures(config, inactive, failures)
    used = [card.to_json() for card in list_cards(config, only_used=True)]
    states = [_plugin_state(card, causes.get(card["name"], ""), config) for card in (*used, *installed)]
    return sorted(states, key=lambda state: (state.name not in causes, not state.is_on, state.name))


def find_failures(config: CharacterConfig, inactive: Mapping[str, str], failures: Mapping[type, str]) -> dict[str, str]:
    """Return why plugins of a character are off, or what their services failed with, by their names."""
    causes = dict(inactive)
    for plugin in config.plugins:
        cause = next((failures[service] for service in plugin.services if service in failures), "")
        if cause:
            causes.setdefault(plugin.name, cause)
    return causes


def _plugin_state(card: Mapping[str, Any], cause: str, config: CharacterConfig) -> PluginState:
    advice = LOG_ADVICE if cause else ""
    if card["reason"] and not cause:
        advice = f"name {card['name']!r} among the plugins of {config.path.name}, and start the bot again"
        if card["missing"]:
            advice = "set it in .env or the environment, and start the bot again"
        if card.get("install"):
            advice = f"{advice}; packages of it are not installed: {card['install']}"
    return PluginState(
        name=card["name"],
        description=card["description"],
        is_on=not (card["reason"] or cause),
        is_failed=bool(cause),
        why=cause or card["reason"],
        fix=advice,
        package=card["package"],
        version=card["version"],
        components=card["components"],
        settings=card["settings"],
    )


def list_variable_states(settings: Settings, plugins: Sequence[Plugin]) -> list[VariableState]:
    """Return every variable of the core, adapters and plugins; a secret has no value."""
    groups, _ = find_settings_groups(plugins, imports_others=False)
    settings = settings.with_models(*(group.model for group in groups))
    return [_variable_state(group, item, settings) for group in groups for item in list_variables(group.model)]


def _variable_state(group: SettingsGroup, variable: Variable, settings: Settings) -> VariableState:
    origin = settings.source_of(variable.name)
    value = None
    if not variable.is_secret:
        value, _ = mask_secrets(settings.get(variable.name) or variable.default)
    return VariableState(
        name=variable.name,
        part=group.name,
        meaning=variable.description,
        value=value or None,
        default=variable.default,
        origin=origin,
        is_secret=variable.is_secret,
        is_character_setting=variable.is_character_setting,
    )


def run_checks(config: CharacterConfig, settings: Settings) -> Iterator[Finding]:
    """Run the checks of `bot doctor` but those of the port, which this process has, and of the model."""
    yield from checks.check_python()
    yield from _check_character(config)
    groups, problems = find_settings_groups(config.plugins, imports_others=False)
    settings = settings.with_models(*(group.model for group in groups))
    for note in ignored_settings_note(settings):
        yield Finding(FindingStatus.WARN, "settings", note)
    yield from checks.check_settings(settings, groups)
    for problem in problems:
        yield Finding(FindingStatus.OK, "platforms", f"not available: {problem}")
    with suppress(SettingError):
        yield from checks.check_files(settings.load(CoreSettings))
    yield from checks.check_plugins(config)
    yield from checks.check_database(config)
    yield from check_tasks(config)
    platforms = list_platforms([config])
    yield from checks.check_platforms([platform for platform in platforms if platform.name != WEB])
    yield from check_budget(settings)
    yield from check_accounts(config, platforms)


def _check_character(config: CharacterConfig) -> Iterator[Finding]:
    """Check the file as it is now; the agent may run an earlier version of it."""
    try:
        loaded = load_character(config.path)
        reload_character_config(config)
    except ConfigError as error:
        lines = [line for line in str(error).splitlines() if not line.startswith(" ")]
        advice = "correct the file; the bot runs the last version that it could use"
        yield Finding(FindingStatus.FAIL, "character", "; ".join(lines), advice)
    else:
        yield from checks.check_character(config.path, loaded)
