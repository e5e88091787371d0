"""Check the database, bring its schema up to date, or copy it as a whole."""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.cli.characters import Part, add_character_option, read_part
from bot.cli.process.exit_codes import Exit
from bot.cli.running_bot import kept_by
from bot.logs import harmless, logging_to_stderr
from bot.plugin_system.plugin import schemas_of
from bot.store.storage import Checkup, Storage, Upgraded

NOTHING = (
    "there is no database yet: the first `bot run` or `bot chat` makes it; if there should be one, look at "
    "BOT_DATA_DIR, DATABASE_URL and the folder you are in"
)
Act = Callable[[argparse.Namespace, Storage, Part], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="upgrade|check|backup")
    upgrade = commands.add_parser("upgrade", help="bring the schema up to date; the bot must not run")
    check = commands.add_parser("check", help="look whether it is whole, and what it holds")
    backup = commands.add_parser("backup", help="copy it as it is now, also while the bot runs")
    backup.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="the copy (default: beside the database, dated)"
    )
    acts: dict[argparse.ArgumentParser, Act] = {upgrade: _upgrade, check: _check, backup: _backup}
    for command, act in acts.items():
        add_character_option(command)
        command.add_argument("--json", action="store_true", help="print the outcome as JSON")
        command.set_defaults(act=act)


def run(args: argparse.Namespace) -> int:
    """Do what is asked to the database that the character's settings name."""
    part = read_part(args.character)
    storage = kept_by(part)
    level = part.settings.get("LOG_LEVEL") or "WARNING"
    with logging_to_stderr(level=level, secrets=part.secrets):
        act: Act = args.act
        return act(args, storage, part)


def _upgrade(args: argparse.Namespace, storage: Storage, part: Part) -> int:
    done = asyncio.run(storage.upgrade(part.settings, schemas_of(part.plugins)))
    told = {"place": done.place, "before": done.before, "after": done.after}
    print(json.dumps(told, ensure_ascii=False) if args.json else harmless(_upgraded(done)))
    return Exit.OK


def _upgraded(done: Upgraded) -> str:
    if done.before is None:
        return f"{done.place}: made, with schema {done.after}"
    if done.before == done.after:
        return f"{done.place}: up to date, schema {done.after}"
    return f"{done.place}: from schema {done.before} to {done.after}"


def _check(args: argparse.Namespace, storage: Storage, part: Part) -> int:
    found = asyncio.run(storage.check(part.settings))
    problems = list(found.problems) if found.is_there else [NOTHING]
    if args.json:
        told = {"ok": not problems, "place": found.place, "facts": dict(found.facts), "problems": problems}
        print(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        print("\n".join(harmless(line) for line in _lines(found, problems)))
    return Exit.CONFIG if problems else Exit.OK


def _lines(found: Checkup, problems: list[str]) -> Iterator[str]:
    yield f"{found.place}: {'not well' if problems else 'all is well'}"
    for name, value in found.facts.items():
        yield f"  {name:<17} {value if isinstance(value, str) else format(value, ',')}"
    for problem in problems:
        yield f"  → {problem}"


def _backup(args: argparse.Namespace, storage: Storage, part: Part) -> int:
    copy = asyncio.run(storage.backup(part.settings, args.file))
    told = {"file": str(copy), "bytes": copy.stat().st_size}
    print(json.dumps(told, ensure_ascii=False) if args.json else harmless(f"copied to {copy}"))
    return Exit.OK
