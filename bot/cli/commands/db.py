"""Check, upgrade, back up, restore or repair the database."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, new_group, progress
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import require_storage
from bot.logs import configure_logging
from bot.plugin_system.plugin import collect_schemas
from bot.store.storage import CheckReport, Storage, UpgradeResult
from bot.text import strip_terminal_codes

RESTORED_TABLES = ("memories", "entities", "rooms", "receipts", "tasks")
NO_DATABASE = (
    "there is no database yet: the first `bot run` or `bot chat` creates it; if there should be one, check "
    "BOT_DATA_DIR, DATABASE_URL and the current folder"
)
app = new_group("Check, upgrade, back up, restore or repair the database that the character's settings name.")


@app.command(epilog=examples("bot db upgrade -c mine.json"))
def upgrade(character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Upgrade the schema; the bot must not run."""
    with _storage(character) as (storage, config), progress("upgrading the database"):
        result = asyncio.run(storage.upgrade(config.settings, collect_schemas(config.plugins)))
    document = {"place": result.location, "before": result.old_version, "after": result.new_version}
    print(json.dumps(document, ensure_ascii=False) if as_json else strip_terminal_codes(_format_upgrade(result)))
    return Exit.OK


@app.command(epilog=examples("bot db check", "bot db check --repair"))
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
    if as_json:
        document = {"ok": not problems, "place": report.location, "facts": dict(report.facts), "problems": problems}
        print(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        print("\n".join(strip_terminal_codes(line) for line in _report_lines(report, problems)))
    return Exit.CONFIG if problems else Exit.OK


@app.command(epilog=examples("bot db backup", "bot db backup /backups/greenroom.db"))
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
    print(json.dumps(document, ensure_ascii=False) if as_json else strip_terminal_codes(f"copied to {copy}"))
    return Exit.OK


@app.command(epilog=examples("bot db restore data/greenroom-backup.db"))
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
    if as_json:
        document = {"file": str(file), "previous": str(previous) if previous else None, "facts": facts}
        print(json.dumps(document, ensure_ascii=False))
        return Exit.OK
    counts = ", ".join(f"{facts[name]:,} {name}" for name in RESTORED_TABLES if name in facts)
    print(strip_terminal_codes(f"{file} is the database now; its open work is held at the next start"))
    print(strip_terminal_codes(f"restored: schema {facts.get('schema')}{counts and f', {counts}'}"))
    if previous is not None:
        print(strip_terminal_codes(f"the previous database is kept as {previous}"))
    return Exit.OK


@contextmanager
def _storage(character: Path | None) -> Iterator[tuple[Storage, CharacterConfig]]:
    config = load_character_config(character)
    storage = require_storage(config)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        yield storage, config


def _format_upgrade(result: UpgradeResult) -> str:
    if result.old_version is None:
        return f"{result.location}: created, with schema {result.new_version}"
    if result.old_version == result.new_version:
        return f"{result.location}: up to date, schema {result.new_version}"
    return f"{result.location}: from schema {result.old_version} to {result.new_version}"


def _report_lines(report: CheckReport, problems: list[str]) -> Iterator[str]:
    yield f"{report.location}: {'problems found' if problems else 'no problems'}"
    for name, value in report.facts.items():
        yield f"  {name:<17} {value if isinstance(value, str) else format(value, ',')}"
    for problem in problems:
        yield f"  → {problem}"


def _repair(storage: Storage, config: CharacterConfig, *, as_json: bool) -> int:
    with progress("copying what can be read"):
        copy, lost = asyncio.run(storage.repair(config.settings, collect_schemas(config.plugins)))
    if as_json:
        print(json.dumps({"file": str(copy), "lost": dict(lost)}))
        return Exit.OK
    losses = ", ".join(f"{count:,} of {table}" for table, count in lost.items())
    print(strip_terminal_codes(f"copied to {copy}; lost: {losses or 'nothing'}"))
    print(strip_terminal_codes(f"`bot db restore {copy}` puts it in the place of the database"))
    return Exit.OK
