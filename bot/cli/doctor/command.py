"""Check the set-up: Python, settings, character, plugins, database, data, port, platforms, costs, model."""

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress

from bot.characters import load_character
from bot.cli.characters import Part, add_character_option, default_character, read_part, settings_of
from bot.cli.doctor.account_checks import check_accounts, check_tasks
from bot.cli.doctor.checks import (
    CORRECT,
    Finding,
    Status,
    check_character,
    check_database,
    check_files,
    check_platforms,
    check_plugins,
    check_port,
    check_python,
    check_settings,
    lines_of,
)
from bot.cli.doctor.model_checks import check_budget, check_model
from bot.cli.platforms import PAGE, survey
from bot.cli.process.exit_codes import Exit
from bot.cli.variables import known_groups
from bot.errors import ConfigError, SettingError
from bot.logs import logging_to_stderr
from bot.settings import CoreSettings, Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--fix", action="store_true", help="let nobody else read .env and the data, where others can"
    )


def run(args: argparse.Namespace) -> int:
    """Look at everything, whatever the first fault is, and tell."""
    findings: list[Finding] = []
    for finding in _findings(args):
        if finding.what in [earlier.what for earlier in findings]:
            continue
        findings.append(finding)
        if not args.json:
            print("\n".join(lines_of(finding)), flush=True)
    failed = [finding for finding in findings if finding.status is Status.FAIL]
    if args.json:
        told = {"ok": not failed, "findings": [finding.to_json() for finding in findings]}
        print(json.dumps(told, ensure_ascii=False, indent=2))
    if not failed:
        return Exit.OK
    return Exit.TRY_AGAIN if all(finding.is_outside for finding in failed) else Exit.CONFIG


def _findings(args: argparse.Namespace) -> Iterator[Finding]:
    yield from check_python()
    path = args.character or default_character()
    loaded = None
    try:
        loaded = load_character(path)
    except ConfigError as error:
        yield Finding(Status.FAIL, "character", str(error), "correct the file, or name another with -c FILE")
    else:
        yield from check_character(path, loaded)
    try:
        settings = settings_of(loaded)
    except ConfigError as error:
        yield Finding(Status.FAIL, "settings", str(error), "save .env as plain text in UTF-8")
        return
    part = None
    if loaded is not None:
        try:
            part = read_part(path)
        except SettingError as error:
            for line in str(error).splitlines():
                yield Finding(Status.FAIL, "settings", line, CORRECT)
        except ConfigError as error:
            yield Finding(Status.FAIL, "plugins", str(error), "`bot plugin list` shows what there is")
    yield from _about(settings, part, mend=args.fix)


def _about(settings: Settings, part: Part | None, *, mend: bool) -> Iterator[Finding]:
    """Give what can be told with settings, and with a character that loads where there is one."""
    groups, problems = known_groups(part.plugins if part else ())
    yield from check_settings(settings, groups)
    for problem in problems:
        yield Finding(Status.OK, "platforms", f"not to be had: {problem}")
    with suppress(SettingError):
        yield from check_files(settings.load(CoreSettings), mend=mend)
    if part is None:
        return
    yield from check_plugins(part)
    yield from check_database(part)
    yield from check_tasks(part)
    platforms = survey([part])
    yield from check_platforms(platforms)
    for platform in platforms:
        if platform.name == PAGE:
            yield from check_port(part.settings, platform)
    yield from check_budget(part.settings)
    level = part.settings.get("LOG_LEVEL") or "ERROR"
    specs = [one.spec for one in platforms if one.spec is not None]
    secrets = part.secrets | part.settings.secrets(*(spec.settings for spec in specs))
    with logging_to_stderr(level=level, secrets=secrets):
        yield from check_accounts(part, platforms)
        yield from asyncio.run(check_model(part))
