"""List the events of the platforms that could not be read."""

from datetime import UTC
from typing import Annotated

import typer

from bot.cli.characters import load_character_config
from bot.cli.options import MAX_COUNT, AsJson, CharacterFile, examples, new_group, print_result
from bot.cli.running_bot import read_store
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
    events = read_store(load_character_config(character), lambda store: store.ledger.unreadable_events(limit))
    fields = ("platform", "account", "received_at", "cause", "raw")
    documents = [{"id": event.event_id} | {name: getattr(event, name) for name in fields} for event in events]
    rows, lines = [], []
    for event in events:
        received = f"{event.received_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        rows.append((event.event_id, event.platform, event.account, received, shorten(event.raw, 60), event.cause))
        lines += [
            f"{event.event_id}  {event.platform} ({event.account}), {received}",
            f"  {shorten(event.raw, MAX_RAW_LENGTH)}",
            f"  → {event.cause}",
        ]
    header = ("event", "platform", "account", "received", "content", "cause")
    lines = lines or ["every event could be read"]
    return print_result({"events": documents}, lines, as_json=as_json, header=header, rows=rows)
