"""List the processes that share a character's database, and drain one for an upgrade."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, new_command
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.running_bot import open_store_for_reading, require_storage
from bot.cli.terminal_style import print_rows
from bot.errors import ConfigError
from bot.logs import configure_logging
from bot.plugin_system.plugin import collect_schemas
from bot.store.protocols import Store
from bot.store.work_sharing import Member, Members, WorkLag

app = new_command(invoke_without_command=True)


@app.callback(epilog=examples("bot cluster", "bot cluster --json", "bot cluster drain 12"))
def list_members(context: typer.Context, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the processes that share a character's database: what each holds, and how late the work is."""
    if context.invoked_subcommand is not None:
        return Exit.OK
    config = load_character_config(character)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        members, lag = asyncio.run(_find(config))
    if as_json:
        document = {"members": [asdict(member) for member in members], "lag": asdict(lag)}
        print(json.dumps(document, default=_to_text, ensure_ascii=False, indent=2))
    else:
        now = datetime.now(UTC)
        header = ("member", "role", "state", "rooms", "accounts", "host", "process", "version", "heartbeat")
        print_rows(header, [_row(member, now) for member in members], _member_lines(members, now))
        print(f"oldest unanswered message: {_age(now, lag.oldest_unanswered)}")
        print(f"oldest undelivered part: {_age(now, lag.oldest_undelivered)}")
    return Exit.OK


@app.command(epilog=examples("bot cluster drain 12"))
def drain(
    member: Annotated[int, typer.Argument(metavar="MEMBER", help="The number that `bot cluster` shows.")],
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Request that a process release its rooms and accounts and take no others; then stop it."""
    config = load_character_config(character)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        if not asyncio.run(_drain(config, member)):
            raise UsageError(f"there is no process {member}: `bot cluster` shows them")
    if as_json:
        print(json.dumps({"member": member, "is_draining": True}))
    else:
        print(f"{member}: it releases its work; `bot cluster` shows what it still holds, stop it at 0 rooms")
    return Exit.OK


async def _find(config: CharacterConfig) -> tuple[list[Member], WorkLag]:
    async with open_store_for_reading(config) as store:
        return await _members(config, store).find()


async def _drain(config: CharacterConfig, number: int) -> bool:
    agent_id = config.agent_config.agent_id
    async with require_storage(config).open(agent_id, config.settings, collect_schemas(config.plugins)) as store:
        return await _members(config, store).drain(number)


def _members(config: CharacterConfig, store: Store) -> Members:
    if store.sharing is None:
        raise ConfigError(
            f"{config.name}: the database of this character is used by one process only; several share a PostgreSQL "
            "database: set POSTGRES_URL"
        )
    return store.sharing.members


def _row(member: Member, now: datetime) -> tuple[str, ...]:
    state = "draining" if member.is_draining else "on"
    accounts = ", ".join(member.accounts)
    place = (member.host or "", str(member.process or ""), member.version)
    heartbeat = f"{_seconds(now, member.last_heartbeat)} ago"
    return (str(member.number), member.role, state, str(member.rooms), accounts, *place, heartbeat)


def _member_lines(members: list[Member], now: datetime) -> Iterator[str]:
    if not members:
        yield "no process runs this character"
    for member in members:
        place = f"{member.host}, process {member.process}" if member.host else "of a version that does not tell where"
        since = "" if member.since is None else f", since {member.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        beat = f"heartbeat {_seconds(now, member.last_heartbeat)} ago"
        draining = ", draining" if member.is_draining else ""
        yield f"{member.number}  {member.role}{draining}  {place}  {member.version}{since}, {beat}"
        yield f"  {member.rooms} room{'s' * (member.rooms != 1)}{''.join(f', {name}' for name in member.accounts)}"


def _age(now: datetime, since: datetime | None) -> str:
    return "none" if since is None else f"{_seconds(now, since)} old"


def _seconds(now: datetime, then: datetime) -> str:
    return f"{max((now - then) / timedelta(seconds=1), 0.0):.1f} s"


def _to_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
