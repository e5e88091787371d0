"""Check the configuration: Python, settings, character, plugins, database, port, platforms, costs, model."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from bot.characters import load_character
from bot.cli.characters import (
    CharacterConfig,
    default_character,
    ignored_settings_note,
    load_character_config,
    read_character_settings,
)
from bot.cli.doctor import checks
from bot.cli.doctor.account_checks import check_accounts, check_tasks
from bot.cli.doctor.model_checks import check_budget, check_model
from bot.cli.doctor.watch import check_running_bot, watch_running_bot
from bot.cli.options import AsJson, CharacterFile, examples, new_command
from bot.cli.platforms import WEB, list_platforms
from bot.cli.process.exit_codes import Exit
from bot.cli.variables import find_settings_groups
from bot.errors import ConfigError, SettingError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.logs import configure_logging
from bot.settings import CoreSettings, Settings

app = new_command()


@app.command(epilog=examples("bot doctor", "bot doctor -c mine.json --json", "bot doctor --watch"))
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
        return watch_running_bot(load_character_config(character), as_json=as_json)
    return run_doctor(character, as_json=as_json, fix=fix)


def run_doctor(character: Path | None, *, as_json: bool = False, fix: bool = False) -> int:
    """Check the configuration, print the findings, and return the exit code."""
    findings: list[Finding] = []
    for finding in _collect_findings(character, fix=fix):
        if finding.message in [earlier.message for earlier in findings]:
            continue
        findings.append(finding)
        if not as_json:
            print("\n".join(checks.finding_lines(finding)), flush=True)
    failed = [finding for finding in findings if finding.status is FindingStatus.FAIL]
    if as_json:
        document = {"ok": not failed, "findings": [finding.to_json() for finding in findings]}
        print(json.dumps(document, ensure_ascii=False, indent=2))
    if not failed:
        return Exit.OK
    return Exit.TRY_AGAIN if all(finding.is_outside for finding in failed) else Exit.CONFIG


def _collect_findings(character: Path | None, *, fix: bool) -> Iterator[Finding]:
    yield from checks.check_python()
    path = character or default_character()
    loaded = None
    try:
        loaded = load_character(path)
    except ConfigError as error:
        yield Finding(FindingStatus.FAIL, "character", str(error), "correct the file, or name another with -c FILE")
    else:
        yield from checks.check_character(path, loaded)
    try:
        settings = read_character_settings(loaded)
    except ConfigError as error:
        yield Finding(FindingStatus.FAIL, "settings", str(error), "save .env as plain text in UTF-8")
        return
    config = None
    reported: list[str] = []
    if loaded is not None:
        try:
            config = load_character_config(path)
        except SettingError as error:
            reported = str(error).splitlines()
            for line in reported:
                yield Finding(FindingStatus.FAIL, "settings", line, checks.SETTINGS_ADVICE)
        except ConfigError as error:
            yield Finding(FindingStatus.FAIL, "plugins", str(error), "`bot plugin list` shows the plugins")
    yield from _settings_findings(settings, config, reported, fix=fix)


def _settings_findings(
    settings: Settings, config: CharacterConfig | None, reported: Sequence[str], *, fix: bool
) -> Iterator[Finding]:
    """Yield the findings that need settings, and those that need a loaded character if there is one.

    `reported` are problems of settings that prevented it from being loaded.
    """
    groups, unchecked = find_settings_groups(config.plugins if config else ())
    if config is None:
        unchecked.append("the character's plugins could not be loaded, and may have variables of their own")
    settings = settings.with_models(*(group.model for group in groups))
    for note in ignored_settings_note(settings):
        yield Finding(FindingStatus.WARN, "settings", note)
    yield from checks.check_settings(settings, groups, reported, unchecked)
    with suppress(SettingError):
        yield from checks.check_files(settings.load(CoreSettings), fix=fix)
    if config is None:
        return
    yield from checks.check_character(config.path, config.loaded)
    yield from checks.check_description(config)
    yield from checks.check_plugins(config)
    yield from checks.check_database(config)
    yield from check_tasks(config)
    yield from check_running_bot(config)
    platforms = list_platforms([config])
    yield from checks.check_platforms(platforms)
    for platform in platforms:
        if platform.name == WEB:
            yield from checks.check_port(config, platform)
    yield from check_budget(config.settings)
    level = config.settings.get("LOG_LEVEL") or "ERROR"
    specs = [connected.spec for connected in platforms if connected.spec is not None]
    secrets = config.secrets | config.settings.secrets(*(spec.settings for spec in specs))
    with configure_logging(level=level, secrets=secrets):
        yield from check_accounts(config, platforms)
        yield from asyncio.run(check_model(config))
