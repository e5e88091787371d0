"""Check, upgrade, back up, restore or repair the database."""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.cli.characters import CharacterConfig, add_character_option, load_character_config
from bot.cli.process.exit_codes import Exit
from bot.cli.running_bot import require_storage
from bot.logs import configure_logging
from bot.plugin_system.plugin import collect_schemas
from bot.store.storage import CheckReport, Storage, UpgradeResult
from bot.text import strip_terminal_codes

NO_DATABASE = (
    "there is no database yet: the first `bot run` or `bot chat` creates it; if there should be one, check "
    "BOT_DATA_DIR, DATABASE_URL and the current folder"
)
DatabaseCommand = Callable[[argparse.Namespace, Storage, CharacterConfig], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="upgrade|check|backup|restore")
    upgrade = commands.add_parser("upgrade", help="upgrade the schema; the bot must not run")
    check = commands.add_parser("check", help="check it and show its contents")
    backup = commands.add_parser("backup", help="copy it as of now, also while the bot runs")
    backup.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="the copy (default: next to the database, dated)"
    )
    check.add_argument(
        "--repair", action="store_true", help="copy what can be read of a damaged database into a new file"
    )
    restore = commands.add_parser("restore", help="verify a copy and put it in the place of the database")
    restore.add_argument("file", metavar="FILE", type=Path, help="a copy made by `bot db backup`, or another database")
    handlers: dict[argparse.ArgumentParser, DatabaseCommand] = {
        upgrade: _upgrade,
        check: _check,
        backup: _backup,
        restore: _restore,
    }
    for command, act in handlers.items():
        add_character_option(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.set_defaults(act=act)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand on the database that the character's settings name."""
    config = load_character_config(args.character)
    storage = require_storage(config)
    level = config.settings.get("LOG_LEVEL") or "WARNING"
    with configure_logging(level=level, secrets=config.secrets):
        command: DatabaseCommand = args.act
        return command(args, storage, config)


def _upgrade(args: argparse.Namespace, storage: Storage, config: CharacterConfig) -> int:
    result = asyncio.run(storage.upgrade(config.settings, collect_schemas(config.plugins)))
    document = {"place": result.location, "before": result.old_version, "after": result.new_version}
    print(json.dumps(document, ensure_ascii=False) if args.json else strip_terminal_codes(_format_upgrade(result)))
    return Exit.OK


def _format_upgrade(result: UpgradeResult) -> str:
    if result.old_version is None:
        return f"{result.location}: created, with schema {result.new_version}"
    if result.old_version == result.new_version:
        return f"{result.location}: up to date, schema {result.new_version}"
    return f"{result.location}: from schema {result.old_version} to {result.new_version}"


def _check(args: argparse.Namespace, storage: Storage, config: CharacterConfig) -> int:
    if args.repair:
        return _repair(args, storage, config)
    report = asyncio.run(storage.check(config.settings))
    problems = list(report.problems) if report.exists else [NO_DATABASE]
    if args.json:
        document = {"ok": not problems, "place": report.location, "facts": dict(report.facts), "problems": problems}
        print(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        print("\n".join(strip_terminal_codes(line) for line in _report_lines(report, problems)))
    return Exit.CONFIG if problems else Exit.OK


def _report_lines(report: CheckReport, problems: list[str]) -> Iterator[str]:
    yield f"{report.location}: {'problems found' if problems else 'no problems'}"
    for name, value in report.facts.items():
        yield f"  {name:<17} {value if isinstance(value, str) else format(value, ',')}"
    for problem in problems:
        yield f"  → {problem}"


def _backup(args: argparse.Namespace, storage: Storage, config: CharacterConfig) -> int:
    copy = asyncio.run(storage.backup(config.settings, args.file))
    document = {"file": str(copy), "bytes": copy.stat().st_size}
    print(json.dumps(document, ensure_ascii=False) if args.json else strip_terminal_codes(f"copied to {copy}"))
    return Exit.OK


def _restore(args: argparse.Namespace, storage: Storage, config: CharacterConfig) -> int:
    previous = asyncio.run(storage.restore(config.settings, args.file))
    if args.json:
        print(json.dumps({"file": str(args.file), "previous": str(previous) if previous else None}))
        return Exit.OK
    print(strip_terminal_codes(f"{args.file} is the database now; its open work is held at the next start"))
    if previous is not None:
        print(strip_terminal_codes(f"the previous database is kept as {previous}"))
    return Exit.OK


def _repair(args: argparse.Namespace, storage: Storage, config: CharacterConfig) -> int:
    copy, lost = asyncio.run(storage.repair(config.settings, collect_schemas(config.plugins)))
    if args.json:
        print(json.dumps({"file": str(copy), "lost": dict(lost)}))
        return Exit.OK
    losses = ", ".join(f"{count:,} of {table}" for table, count in lost.items())
    print(strip_terminal_codes(f"copied to {copy}; lost: {losses or 'nothing'}"))
    print(strip_terminal_codes(f"`bot db restore {copy}` puts it in the place of the database"))
    return Exit.OK
