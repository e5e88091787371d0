"""List the events of the platforms that could not be read."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Annotated

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import MAX_COUNT, AsJson, CharacterFile, examples, new_group, print_rows
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import open_store_for_reading
from bot.domain.inbound import UnreadableEvent
from bot.logs import configure_logging
from bot.text import shorten

DEFAULT_LIMIT, MAX_RAW_LENGTH = 100, 200


app = new_group("List the events of the platforms that could not be read.")


@app.command("list", epilog=examples("bot inbox list", "bot inbox list --limit 5 --json"))
def list_events(
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N events.", show_default=True)
    ] = DEFAULT_LIMIT,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """List the events that could not be read, newest first; with --json, whole."""
    config = load_character_config(character)
    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        events = asyncio.run(_load_events(config, limit))
    if as_json:
        print(json.dumps({"events": [_event_json(event) for event in events]}, ensure_ascii=False, indent=2))
    else:
        rows = [
            (event.event_id, event.platform, event.account, _received(event), shorten(event.raw, 60), event.cause)
            for event in events
        ]
        lines = list(_event_lines(events)) or ["every event could be read"]
        print_rows(("event", "platform", "account", "received", "content", "cause"), rows, lines)
    return Exit.OK


async def _load_events(config: CharacterConfig, limit: int) -> list[UnreadableEvent]:
    async with open_store_for_reading(config) as store:
        return await store.ledger.unreadable_events(limit)


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
        yield f"{event.event_id}  {event.platform} ({event.account}), {_received(event)}"
        yield f"  {shorten(event.raw, MAX_RAW_LENGTH)}"
        yield f"  → {event.cause}"


def _received(event: UnreadableEvent) -> str:
    return f"{event.received_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
