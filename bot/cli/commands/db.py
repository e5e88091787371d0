"""Check, upgrade, back up, restore or repair the database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, new_group, print_result, progress
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import require_storage
from bot.logs import configure_logging
from bot.plugin_system.plugin import collect_schemas
from bot.store.storage import Storage

RESTORED_TABLES = ("memories", "entities", "rooms", "receipts", "tasks")
NO_DATABASE = (
    "there is no database yet: the first `bot run` or `bot chat` creates it; if there should be one, check "
    "BOT_DATA_DIR, DATABASE_URL and the current folder"
)
db_app = new_group("Check, upgrade, back up, restore or repair the database that the character's settings name.")


@db_app.command(epilog=examples("bot db upgrade -c mine.json"))
def upgrade(character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Upgrade the schema; the bot must not run."""
    with _storage(character) as (storage, config), progress("upgrading the database"):
        result = asyncio.run(storage.upgrade(config.settings, collect_schemas(config.plugins)))
    old, new = result.old_version, result.new_version
    upgraded = f"from schema {old} to {new}" if old != new else f"up to date, schema {new}"
    state = upgraded if old is not None else f"created, with schema {new}"
    document = {"place": result.location, "before": old, "after": new}
    return print_result(document, [f"{result.location}: {state}"], as_json=as_json, indent=None)


@db_app.command(epilog=examples("bot db check", "bot db check --repair"))
def check(
    repair: Annotated[
        bool, typer.Option("--repair", help="Copy what can be read of a damaged database into a new file.")
    ] = False,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Check it and show its contents."""
    with _storage(character) as (storage, config):
        if repair:
            return _repair(storage, config, as_json=as_json)
        with progress("checking the database"):
            report = asyncio.run(storage.check(config.settings))
    problems = list(report.problems) if report.exists else [NO_DATABASE]
    document = {"ok": not problems, "place": report.location, "facts": dict(report.facts), "problems": problems}
    facts = ((name, value if isinstance(value, str) else f"{value:,}") for name, value in report.facts.items())
    lines = [
        f"{report.location}: {'problems found' if problems else 'no problems'}",
        *(f"  {name:<17} {value}" for name, value in facts),
        *(f"  → {problem}" for problem in problems),
    ]
    print_result(document, lines, as_json=as_json)
    return Exit.CONFIG if problems else Exit.OK


@db_app.command(epilog=examples("bot db backup", "bot db backup /backups/greenroom.db"))
def backup(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The copy (default: next to the database, dated).")
    ] = None,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Copy it as of now, also while the bot runs."""
    with _storage(character) as (storage, config), progress("copying the database"):
        copy = asyncio.run(storage.backup(config.settings, file))
    document = {"file": str(copy), "bytes": copy.stat().st_size}
    return print_result(document, [f"copied to {copy}"], as_json=as_json, indent=None)


@db_app.command(epilog=examples("bot db restore data/greenroom-backup.db"))
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A copy made by `bot db backup`, or another database.")],
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Verify a copy and put it in the place of the database."""
    with _storage(character) as (storage, config), progress("verifying the copy"):
        previous = asyncio.run(storage.restore(config.settings, file))
        restored = asyncio.run(storage.check(config.settings))
    facts = dict(restored.facts)
    document = {"file": str(file), "previous": previous and str(previous), "facts": facts}
    counts = "".join(f", {facts[name]:,} {name}" for name in RESTORED_TABLES if name in facts)
    lines = [
        f"{file} is the database now; its open work is held at the next start",
        f"restored: schema {facts.get('schema')}{counts}",
        *([f"the previous database is kept as {previous}"] if previous is not None else []),
    ]
    return print_result(document, lines, as_json=as_json, indent=None)


@contextmanager
def _storage(character: Path | None) -> Iterator[tuple[Storage, CharacterConfig]]:
    config = load_character_config(character)
    storage = require_storage(config)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        yield storage, config


def _repair(storage: Storage, config: CharacterConfig, *, as_json: bool) -> int:
    with progress("copying what can be read"):
        copy, lost = asyncio.run(storage.repair(config.settings, collect_schemas(config.plugins)))
    losses = ", ".join(f"{count:,} of {table}" for table, count in lost.items())
    lines = [
        f"copied to {copy}; lost: {losses or 'nothing'}",
        f"`bot db restore {copy}` puts it in the place of the database",
    ]
    return print_result({"file": str(copy), "lost": dict(lost)}, lines, as_json=as_json, indent=None)
