"""List what has not arrived; send a held or failed part after all, or give one up for good."""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from bot.cli.characters import Part, add_character_option, read_part
from bot.cli.message_report import part_json, place_of
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.running_bot import kept_by, looked_into, neighbour_of
from bot.domain.ledger import DeliveryState
from bot.errors import ConfigError, StoreRefused, TryAgain
from bot.inbound.agent_handle import Records
from bot.logs import harmless, logging_to_stderr
from bot.outbound.undelivered import Unsent
from bot.plugin_system.plugin import schemas_of
from bot.text import shorten

MOST, LONGEST = 100, 60
SEND, DROP = "send", "drop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="list|send|drop", dest="act")
    listing = commands.add_parser("list", help="what waits, is under way, is held or has failed")
    listing.add_argument("--limit", metavar="N", type=int, default=MOST, help=f"at most so many ({MOST})")
    send = commands.add_parser(SEND, help="put held or failed parts back, so that they leave")
    drop = commands.add_parser(DROP, help="give parts up for good")
    for command in (send, drop):
        command.add_argument(
            "ids", metavar="ID", nargs="+", help="a part's id, as `bot outbox list` shows it"
        )
    for command in (listing, send, drop):
        add_character_option(command)
        command.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(args: argparse.Namespace) -> int:
    """List, or decide."""
    part = read_part(args.character)
    with logging_to_stderr(level=part.settings.get("LOG_LEVEL") or "WARNING", secrets=part.secrets):
        if args.act == "list":
            told = asyncio.run(_listed(part, args.limit))
            lines = list(_lines(told)) or ["everything has arrived"]
        else:
            told = [_decided(part, args.act, one) for one in dict.fromkeys(args.ids)]
            lines = [f"{one['id']}: {one['note']}" for one in told]
    if args.json:
        print(json.dumps({"parts": told}, ensure_ascii=False, indent=2))
    else:
        print(harmless("\n".join(lines), keep="\n"))
    return Exit.OK


async def _listed(part: Part, limit: int) -> list[dict[str, Any]]:
    """Look up what has not arrived; names are those of the HTTP API."""
    async with looked_into(part) as store:
        records = Records(store)
        found = await Unsent(store.ledger).parts(max(limit, 1))
        rooms = {one.room_id: await records.room(one.room_id) for one in found}
    return [
        {
            **part_json(one),
            "room_id": str(one.room_id),
            "room": place_of(rooms[one.room_id], one.room_id),
            "platform": one.platform,
            "text": one.content.text,
        }
        for one in found
    ]


def _lines(parts: Sequence[dict[str, Any]]) -> Iterator[str]:
    now = datetime.now(UTC)
    for one in parts:
        held = ", held" if one["state"] == DeliveryState.UNKNOWN else ""
        age = _told_age(now - datetime.fromisoformat(one["created_at"]))
        yield f"{one['id']}  {one['state']}{held}, {age} old, {one['attempts']} attempts, for {one['room']}"
        yield f"  {shorten(one['text'], LONGEST)!r}"
        if one["cause"]:
            yield f"  → {shorten(one['cause'], 200)}"


def _told_age(age: timedelta) -> str:
    seconds = max(int(age.total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _decided(part: Part, act: str, delivery_id: str) -> dict[str, Any]:
    """Decide about one part: in the books themselves or, where a bot has them open, through that bot."""
    if kept_by(part).is_shared(part.settings):
        with suppress(ConfigError, TryAgain):  # a running bot would not see what is changed behind its back
            return _decided_there(part, act, delivery_id)
    try:
        return asyncio.run(_decided_here(part, act, delivery_id))
    except StoreRefused as error:
        refusal = error
    try:
        return _decided_there(part, act, delivery_id)
    except (ConfigError, TryAgain) as error:
        raise type(error)(f"{refusal}\nand asking that process does not help: {error}") from None


async def _decided_here(part: Part, act: str, delivery_id: str) -> dict[str, Any]:
    agent_id = part.blueprint.agent_id
    async with looked_into(part) as store:
        if await store.ledger.delivery(delivery_id) is None:
            raise UsageError(f"there is no part {delivery_id!r}: `bot outbox list` shows them")
    async with kept_by(part).open(agent_id, part.settings, schemas_of(part.plugins)) as store:
        unsent = Unsent(store.ledger)
        decided = await (unsent.send(delivery_id) if act == SEND else unsent.drop(delivery_id))
    if decided is None or not decided.is_done:
        raise UsageError(f"part {delivery_id}: {decided.note if decided else 'it is gone'}")
    return {"id": delivery_id, "state": decided.part.state.value, "note": decided.note}


def _decided_there(part: Part, act: str, delivery_id: str) -> dict[str, Any]:
    neighbour = neighbour_of(part)
    reply = neighbour.post(f"/api/outbox/{quote(delivery_id, safe='')}/{act}")
    if reply.status is HTTPStatus.OK:
        return {name: reply.body.get(name, "") for name in ("id", "state", "note")}
    if reply.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
        raise UsageError(f"part {delivery_id}: {reply.problem}")
    raise ConfigError(f"the bot at {neighbour} refuses: {reply.problem}")
