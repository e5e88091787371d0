"""List undelivered parts; send a held or failed part again, or give one up."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import MAX_COUNT, AsJson, CharacterFile, examples, new_group, print_result
from bot.cli.process.shutdown import UsageError
from bot.cli.running_bot import read_store, run_connected
from bot.domain.ledger import Delivery, DeliveryState
from bot.operate.operations import DELIVERY_STATES, Operations, PartDecision, PartState
from bot.outbound.outbox import describe_cause, list_behind
from bot.store.lists import ListStore, PageKey
from bot.text import shorten

DEFAULT_LIMIT, MAX_TEXT_LENGTH = 100, 60


app = new_group("List undelivered parts; send a held or failed part again, or give one up.")
PartIds = Annotated[list[str], typer.Argument(metavar="ID...", help="A part's id, as `bot outbox list` shows it.")]


@app.command("list", epilog=examples("bot outbox list", "bot outbox list --state held --json"))
def list_parts(
    state: Annotated[
        list[PartState] | None,
        typer.Option(metavar="STATE", help=f"Only parts in this state ({', '.join(PartState)}); may be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N parts.", show_default=True)
    ] = DEFAULT_LIMIT,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """List the parts that wait, are being sent, are held or have failed."""
    config = load_character_config(character)
    operations = partial(Operations.on_store, config.agent_config.agent_id)
    parts = read_store(config, lambda store: _load_parts(operations(store), limit, state or ()))
    rows, lines = [], []
    for part, cause in parts:
        part_id, sent_state, attempts, age = part["id"], part["state"], part["attempts"], _age(part["created_at"])
        is_held = sent_state == DeliveryState.UNKNOWN
        text = shorten(part["text"], MAX_TEXT_LENGTH)
        rows.append((part_id, "held" if is_held else sent_state, age, str(attempts), part["room"], text, cause))
        shown_state = f"{sent_state}, held" if is_held else sent_state
        lines += [f"{part_id}  {shown_state}, {age} old, {attempts} attempts, for {part['room']}", f"  {text!r}"]
        lines += [f"  → {cause}"] if cause else []
    header = ("part", "state", "age", "attempts", "room", "text", "cause")
    lines = lines or ["nothing is undelivered"]
    listed = [part for part, _ in parts]
    return print_result({"parts": listed}, lines, as_json=as_json, header=header, rows=rows)


@app.command(PartDecision.SEND, epilog=examples("bot outbox send 01a205c4"))
def send_parts(ids: PartIds, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Send held or failed parts again."""
    return _decide_all(PartDecision.SEND, ids, character, as_json=as_json)


@app.command(PartDecision.DROP, epilog=examples("bot outbox drop 01a205c4"))
def drop_parts(ids: PartIds, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Drop parts: they are not sent again."""
    return _decide_all(PartDecision.DROP, ids, character, as_json=as_json)


def _decide_all(decision: PartDecision, ids: Sequence[str], character: Path | None, *, as_json: bool) -> int:
    config = load_character_config(character)
    parts = [_decide(config, decision, part_id) for part_id in dict.fromkeys(ids)]
    rows = [(part["id"], part["note"]) for part in parts]
    lines = [f"{part_id}: {note}" for part_id, note in rows]
    return print_result({"parts": parts}, lines, as_json=as_json, header=("part", "result"), rows=rows)


async def _load_parts(
    operations: Operations, limit: int, states: Collection[PartState]
) -> list[tuple[dict[str, Any], str]]:
    """Return the undelivered parts as JSON, with the names of the HTTP API, and why each has not arrived.

    With `states` only those in one of them.
    """
    found = await (_find_parts(operations.lists, limit, states) if states else operations.undelivered.parts(limit))
    parts, behind = await operations.describe_parts(found), list_behind(found)
    hidden = {"agent_id", "status", "why", "receipt_id"}
    bodies = [
        part.model_dump(exclude=hidden) | {"external_id": part.external_id, "room": f"{part.room} ({part.platform})"}
        for part in parts
    ]
    return [(body, shorten(describe_cause(part, behind), 200)) for body, part in zip(bodies, found, strict=True)]


async def _find_parts(lists: ListStore, limit: int, states: Collection[PartState]) -> list[Delivery]:
    """Return the latest parts in these states, in the order of sending."""
    found: list[Delivery] = []
    wanted = frozenset(state for name in states for state in DELIVERY_STATES[name])
    key: PageKey | None = None
    while len(found) < limit:
        page = await lists.deliveries(wanted, before=key)
        found += [part for _, part in page.items if PartState.of(part) in states]
        if (key := page.next) is None:
            break
    return found[:limit][::-1]


def _age(created_at: datetime) -> str:
    seconds = max(int((datetime.now(UTC) - created_at).total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _decide(config: CharacterConfig, decision: PartDecision, part_id: str) -> dict[str, str]:
    result = run_connected(config, lambda operations: operations.decide(part_id, decision))
    if result.part is None:
        raise UsageError(f"there is no part {part_id!r}: `bot outbox list` shows the parts")
    if not result.is_done:
        raise UsageError(f"part {part_id}: {result.note}")
    return {"id": part_id, "state": result.part.state, "note": result.note}
