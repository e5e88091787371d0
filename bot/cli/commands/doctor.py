"""Check the configuration: Python, settings, character, plugins, database, port, platforms, costs, model.

What the running bot says needs attention: as findings, and as it changes with `bot doctor --watch`.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.characters import load_character
from bot.cli import characters, checks
from bot.cli.model_checks import check_model
from bot.cli.options import AsJson, CharacterFile, Output, examples, new_command, print_json
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import find_running_bot
from bot.errors import BotError, ConfigError, SettingError, TemporaryError
from bot.logs import configure_logging
from bot.operate.tools import Finding, FindingStatus

WATCH_SECONDS = 15.0
QUICK_TIMEOUT = 3.0
UNREACHABLE_KEY = "bot"


def check_running_bot(config: characters.CharacterConfig) -> Iterator[Finding]:
    """Yield what the running bot says needs attention; nothing where no bot runs."""
    try:
        problems = _read_problems(config)
    except (ConfigError, TemporaryError):
        return
    for problem in problems:
        status = FindingStatus.FAIL if problem["level"] == "bad" else FindingStatus.WARN
        yield Finding(status, "running", str(problem["text"]), str(problem["why"]), is_outside=True)
    if not problems:
        yield Finding.ok("running", "the bot runs, and nothing needs attention")


def watch_running_bot(
    config: characters.CharacterConfig, *, as_json: bool = False, sleep: Callable[[float], object] = time.sleep
) -> int:
    """Print what begins to need attention and what is over, until the operator stops it.

    Raises ConfigError where the running bot cannot be asked at all.
    """
    find_running_bot(config)
    present: dict[str, str] = {}
    try:
        while True:
            current = _current_texts(config)
            for key in current.keys() - present.keys():
                _print_change("began", key, current[key], as_json=as_json)
            for key in present.keys() - current.keys():
                _print_change("over", key, present[key], as_json=as_json)
            present = current
            sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return Exit.OK


def _current_texts(config: characters.CharacterConfig) -> dict[str, str]:
    try:
        problems = _read_problems(config)
    except TemporaryError as error:
        return {UNREACHABLE_KEY: str(error)}
    return {str(problem["key"]): f"{problem['text']} {problem['why']}".strip() for problem in problems}


def _read_problems(config: characters.CharacterConfig) -> Sequence[Mapping[str, Any]]:
    """Return the problems of the overview; raises ConfigError and TemporaryError."""
    path = f"/api/overview?agent={config.agent_id}"
    reply = find_running_bot(config).send("GET", path, timeout=QUICK_TIMEOUT)
    problems: Sequence[Mapping[str, Any]] = reply.body["problems"]
    return problems


def _print_change(change: str, key: str, text: str, *, as_json: bool) -> None:
    now = datetime.now().astimezone()
    document = {"at": now, "kind": change, "key": key, "text": text}
    Output(document, [f"{now:%H:%M:%S}  {change:<5}  {text}"], indent=None).print(as_json=as_json)
    sys.stdout.flush()


doctor_app = new_command()


@doctor_app.command(epilog=examples("bot doctor", "bot doctor -c mine.json --json", "bot doctor --watch"))
def doctor(
    character: CharacterFile = None,
    as_json: AsJson = False,
    fix: Annotated[bool, typer.Option("--fix", help="Make .env and the data readable by you alone.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print what begins to need attention at the running bot, and what is over.")
    ] = False,
) -> int:
    """Check the configuration and say what to correct.

    Python, settings, character, plugins, database, port, platforms, costs and model are checked, and what the
    running bot says needs attention.
    """
    if watch:
        return watch_running_bot(characters.load_character_config(character), as_json=as_json)
    return run_doctor(character, as_json=as_json, fix=fix)


def run_doctor(character: Path | None, *, as_json: bool = False, fix: bool = False) -> int:
    """Check the configuration, print the findings, and return the exit code."""
    findings: list[Finding] = []
    for finding in _collect_findings(character, fix=fix):
        if finding.message in [earlier.message for earlier in findings]:
            continue
        findings.append(finding)
        if not as_json:
            checks.print_finding(finding)
    failed = [finding for finding in findings if finding.status is FindingStatus.FAIL]
    if as_json:
        print_json({"ok": not failed, "findings": [finding.to_json() for finding in findings]})
    if not failed:
        return Exit.OK
    return Exit.TRY_AGAIN if all(finding.is_outside for finding in failed) else Exit.CONFIG


def _collect_findings(character: Path | None, *, fix: bool) -> Iterator[Finding]:
    yield from checks.check_python()
    path = character or characters.default_character()
    loaded = None
    try:
        loaded = load_character(path)
    except ConfigError as error:
        yield Finding.fail("character", str(error), "correct the file, or name another with -c FILE")
    else:
        yield from checks.check_character(path, loaded)
    try:
        settings = characters.read_character_settings(loaded)
    except ConfigError as error:
        yield Finding.fail("settings", str(error), "save .env as plain text in UTF-8")
        return
    config = None
    reported: list[str] = []
    if loaded is not None:
        try:
            config = characters.load_character_config(path)
        except SettingError as error:
            reported = str(error).splitlines()
            for line in reported:
                yield Finding.fail("settings", line, checks.SETTINGS_ADVICE)
        except ConfigError as error:
            yield Finding.fail("plugins", str(error), "`bot plugin list` shows the plugins")
    if config is not None:
        yield from checks.check_character(config.path, config.loaded)
        yield from check_running_bot(config)
    yield from checks.check_configuration(settings, config, reported, fix=fix)
    if config is None:
        return
    platforms = characters.list_platforms([config])
    specs = [connected.spec for connected in platforms if connected.spec is not None]
    secrets = config.secrets | config.settings.secrets(*(spec.settings for spec in specs))
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "CRITICAL", secrets=secrets):
        yield from checks.check_accounts(config, platforms)
        yield from _start_and_check_model(config)


def _start_and_check_model(config: characters.CharacterConfig) -> Iterator[Finding]:
    try:
        yield from asyncio.run(check_model(config))
    except BotError as error:
        is_outside = isinstance(error, TemporaryError)
        yield Finding.fail("start", str(error), checks.STARTING_ADVICE, is_outside=is_outside)
