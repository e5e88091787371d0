"""Checks of `bot doctor`: each yields findings; a problem comes with advice.

Checks of platform accounts, and of parked and orphaned tasks.

Checks of `bot plugin check` on an imported plugin, which is not started; outcomes of contracts as findings.
"""

import asyncio
import os
import re
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from platform import python_version
from typing import Protocol

from bot.background.maintenance import BackupFolder, find_backup_problem
from bot.background.posting import POST_WORKER
from bot.characters import LoadedCharacter
from bot.cli import characters
from bot.cli.options import colour_state
from bot.cli.plugins import component_names
from bot.cli.process.shutdown import print_line
from bot.cli.running_bot import ANY_STATUS, find_own_bot, open_store_for_reading
from bot.cli.variables import MAX_MISSPELT_SHARE, SettingsGroup, find_settings_groups, list_variables
from bot.concurrency.clock import system_clock
from bot.costs.budget import BudgetSettings, build_limits
from bot.domain.task import Task
from bot.errors import BotError, ConfigError, PluginError, SettingError, TemporaryError
from bot.operate.tools import Finding, TaskControl
from bot.outbound.proposals import ApprovalSettings
from bot.plugin_system.components import Service
from bot.plugin_system.loading import PluginPurpose, bundled_names, find_plugin, sort_plugins
from bot.plugin_system.plugin import Plugin, find_storage
from bot.plugin_system.registry import check_combination
from bot.settings import (
    OFF,
    CoreSettings,
    FilterSettings,
    Settings,
    SettingsModel,
    find_unreadable_lines,
    load_settings,
)
from bot.store.storage import CheckReport, Storage
from bot.text import find_closest, shorten, strip_terminal_codes, translate_message

MIN_PYTHON = (3, 11)
OTHERS_MODE_BITS = 0o077
NOT_INSTALLED = "which is not installed"
INSTALLING_ADVICE = "install it; a plugin that is not needed can be taken out of the character's file"
SETTING_ADVICE = "set the variable; a plugin that is not needed can be taken out of the character's file"
STARTING_ADVICE = "correct it: the character does not start like this"
INACTIVE_ADVICE = "correct it, or remove the plugin from the character's file"
SETTINGS_ADVICE = "correct the setting; `bot settings` explains each variable"


def print_finding(finding: Finding) -> None:
    """Print a finding, its status in colour on a terminal."""
    line = f"{finding.status:<5} {finding.check:<10} {translate_message(finding.message)}"
    print(colour_state(strip_terminal_codes(line, allowed="\n")), flush=True)
    if finding.advice:
        print_line(f"{'':<16} → {translate_message(finding.advice)}")


def check_python() -> Iterator[Finding]:
    """Check the version of Python."""
    version, min_version = python_version(), ".".join(map(str, MIN_PYTHON))
    if sys.version_info >= MIN_PYTHON:
        yield Finding.ok("python", version)
    else:
        yield Finding.fail("python", version, f"install Python {min_version} or newer and reinstall the bot with it")


def check_character(path: Path, loaded: LoadedCharacter) -> Iterator[Finding]:
    """Report the warnings and secrets that were found in the character's file."""
    yield Finding.ok("character", f"{loaded.character.name} ({path})")
    for note in loaded.report.warnings:
        yield Finding.warn("character", f"{path}: {note}", f"see `bot character check {path}`")
    for note in loaded.report.secrets:
        yield Finding.warn("character", f"{path}: {note}", "move it to .env: files are passed on")


def check_plugins(config: characters.CharacterConfig) -> Iterator[Finding]:
    """Report which plugins are on, whether they can be used together, and notes about the others."""
    yield Finding.ok("plugins", ", ".join(plugin.name for plugin in config.plugins))
    try:
        check_combination(config.plugins)
    except PluginError as error:
        yield Finding.fail("plugins", str(error), STARTING_ADVICE)
    for name, cause in config.inactive.items():
        yield Finding.fail("plugins", f"{name} is off: {cause}", INACTIVE_ADVICE)
    for note in config.notes:
        advice = INSTALLING_ADVICE if NOT_INSTALLED in note else SETTING_ADVICE
        yield Finding.warn("plugins", note, advice)


def check_settings(
    settings: Settings, groups: Sequence[SettingsGroup], reported: Collection[str] = (), unchecked: Collection[str] = ()
) -> Iterator[Finding]:
    """Check the value of every variable, and names in `.env` that look misspelled.

    `reported` are problems of variables that were reported before; `unchecked` says why there are others, which are
    not among these groups.
    """
    problems = settings.find_problems(group.model for group in groups)
    for line in problems:
        if line not in reported:
            yield Finding.fail("settings", line, SETTINGS_ADVICE)
    known_names = {variable.name for group in groups for variable in list_variables(group.model)}
    if not problems and not reported:
        count = sum(name in settings for name in known_names)
        verdict = "all well-formed" if not unchecked else "well-formed where they could be checked"
        yield Finding.ok("settings", f"{count} of {len(known_names)} variables are set, {verdict}")
    for problem in unchecked:
        yield Finding.ok("settings", f"not all are checked: {problem}")
    yield from _check_env_file(settings, known_names)


def _check_env_file(settings: Settings, known_names: Collection[str]) -> Iterator[Finding]:
    """Report the lines of `.env` that set nothing, and names that look misspelled."""
    for number in find_unreadable_lines(characters.ENV_FILE):
        yield Finding.warn("settings", f"{characters.ENV_FILE}, line {number}: it sets nothing", "write NAME=value")
    for name in settings:
        if settings.source_of(name) == str(characters.ENV_FILE) and name not in known_names:
            closest = find_closest(name, known_names, max_share=MAX_MISSPELT_SHARE)
            if closest is not None:
                message = f"{name} (in {characters.ENV_FILE}) is not a known variable"
                yield Finding.warn("settings", message, f"did you mean {closest}?")


def check_control(settings: Settings) -> Iterator[Finding]:
    """Report which replies wait, who decides about them, and which filters and steps of DEGRADE are set."""
    names = (*list_names(ApprovalSettings), *list_names(FilterSettings), "DEGRADE")
    chosen = [f"{name}={settings.get(name)}" for name in names if settings.get(name) and name != "FILTER_WORDS"]
    chosen += ["FILTER_WORDS is set"] if settings.get("FILTER_WORDS") else []
    yield Finding.ok("control", "; ".join(chosen) or "no replies wait (APPROVAL), no filters are set")
    with suppress(SettingError):  # which the check of the settings reports
        approval = settings.load(ApprovalSettings)
        can_decide = approval.operators_room or settings.get("OWNER_ACCOUNTS") or settings.get("SERVER_TOKEN")
        if approval.approval != OFF and not can_decide:
            message = (
                f"APPROVAL={approval.approval}, and no approver is set: only `bot drafts` and the local page decide"
            )
            yield Finding.warn("control", message, "set OPERATORS_ROOM, OWNER_ACCOUNTS, or SERVER_TOKEN for the page")


def list_names(model: type[SettingsModel]) -> list[str]:
    """Return the names of the variables of a model."""
    return [variable.name for variable in list_variables(model)]


def check_files(core: CoreSettings, *, fix: bool = False) -> Iterator[Finding]:
    """Check that the data folder is writable and private; with `fix`, make it private."""
    folder = core.bot_data_dir
    # Not Path.exists, which raises PermissionError in a closed folder:
    existing_folder = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    try:
        with tempfile.TemporaryFile(dir=existing_folder):
            pass
    except OSError as error:
        advice = "make the folder writable, or set BOT_DATA_DIR to another folder"
        yield Finding.fail("data", f"{folder}: {error.strerror or error}", advice)
        return
    state = "writable" if existing_folder == folder else "created when first needed"
    yield Finding.ok("data", f"{folder}: {state}")
    paths = [characters.ENV_FILE, folder, *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    for path in paths:
        if path.exists() and path.stat().st_mode & OTHERS_MODE_BITS:
            yield _check_permissions(path, fix=fix)


def _check_permissions(path: Path, *, fix: bool) -> Finding:
    """Return a warning about a path that others can read; with `fix`, make it private instead."""
    private_mode = 0o700 if path.is_dir() else 0o600
    if not fix:
        advice = f"chmod {private_mode:o} {path}, or run `bot doctor --fix`"
        return Finding.warn("data", f"{path} can be read by others", advice)
    try:
        path.chmod(private_mode)
    except OSError as error:
        message = f"{path} can be read by others, and its mode cannot be changed: {error.strerror or error}"
        return Finding.warn("data", message, "change the mode as the file's owner")
    return Finding.ok("data", f"{path}: others can no longer read it")


def check_database(config: characters.CharacterConfig) -> Iterator[Finding]:
    """Check the database; a running bot may be using it."""
    storage = find_storage(config.plugins)
    if storage is None:
        advice = "to store data, name the plugin sql in the character's file or set DATABASE_URL"
        yield Finding.warn("database", "memory only: a restart loses everything", advice)
        return
    try:
        report = asyncio.run(storage.check(config.settings))
    except ConfigError as error:
        yield Finding.fail("database", str(error), "see `bot db check`")
        return
    state = f"schema {report.facts.get('schema')}" if report.exists else "created when first needed"
    if not report.problems:
        yield Finding.ok("database", f"{report.location}: {state}")
    for problem in report.problems:
        yield Finding.fail("database", f"{report.location}: {problem}", "`bot db check` shows more")
    yield from _check_backups(storage, config.settings)


def _check_backups(storage: Storage, settings: Settings) -> Iterator[Finding]:
    """Report the scheduled backups, and whether the last one failed or is missing."""
    folder = BackupFolder.of(storage, settings)
    if folder is None:
        return
    if problem := find_backup_problem(storage, settings, system_clock):
        advice = f"look at {folder.path} and its disk; `bot db backup` makes a copy at once"
        yield Finding.fail("backups", problem, advice, is_outside=True)
        return
    last = folder.last_time(system_clock())
    state = "none yet" if last is None else f"{len(folder.copies())} copies, the last of {last:%Y-%m-%d %H:%M} UTC"
    yield Finding.ok("backups", f"{folder.path}: {state}")


def check_port(config: characters.CharacterConfig, platform: characters.Platform) -> Iterator[Finding]:
    """Check that the port of the web page is free, or used by the character's own running bot and that it is well."""
    if platform.spec is None or not platform.is_on:
        return
    try:
        values = config.settings.load(platform.spec.settings).model_dump()
    except SettingError:  # which the check of the settings reports
        return
    host, port = str(values.get("server_host", "")), int(values.get("server_port", 0))
    if not host or not port:
        return
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        yield _check_running_bot(config) or Finding.fail(
            "port",
            f"{host}:{port}: {os.strerror(error.errno or 0)}",
            "if another program uses it, set SERVER_PORT or SERVER_HOST to another value",
        )
    else:
        yield Finding.ok("port", f"{host}:{port} is free")


def _check_running_bot(config: characters.CharacterConfig) -> Finding | None:
    """Return the state of the process that runs this character; None if no such process has the port."""
    try:
        running_bot = find_own_bot(config)
        health = running_bot.send("GET", "/healthz", allowed=ANY_STATUS).body
    except (ConfigError, TemporaryError):
        return None
    platforms = [f"{name} {state['state']}" for name, state in health.get("platforms", {}).items()]
    details = ", ".join([str(health.get("cause") or ""), *platforms]).strip(", ")
    message = f"{running_bot} is the running bot: {health.get('status')}{f' ({details})' if details else ''}"
    if health.get("status") == "ok":
        return Finding.ok("running", message)
    return Finding.fail("running", message, "the log of the running bot says more", is_outside=True)


TIMEOUT_SECONDS = 30.0
RETRY_ADVICE = "check the network and the platform's status page, then try again"
MAX_PARKED_LISTED = 5


def check_accounts(config: characters.CharacterConfig, platforms: Sequence[characters.Platform]) -> Iterator[Finding]:
    """Check the account on each platform that is on, without any visible effect there."""
    for platform in platforms:
        if platform.is_on and platform.spec is not None and platform.spec.check is not None:
            yield from _check_account(config, platform)


def _check_account(config: characters.CharacterConfig, platform: characters.Platform) -> Iterator[Finding]:
    try:
        report = asyncio.run(_run_account_check(config, platform))
    except TimeoutError:
        message = f"{platform.name}: no answer within {TIMEOUT_SECONDS:g} s"
        yield Finding.fail("account", message, RETRY_ADVICE, is_outside=True)
    except TemporaryError as error:
        yield Finding.fail("account", f"{platform.name}: {error}", RETRY_ADVICE, is_outside=True)
    except ConfigError as error:
        yield Finding.fail("account", f"{platform.name}: {error}", SETTINGS_ADVICE)
    else:
        facts = ", ".join(f"{name}: {value}" for name, value in report.facts.items())
        if report.exists:
            yield Finding.ok("account", f"{report.location}{f' ({facts})' if facts else ''}")
        for problem in report.problems:
            yield Finding.fail("account", f"{report.location}: {problem}", SETTINGS_ADVICE)
        for warning in report.warnings:
            yield Finding.warn("account", f"{report.location}: {warning}")


async def _run_account_check(config: characters.CharacterConfig, platform: characters.Platform) -> CheckReport:
    """Run a platform's account check, with access to its stored cursors."""

    async def read_cursor(platform_name: str, account: str, name: str) -> str | None:
        if find_storage(config.plugins) is None:
            return None
        try:
            async with open_store_for_reading(config) as store:
                return await store.ledger.cursor(platform_name, account, name)
        except BotError:  # reported by the check of the database
            return None

    assert platform.spec is not None
    assert platform.spec.check is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await platform.spec.check(config.settings, read_cursor)


def check_tasks(config: characters.CharacterConfig) -> Iterator[Finding]:
    """Check the stored tasks; an unreadable database is reported by its own check."""
    if find_storage(config.plugins) is None:
        return

    async def load() -> tuple[Mapping[tuple[str, bool], int], list[Task]]:
        async with open_store_for_reading(config) as store:
            return await store.tasks.count_tasks(), await TaskControl(store.tasks, system_clock).failed()

    try:
        counts, failed = asyncio.run(load())
    except BotError:
        return
    if counts:
        yield Finding.ok("tasks", f"{sum(counts.values())} scheduled")
    worker_names = {POST_WORKER, *(worker.name for plugin in config.plugins for worker in plugin.workers)}
    for name in sorted({name for name, _ in counts} - worker_names):
        count = counts.get((name, False), 0) + counts.get((name, True), 0)
        advice = "add the plugin that scheduled them to the character again"
        yield Finding.warn("tasks", f"{count} of {name} wait: no plugin defines this worker", advice)
    for task in failed[:MAX_PARKED_LISTED]:
        message = f"{task.name} is parked after {task.attempts} failures: {shorten(task.last_error, 200)}"
        advice = "correct the cause; tasks that plugins schedule at start are scheduled again then"
        yield Finding.warn("tasks", f"{message} ({task.id})", advice)


def check_budget(settings: Settings) -> Iterator[Finding]:
    """Check the limits."""
    try:
        money = settings.operator_only().load(BudgetSettings)
    except SettingError as error:
        yield Finding.fail("costs", str(error), SETTINGS_ADVICE)
        return
    limits = [f"{limit.setting} {limit}" for limit in build_limits(money)]
    yield Finding.ok("costs", f"limits: {'; '.join(limits) or 'none (BUDGET_USD, BUDGET_TOKENS)'}")


def check_configuration(
    settings: Settings,
    config: characters.CharacterConfig | None,
    reported: Sequence[str] = (),
    *,
    fix: bool = False,
    is_running: bool = False,
) -> Iterator[Finding]:
    """Check the settings and, if the character could be loaded, all that needs neither a platform nor the model.

    `reported` are problems of settings that prevented it from being loaded. With `fix` the data becomes private. A
    process that `is_running` the character has the port, and imports no plugin that is off.
    """
    groups, unchecked = find_settings_groups(config.plugins if config else (), imports_others=not is_running)
    if config is None:
        unchecked.append("the character's plugins could not be loaded, and may have variables of their own")
    settings = settings.with_models(*(group.model for group in groups))
    for note in characters.ignored_settings_note(settings):
        yield Finding.warn("settings", note)
    yield from check_settings(settings, groups, reported, unchecked)
    with suppress(SettingError):
        yield from check_files(settings.load(CoreSettings), fix=fix)
    if config is None:
        return
    sections = characters.measure_sections(config.loaded.character, config.plugins)
    if lines := characters.format_sections(sections):
        yield Finding.ok("character", f"\n{'':<17}".join(lines))
    yield from check_plugins(config)
    yield from check_database(config)
    yield from check_tasks(config)
    for platform in characters.list_platforms([config]):
        state = "on" if platform.is_on else f"off, {platform.off_reason}"
        yield Finding.ok("platforms", f"{platform.name}: {state}")
        if platform.name == characters.WEB and not is_running:
            yield from check_port(config, platform)
    yield from check_budget(settings)
    yield from check_control(settings)


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
    components = component_names(plugin)
    yield Finding.ok("plugin", plugin.name)
    for kind, names in components.items():
        yield Finding.ok("brings", f"{kind}: {', '.join(names)}")
    if not components and plugin.init is None and plugin.store is None and not plugin.templates:
        yield Finding.warn("brings", "nothing", "pass actions, providers, … to Plugin(...)")
    if not NAME_PATTERN.fullmatch(plugin.name):
        advice = "use lower-case letters, digits, _ and -: the name is used in paths and character files"
        yield Finding.warn("name", repr(plugin.name), advice)
    yield from _check_descriptions(plugin)
    yield from _check_compatibility(plugin)
    yield from _check_settings(plugin)


def contract_findings(result: ContractOutcome) -> Iterator[Finding]:
    """Yield the outcome of one rule of a contract as findings."""
    if result.skipped:
        yield Finding.warn("contract", f"not tested: {result.rule}", result.skipped)
    elif not result.problems:
        yield Finding.ok("contract", result.rule)
    for problem in result.problems:
        yield Finding.fail("contract", f"not so: {result.rule}", problem)


def _check_descriptions(plugin: Plugin) -> Iterator[Finding]:
    descriptions = {component.spec.name: component.spec.description for component in plugin.actions}
    descriptions |= {component.spec.name: component.spec.description for component in plugin.providers}
    for name, description in descriptions.items():
        if not description.strip():
            yield Finding.warn("text", f"{name} has no description", "the model knows nothing else about it")
    for action in plugin.actions:
        for name, schema in action.spec.parameters.get("properties", {}).items():
            if not schema.get("description"):
                advice = 'describe it: Annotated[str, "The city\'s name"]'
                yield Finding.warn("text", f"{action.spec.name}: {name} has no description", advice)


def _check_compatibility(plugin: Plugin) -> Iterator[Finding]:
    """Check that a plugin can be registered with the base plugin and the plugins it requires."""
    for service in plugin.services:
        if not (isinstance(service, type) and issubclass(service, Service)):
            yield Finding.fail("services", f"{service!r} is not a Service", "derive it from bot.Service")
            return
    required_plugins: dict[str, Plugin] = {}
    try:
        for name in dict.fromkeys([*bundled_names(PluginPurpose.BASE), *plugin.requires]):
            required_plugin = find_plugin(name)
            if required_plugin is not None and required_plugin.name != plugin.name:
                required_plugins[required_plugin.name] = required_plugin
        check_combination(sort_plugins([*required_plugins.values(), plugin]))
    except PluginError as error:
        yield Finding.fail("plugins", str(error), "the plugin cannot be loaded like this")


def _check_settings(plugin: Plugin) -> Iterator[Finding]:
    settings = load_settings()
    if plugin.settings is not None:
        for variable in list_variables(plugin.settings):
            if not variable.description:
                advice = 'describe it: Field(…, description="…")'
                yield Finding.warn("settings", f"{variable.name} has no description", advice)
        try:
            settings.load(plugin.settings)
        except SettingError as error:
            yield Finding.warn("settings", str(error), "correct the variable")
    if missing_reason := plugin.why_off(settings):
        yield Finding.warn("settings", f"it is off: {missing_reason}", "set it before using the plugin")
