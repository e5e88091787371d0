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
from bot.cli.characters import ENV_FILE, Part
from bot.cli.platforms import Platform
from bot.cli.variables import Group, variables
from bot.errors import ConfigError, SettingError
from bot.logs import harmless
from bot.plugin_system.plugin import storage_of
from bot.settings import CoreSettings, Settings

OLDEST_PYTHON = (3, 11)
LIKENESS = 0.85
PRIVATE = 0o077
CORRECT = "correct it where it stands; `bot settings` tells what each variable is"


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
    what: str
    advice: str = ""
    is_outside: bool = False

    def to_json(self) -> dict[str, Any]:
        """Give the finding as JSON."""
        return asdict(self)


def lines_of(finding: Finding) -> Iterator[str]:
    """Tell a finding to a person."""
    yield harmless(f"{finding.status:<5} {finding.check:<10} {finding.what}", keep="\n")
    if finding.advice:
        yield harmless(f"{'':<16} → {finding.advice}")


def check_python() -> Iterator[Finding]:
    """Look at the interpreter."""
    version, oldest = platform.python_version(), ".".join(map(str, OLDEST_PYTHON))
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding(Status.OK, "python", version)
    else:
        yield Finding(
            Status.FAIL, "python", version, f"install Python {oldest} or newer and set the bot up with it"
        )


def check_character(path: Path, loaded: LoadedCharacter) -> Iterator[Finding]:
    """Look at what reading the character's file brought to light."""
    yield Finding(Status.OK, "character", f"{loaded.character.name} ({path})")
    for note in loaded.report.warnings:
        yield Finding(Status.WARN, "character", f"{path}: {note}", f"see `bot character check {path}`")
    for note in loaded.report.secrets:
        yield Finding(Status.WARN, "character", f"{path}: {note}", "move it to .env: files get handed on")


def check_plugins(part: Part) -> Iterator[Finding]:
    """Look at which plugins are on."""
    yield Finding(Status.OK, "plugins", ", ".join(plugin.name for plugin in part.plugins))
    advice = "set what it asks for, or take it out of the character's plugins"
    for note in part.notes:
        yield Finding(Status.WARN, "plugins", note, advice)


def check_settings(settings: Settings, groups: Sequence[Group]) -> Iterator[Finding]:
    """Look at the value of every variable, and at names in `.env` that were probably meant otherwise."""
    wrong = 0
    for group in groups:
        try:
            settings.load(group.model)
        except SettingError as error:
            for line in str(error).splitlines():
                wrong += 1
                yield Finding(Status.FAIL, "settings", line, CORRECT)
    known = {variable.name for group in groups for variable in variables(group.model)}
    if not wrong:
        count = sum(name in settings for name in known)
        yield Finding(Status.OK, "settings", f"{count} of {len(known)} variables are set, all well-formed")
    for name in settings:
        if settings.source_of(name) == str(ENV_FILE) and name not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=LIKENESS)
            if near:
                what = f"{name} (in {ENV_FILE}) is not a variable of any part of the bot"
                yield Finding(Status.WARN, "settings", what, f"did you mean {near[0]}?")


def check_files(core: CoreSettings, *, mend: bool = False) -> Iterator[Finding]:
    """Look at whether the data can be written, and who else can read it; with `mend` nobody can any more."""
    folder = core.bot_data_dir
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "make it a folder that the bot may write to, or set BOT_DATA_DIR to another"
        yield Finding(Status.FAIL, "data", f"{folder}: {error.strerror or error}", advice)
        return
    state = "writable" if place == folder else "it is made when it is first needed"
    yield Finding(Status.OK, "data", f"{folder}: {state}")
    suspects = [ENV_FILE, folder, *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    for path in suspects:
        if path.exists() and path.stat().st_mode & PRIVATE:
            yield _mended(path) if mend else _readable(path)


def _readable(path: Path) -> Finding:
    advice = f"chmod {_own_mode(path):o} {path}, or have `bot doctor --fix` do it"
    return Finding(Status.WARN, "data", f"{path} can be read by others", advice)


def _mended(path: Path) -> Finding:
    try:
        path.chmod(_own_mode(path))
    except OSError as error:
        what = f"{path} can be read by others, and that cannot be changed: {error.strerror or error}"
        return Finding(Status.WARN, "data", what, "see to it as whoever owns it")
    return Finding(Status.OK, "data", f"{path}: could be read by others, and no more")


def _own_mode(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


def check_database(part: Part) -> Iterator[Finding]:
    """Look at what keeps the character's store, beside a bot that may have it open."""
    storage = storage_of(part.plugins)
    if storage is None:
        advice = "name the plugin sql in its file, or set DATABASE_URL, to have it remembered"
        yield Finding(Status.WARN, "database", "memory alone: a restart forgets everything", advice)
        return
    try:
        found = asyncio.run(storage.check(part.settings))
    except ConfigError as error:
        yield Finding(Status.FAIL, "database", str(error), "see `bot db check`")
        return
    state = f"schema {found.facts.get('schema')}" if found.is_there else "it is made when it is first needed"
    if not found.problems:
        yield Finding(Status.OK, "database", f"{found.place}: {state}")
    for problem in found.problems:
        yield Finding(Status.FAIL, "database", f"{found.place}: {problem}", "`bot db check` tells more")


def check_port(settings: Settings, page: Platform) -> Iterator[Finding]:
    """Look at whether the web page's port is free."""
    if page.spec is None or not page.is_on:
        return
    values = settings.load(page.spec.settings).model_dump()
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
    for one in platforms:
        state = "on" if one.is_on else f"off, {one.why_off}"
        yield Finding(Status.OK, "platforms", f"{one.name}: {state}")
