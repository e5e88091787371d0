"""What `bot doctor` looks at: each check gives findings; one that is not fine says what to do."""

import asyncio
import difflib
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bot.characters import LoadedCharacter
from bot.cli.characters import ENV_FILE, CharacterConfig
from bot.cli.platforms import Platform
from bot.cli.variables import SettingsGroup, list_variables
from bot.errors import ConfigError, SettingError
from bot.logs import strip_terminal_codes
from bot.plugin_system.plugin import find_storage
from bot.settings import CoreSettings, Settings

MIN_PYTHON = (3, 11)
NAME_SIMILARITY = 0.85
OTHERS_MODE_BITS = 0o077
SETTINGS_ADVICE = "correct it where it stands; `bot settings` tells what each variable is"


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `is_outside` where it fails for want of something that may be back later."""

    status: Status
    check: str
    message: str
    advice: str = ""
    is_outside: bool = False

    def to_json(self) -> dict[str, Any]:
        """Give the finding as JSON."""
        return asdict(self)


def finding_lines(finding: Finding) -> Iterator[str]:
    """Tell a finding to a person."""
    yield strip_terminal_codes(f"{finding.status:<5} {finding.check:<10} {finding.message}", allowed="\n")
    if finding.advice:
        yield strip_terminal_codes(f"{'':<16} → {finding.advice}")


def check_python() -> Iterator[Finding]:
    """Look at the interpreter."""
    version, min_version = platform.python_version(), ".".join(map(str, MIN_PYTHON))
    if sys.version_info >= MIN_PYTHON:
        yield Finding(Status.OK, "python", version)
    else:
        yield Finding(
            Status.FAIL,
            "python",
            version,
            f"install Python {min_version} or newer and set the bot up with it",
        )


def check_character(path: Path, loaded: LoadedCharacter) -> Iterator[Finding]:
    """Look at what reading the character's file brought to light."""
    yield Finding(Status.OK, "character", f"{loaded.character.name} ({path})")
    for note in loaded.report.warnings:
        yield Finding(Status.WARN, "character", f"{path}: {note}", f"see `bot character check {path}`")
    for note in loaded.report.secrets:
        yield Finding(Status.WARN, "character", f"{path}: {note}", "move it to .env: files get handed on")


def check_plugins(config: CharacterConfig) -> Iterator[Finding]:
    """Look at which plugins are on."""
    yield Finding(Status.OK, "plugins", ", ".join(plugin.name for plugin in config.plugins))
    advice = "set what it asks for, or take it out of the character's plugins"
    for note in config.notes:
        yield Finding(Status.WARN, "plugins", note, advice)


def check_settings(settings: Settings, groups: Sequence[SettingsGroup]) -> Iterator[Finding]:
    """Look at the value of every variable, and at names in `.env` that were probably meant otherwise."""
    error_count = 0
    for group in groups:
        try:
            settings.load(group.model)
        except SettingError as error:
            for line in str(error).splitlines():
                error_count += 1
                yield Finding(Status.FAIL, "settings", line, SETTINGS_ADVICE)
    known_names = {variable.name for group in groups for variable in list_variables(group.model)}
    if not error_count:
        count = sum(name in settings for name in known_names)
        yield Finding(
            Status.OK, "settings", f"{count} of {len(known_names)} variables are set, all well-formed"
        )
    for name in settings:
        if settings.source_of(name) == str(ENV_FILE) and name not in known_names:
            suggestions = difflib.get_close_matches(name.upper(), known_names, n=1, cutoff=NAME_SIMILARITY)
            if suggestions:
                message = f"{name} (in {ENV_FILE}) is not a variable of any part of the bot"
                yield Finding(Status.WARN, "settings", message, f"did you mean {suggestions[0]}?")


def check_files(core: CoreSettings, *, fix: bool = False) -> Iterator[Finding]:
    """Look at whether the data can be written, and who else can read it; with `mend` nobody can any more."""
    folder = core.bot_data_dir
    existing_folder = next(
        folder_path for folder_path in (folder, *folder.absolute().parents) if folder_path.exists()
    )
    try:
        with tempfile.TemporaryFile(dir=existing_folder):
            pass
    except OSError as error:
        advice = "make it a folder that the bot may write to, or set BOT_DATA_DIR to another"
        yield Finding(Status.FAIL, "data", f"{folder}: {error.strerror or error}", advice)
        return
    state = "writable" if existing_folder == folder else "it is made when it is first needed"
    yield Finding(Status.OK, "data", f"{folder}: {state}")
    paths = [ENV_FILE, folder, *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    for path in paths:
        if path.exists() and path.stat().st_mode & OTHERS_MODE_BITS:
            yield _fix_permissions(path) if fix else _permission_warning(path)


def _permission_warning(path: Path) -> Finding:
    advice = f"chmod {_private_mode(path):o} {path}, or have `bot doctor --fix` do it"
    return Finding(Status.WARN, "data", f"{path} can be read by others", advice)


def _fix_permissions(path: Path) -> Finding:
    try:
        path.chmod(_private_mode(path))
    except OSError as error:
        message = f"{path} can be read by others, and that cannot be changed: {error.strerror or error}"
        return Finding(Status.WARN, "data", message, "see to it as whoever owns it")
    return Finding(Status.OK, "data", f"{path}: could be read by others, and no more")


def _private_mode(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


def check_database(config: CharacterConfig) -> Iterator[Finding]:
    """Look at what keeps the character's store, beside a bot that may have it open."""
    storage = find_storage(config.plugins)
    if storage is None:
        advice = "name the plugin sql in its file, or set DATABASE_URL, to have it remembered"
        yield Finding(Status.WARN, "database", "memory alone: a restart forgets everything", advice)
        return
    try:
        report = asyncio.run(storage.check(config.settings))
    except ConfigError as error:
        yield Finding(Status.FAIL, "database", str(error), "see `bot db check`")
        return
    state = f"schema {report.facts.get('schema')}" if report.exists else "it is made when it is first needed"
    if not report.problems:
        yield Finding(Status.OK, "database", f"{report.location}: {state}")
    for problem in report.problems:
        yield Finding(Status.FAIL, "database", f"{report.location}: {problem}", "`bot db check` tells more")


def check_port(settings: Settings, platform: Platform) -> Iterator[Finding]:
    """Look at whether the web page's port is free."""
    if platform.spec is None or not platform.is_on:
        return
    values = settings.load(platform.spec.settings).model_dump()
    host, port = str(values.get("server_host", "")), int(values.get("server_port", 0))
    if not host or not port:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        advice = "if it is not this bot that runs there, set SERVER_PORT to another, or SERVER_HOST"
        yield Finding(Status.FAIL, "port", f"{host}:{port}: {os.strerror(error.errno or 0)}", advice)
    else:
        yield Finding(Status.OK, "port", f"{host}:{port} is free")


def check_platforms(platforms: Sequence[Platform]) -> Iterator[Finding]:
    """Look at what `bot run` would start."""
    for surveyed in platforms:
        state = "on" if surveyed.is_on else f"off, {surveyed.off_reason}"
        yield Finding(Status.OK, "platforms", f"{surveyed.name}: {state}")
