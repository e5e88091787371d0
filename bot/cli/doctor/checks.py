"""Checks of `bot doctor`: each yields findings; a problem comes with advice."""

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from platform import python_version

from bot.background.scheduled_backups import BackupFolder, find_backup_problem
from bot.characters import LoadedCharacter
from bot.cli.characters import ENV_FILE, CharacterConfig
from bot.cli.platforms import Platform
from bot.cli.prompt_sections import format_sections, measure_sections
from bot.cli.running_bot import find_running_bot
from bot.cli.terminal_style import colour_state
from bot.cli.variables import SettingsGroup, list_variables
from bot.concurrency.clock import system_clock
from bot.errors import ConfigError, SettingError, TemporaryError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.plugin import find_storage
from bot.settings import CoreSettings, Settings, find_unreadable_lines
from bot.store.storage import Storage
from bot.text import find_closest, strip_terminal_codes

MIN_PYTHON = (3, 11)
MAX_MISSPELT_SHARE = 0.15  # of a name in .env, which may be another program's
OTHERS_MODE_BITS = 0o077
NOT_INSTALLED = "which is not installed"
INSTALLING_ADVICE = "install it; a plugin that is not needed can be taken out of the character's file"
SETTING_ADVICE = "set the variable; a plugin that is not needed can be taken out of the character's file"
SETTINGS_ADVICE = "correct the setting; `bot settings` explains each variable"


def finding_lines(finding: Finding) -> Iterator[str]:
    """Yield a finding as lines for the terminal."""
    line = strip_terminal_codes(f"{finding.status:<5} {finding.check:<10} {finding.message}", allowed="\n")
    yield colour_state(line)
    if finding.advice:
        yield strip_terminal_codes(f"{'':<16} → {finding.advice}")


def check_python() -> Iterator[Finding]:
    """Check the version of Python."""
    version, min_version = python_version(), ".".join(map(str, MIN_PYTHON))
    if sys.version_info >= MIN_PYTHON:
        yield Finding(FindingStatus.OK, "python", version)
    else:
        yield Finding(
            FindingStatus.FAIL,
            "python",
            version,
            f"install Python {min_version} or newer and reinstall the bot with it",
        )


def check_character(path: Path, loaded: LoadedCharacter) -> Iterator[Finding]:
    """Report the warnings and secrets that were found in the character's file."""
    yield Finding(FindingStatus.OK, "character", f"{loaded.character.name} ({path})")
    for note in loaded.report.warnings:
        yield Finding(FindingStatus.WARN, "character", f"{path}: {note}", f"see `bot character check {path}`")
    for note in loaded.report.secrets:
        yield Finding(FindingStatus.WARN, "character", f"{path}: {note}", "move it to .env: files are passed on")


def check_description(config: CharacterConfig) -> Iterator[Finding]:
    """Report what of the character's file the prompts hold."""
    if lines := format_sections(measure_sections(config.loaded.character, config.plugins)):
        yield Finding(FindingStatus.OK, "character", f"\n{'':<17}".join(lines))


def check_plugins(config: CharacterConfig) -> Iterator[Finding]:
    """Report which plugins are on, and notes about the others."""
    yield Finding(FindingStatus.OK, "plugins", ", ".join(plugin.name for plugin in config.plugins))
    for note in config.notes:
        advice = INSTALLING_ADVICE if NOT_INSTALLED in note else SETTING_ADVICE
        yield Finding(FindingStatus.WARN, "plugins", note, advice)


def check_settings(
    settings: Settings, groups: Sequence[SettingsGroup], reported: Collection[str] = (), unchecked: Collection[str] = ()
) -> Iterator[Finding]:
    """Check the value of every variable, and names in `.env` that look misspelled.

    `reported` are problems of variables that were reported before; `unchecked` says why there are others, which are
    not among these groups.
    """
    error_count = len(reported)
    for group in groups:
        try:
            settings.load(group.model)
        except SettingError as error:
            for line in str(error).splitlines():
                error_count += 1
                if line not in reported:
                    yield Finding(FindingStatus.FAIL, "settings", line, SETTINGS_ADVICE)
    known_names = {variable.name for group in groups for variable in list_variables(group.model)}
    if not error_count:
        count = sum(name in settings for name in known_names)
        verdict = "all well-formed" if not unchecked else "well-formed where they could be checked"
        yield Finding(FindingStatus.OK, "settings", f"{count} of {len(known_names)} variables are set, {verdict}")
    for problem in unchecked:
        yield Finding(FindingStatus.OK, "settings", f"not all are checked: {problem}")
    yield from _check_env_file(settings, known_names)


def _check_env_file(settings: Settings, known_names: Collection[str]) -> Iterator[Finding]:
    """Report the lines of `.env` that set nothing, and names that look misspelled."""
    for number in find_unreadable_lines(ENV_FILE):
        yield Finding(FindingStatus.WARN, "settings", f"{ENV_FILE}, line {number}: it sets nothing", "write NAME=value")
    for name in settings:
        if settings.source_of(name) == str(ENV_FILE) and name not in known_names:
            closest = find_closest(name, known_names, max_share=MAX_MISSPELT_SHARE)
            if closest is not None:
                message = f"{name} (in {ENV_FILE}) is not a known variable"
                yield Finding(FindingStatus.WARN, "settings", message, f"did you mean {closest}?")


def check_files(core: CoreSettings, *, fix: bool = False) -> Iterator[Finding]:
    """Check that the data folder is writable and private; with `fix`, make it private."""
    folder = core.bot_data_dir
    existing_folder = next(folder_path for folder_path in (folder, *folder.absolute().parents) if folder_path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing_folder):
            pass
    except OSError as error:
        advice = "make the folder writable, or set BOT_DATA_DIR to another folder"
        yield Finding(FindingStatus.FAIL, "data", f"{folder}: {error.strerror or error}", advice)
        return
    state = "writable" if existing_folder == folder else "created when first needed"
    yield Finding(FindingStatus.OK, "data", f"{folder}: {state}")
    paths = [ENV_FILE, folder, *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    for path in paths:
        if path.exists() and path.stat().st_mode & OTHERS_MODE_BITS:
            yield _fix_permissions(path) if fix else _permission_warning(path)


def _permission_warning(path: Path) -> Finding:
    advice = f"chmod {_private_mode(path):o} {path}, or run `bot doctor --fix`"
    return Finding(FindingStatus.WARN, "data", f"{path} can be read by others", advice)


def _fix_permissions(path: Path) -> Finding:
    try:
        path.chmod(_private_mode(path))
    except OSError as error:
        message = f"{path} can be read by others, and its mode cannot be changed: {error.strerror or error}"
        return Finding(FindingStatus.WARN, "data", message, "change the mode as the file's owner")
    return Finding(FindingStatus.OK, "data", f"{path}: others can no longer read it")


def _private_mode(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


def check_database(config: CharacterConfig) -> Iterator[Finding]:
    """Check the database; a running bot may be using it."""
    storage = find_storage(config.plugins)
    if storage is None:
        advice = "to store data, name the plugin sql in the character's file or set DATABASE_URL"
        yield Finding(FindingStatus.WARN, "database", "memory only: a restart loses everything", advice)
        return
    try:
        report = asyncio.run(storage.check(config.settings))
    except ConfigError as error:
        yield Finding(FindingStatus.FAIL, "database", str(error), "see `bot db check`")
        return
    state = f"schema {report.facts.get('schema')}" if report.exists else "created when first needed"
    if not report.problems:
        yield Finding(FindingStatus.OK, "database", f"{report.location}: {state}")
    for problem in report.problems:
        yield Finding(FindingStatus.FAIL, "database", f"{report.location}: {problem}", "`bot db check` shows more")
    yield from _check_backups(storage, config.settings)


def _check_backups(storage: Storage, settings: Settings) -> Iterator[Finding]:
    """Report the scheduled backups, and whether the last one failed or is missing."""
    folder = BackupFolder.of(storage, settings)
    if folder is None:
        return
    if problem := find_backup_problem(storage, settings, system_clock):
        advice = f"look at {folder.path} and its disk; `bot db backup` makes a copy at once"
        yield Finding(FindingStatus.FAIL, "backups", problem, advice, is_outside=True)
        return
    last = folder.last_time(system_clock())
    state = "none yet" if last is None else f"{len(folder.copies())} copies, the last of {last:%Y-%m-%d %H:%M} UTC"
    yield Finding(FindingStatus.OK, "backups", f"{folder.path}: {state}")


def check_port(config: CharacterConfig, platform: Platform) -> Iterator[Finding]:
    """Check that the port of the web page is free, or used by the character's own running bot and that it is well."""
    if platform.spec is None or not platform.is_on:
        return
    values = config.settings.load(platform.spec.settings).model_dump()
    host, port = str(values.get("server_host", "")), int(values.get("server_port", 0))
    if not host or not port:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        yield _check_running_bot(config) or Finding(
            FindingStatus.FAIL,
            "port",
            f"{host}:{port}: {os.strerror(error.errno or 0)}",
            "if another program uses it, set SERVER_PORT or SERVER_HOST to another value",
        )
    else:
        yield Finding(FindingStatus.OK, "port", f"{host}:{port} is free")


def _check_running_bot(config: CharacterConfig) -> Finding | None:
    """Return the state of the process that runs this character; None if no such process has the port."""
    try:
        running_bot = find_running_bot(config)
        agents = running_bot.get("/api/agents").body.get("agents", ())
        health = running_bot.get("/healthz").body
    except (ConfigError, TemporaryError):
        return None
    if str(config.agent_config.agent_id) not in [agent.get("id") for agent in agents]:
        return None
    platforms = [f"{name} {state['state']}" for name, state in health.get("platforms", {}).items()]
    details = ", ".join([str(health.get("cause") or ""), *platforms]).strip(", ")
    message = f"{running_bot} is the running bot: {health.get('status')}{f' ({details})' if details else ''}"
    if health.get("status") == "ok":
        return Finding(FindingStatus.OK, "running", message)
    return Finding(FindingStatus.FAIL, "running", message, "the log of the running bot says more", is_outside=True)


def check_platforms(platforms: Sequence[Platform]) -> Iterator[Finding]:
    """Report which platforms `bot run` would start."""
    for surveyed in platforms:
        state = "on" if surveyed.is_on else f"off, {surveyed.off_reason}"
        yield Finding(FindingStatus.OK, "platforms", f"{surveyed.name}: {state}")
