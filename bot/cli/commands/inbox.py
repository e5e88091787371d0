"""List the events of the platforms that could not be read."""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC

from bot.cli.characters import CharacterConfig, add_character_option, load_character_config
from bot.cli.process.exit_codes import Exit
from bot.cli.running_bot import open_store_for_reading
from bot.domain.inbound import UnreadableEvent
from bot.logs import configure_logging
from bot.text import shorten, strip_terminal_codes

DEFAULT_LIMIT, MAX_RAW_LENGTH = 100, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="list", dest="act")
    listing = commands.add_parser("list", help="the events that could not be read, newest first")
    listing.add_argument(
        "--limit", metavar="N", type=int, default=DEFAULT_LIMIT, help=f"at most N events ({DEFAULT_LIMIT})"
    )
    add_character_option(listing)
    listing.add_argument("--json", action="store_true", help="print whole events as JSON")


def run(args: argparse.Namespace) -> int:
    """List the events."""
    config = load_character_config(args.character)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        events = asyncio.run(_load_events(config, args.limit))
    if args.json:
        print(json.dumps({"events": [_event_json(event) for event in events]}, ensure_ascii=False, indent=2))
    else:
        lines = list(_event_lines(events)) or ["every event could be read"]
        print(strip_terminal_codes("\n".join(lines), allowed="\n"))
    return Exit.OK


async def _load_events(config: CharacterConfig, limit: int) -> list[UnreadableEvent]:
    async with open_store_for_reading(config) as store:
        return await store.ledger.unreadable_events(max(limit, 1))


def _event_json(event: UnreadableEvent) -> dict[str, str]:
    return {
        "id": event.event_id,
        "platform": event.platform,
        "account": event.account,
        "received_at": event.received_at.isoformat(),
        "cause": event.cause,
        "raw": event.raw,
    }


def _event_lines(events: Sequence[UnreadableEvent]) -> Iterator[str]:
    for event in events:
        received_at = event.received_at.astimezone(UTC)
        yield f"{event.event_id}  {event.platform} ({event.account}), {received_at:%Y-%m-%d %H:%M:%S} UTC"
        yield f"  {shorten(event.raw, MAX_RAW_LENGTH)}"
        yield f"  → {event.cause}"
