"""Check, upgrade, back up, restore or repair the database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import CharacterConfig
from bot.cli.options import Output, examples, new_group, progress
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
def upgrade(config: CharacterConfig) -> Output:
    """Upgrade the schema; the bot must not run."""
    with _storage(config) as storage, progress("upgrading the database"):
        result = asyncio.run(storage.upgrade(config.settings, collect_schemas(config.plugins)))
    old, new = result.old_version, result.new_version
    if result.is_newer:
        state = f"left as it is: schema {new} is newer than this version's, and compatible with it"
    elif old is None:
        state = f"created, with schema {new}"
    else:
        state = f"from schema {old} to {new}" if old != new else f"up to date, schema {new}"
    document = {"place": result.location, "before": old, "after": new}
    return Output(document, [f"{result.location}: {state}"], indent=None)


@db_app.command(epilog=examples("bot db check", "bot db check --repair"))
def check(
    config: CharacterConfig,
    repair: Annotated[
        bool, typer.Option("--repair", help="Copy what can be read of a damaged database into a new file.")
    ] = False,
) -> Output:
    """Check it and show its contents."""
    with _storage(config) as storage:
        if repair:
            return _repair(storage, config)
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
    return Output(document, lines, code=Exit.CONFIG if problems else Exit.OK)


@db_app.command(epilog=examples("bot db backup", "bot db backup /backups/greenroom.db"))
def backup(
    config: CharacterConfig,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The copy (default: next to the database, dated).")
    ] = None,
) -> Output:
    """Copy it as of now, also while the bot runs."""
    with _storage(config) as storage, progress("copying the database"):
        copy = asyncio.run(storage.backup(config.settings, file))
    return Output({"file": copy, "bytes": copy.stat().st_size}, [f"copied to {copy}"], indent=None)


@db_app.command(epilog=examples("bot db restore data/greenroom-backup.db"))
def restore(
    config: CharacterConfig,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A copy made by `bot db backup`, or another database.")],
) -> Output:
    """Verify a copy and put it in the place of the database."""
    with _storage(config) as storage, progress("verifying the copy"):
        previous = asyncio.run(storage.restore(config.settings, file))
        restored = asyncio.run(storage.check(config.settings))
    facts = dict(restored.facts)
    document = {"file": file, "previous": previous, "facts": facts}
    counts = "".join(f", {facts[name]:,} {name}" for name in RESTORED_TABLES if name in facts)
    lines = [
        f"{file} is the database now; its open work is held at the next start",
        f"restored: schema {facts.get('schema')}{counts}",
        *([f"the previous database is kept as {previous}"] if previous is not None else []),
    ]
    return Output(document, lines, indent=None)


@contextmanager
def _storage(config: CharacterConfig) -> Iterator[Storage]:
    storage = require_storage(config)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        yield storage


def _repair(storage: Storage, config: CharacterConfig) -> Output:
    with progress("copying what can be read"):
        copy, lost = asyncio.run(storage.repair(config.settings, collect_schemas(config.plugins)))
    losses = ", ".join(f"{count:,} of {table}" for table, count in lost.items())
    lines = [
        f"copied to {copy}; lost: {losses or 'nothing'}",
        f"`bot db restore {copy}` puts it in the place of the database",
    ]
    return Output({"file": copy, "lost": dict(lost)}, lines, indent=None)
