"""`bot inbox`, `bot outbox`, `bot drafts`: events that could not be read, undelivered parts, and replies that wait."""

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from bot.cli.characters import CharacterConfig
from bot.cli.options import MAX_COUNT, Output, examples, new_group
from bot.cli.process.shutdown import UsageError
from bot.cli.running_bot import read_store, run_connected
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.proposal import ProposalState
from bot.operate.operations import DELIVERY_STATES, NO_DRAFT, Operations, PartDecision, PartState
from bot.outbound.outbox import describe_cause, list_behind
from bot.outbound.proposals import ProposalDecision
from bot.store.lists import ListStore, PageKey
from bot.store.protocols import Store
from bot.text import shorten

DEFAULT_LIMIT, MAX_RAW_LENGTH = 100, 200


inbox_app = new_group("List the events of the platforms that could not be read.")


@inbox_app.command("list", epilog=examples("bot inbox list", "bot inbox list --limit 5 --json"))
def list_events(
    config: CharacterConfig,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N events.", show_default=True)
    ] = DEFAULT_LIMIT,
) -> Output:
    """List the events that could not be read, newest first; with --json, whole."""
    events = read_store(config, lambda store: store.ledger.unreadable_events(limit))
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
    return Output({"events": documents}, lines or ["every event could be read"], header, rows)


MAX_PART_LENGTH = 60


outbox_app = new_group("List undelivered parts; send a held or failed part again, or give one up.")
PartIds = Annotated[list[str], typer.Argument(metavar="ID...", help="A part's id, as `bot outbox list` shows it.")]


@outbox_app.command("list", epilog=examples("bot outbox list", "bot outbox list --state held --json"))
def list_parts(
    config: CharacterConfig,
    state: Annotated[
        list[PartState] | None,
        typer.Option(metavar="STATE", help=f"Only parts in this state ({', '.join(PartState)}); may be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N parts.", show_default=True)
    ] = DEFAULT_LIMIT,
) -> Output:
    """List the parts that wait, are being sent, are held or have failed."""
    return read_store(config, lambda store: _list_parts(config.agent_id, store, limit, state or ()))


@outbox_app.command(PartDecision.SEND, epilog=examples("bot outbox send 01a205c4"))
def send_parts(config: CharacterConfig, ids: PartIds) -> Output:
    """Send held or failed parts again."""
    return _decide_all(config, PartDecision.SEND, ids)


@outbox_app.command(PartDecision.DROP, epilog=examples("bot outbox drop 01a205c4"))
def drop_parts(config: CharacterConfig, ids: PartIds) -> Output:
    """Drop parts: they are not sent again."""
    return _decide_all(config, PartDecision.DROP, ids)


def _decide_all(config: CharacterConfig, decision: PartDecision, ids: Sequence[str]) -> Output:
    parts = [_decide_part(config, decision, part_id) for part_id in dict.fromkeys(ids)]
    rows = [(part["id"], part["note"]) for part in parts]
    lines = [f"{part_id}: {note}" for part_id, note in rows]
    return Output({"parts": parts}, lines, ("part", "result"), rows)


async def _list_parts(agent_id: UUID, store: Store, limit: int, states: Collection[PartState]) -> Output:
    """Return the undelivered parts, with the names of the HTTP API; with `states` only those in one of them."""
    operations = Operations.on_store(agent_id, store)
    found = await (_find_parts(store.lists, limit, states) if states else operations.undelivered.parts(limit))
    described, behind = await operations.describe_parts(found), list_behind(found)
    documents, rows, lines = [], [], []
    for delivery, part in zip(found, described, strict=True):
        room, age = f"{part.room} ({part.platform})", _age(part.created_at)
        document = part.model_dump(exclude={"agent_id", "status", "why", "receipt_id"})
        documents.append(document | {"external_id": part.external_id, "room": room})
        is_held, text = part.state == DeliveryState.UNKNOWN, shorten(part.text, MAX_PART_LENGTH)
        cause = shorten(describe_cause(delivery, behind), 200)
        rows.append((part.id, "held" if is_held else part.state, age, str(part.attempts), room, text, cause))
        state = f"{part.state}, held" if is_held else part.state
        lines += [f"{part.id}  {state}, {age} old, {part.attempts} attempts, for {room}", f"  {text!r}"]
        lines += [f"  → {cause}"] if cause else []
    header = ("part", "state", "age", "attempts", "room", "text", "cause")
    return Output({"parts": documents}, lines or ["nothing is undelivered"], header, rows)


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


def _decide_part(config: CharacterConfig, decision: PartDecision, part_id: str) -> dict[str, str]:
    result = run_connected(config, lambda operations: operations.decide(part_id, decision))
    if result.part is None:
        raise UsageError(f"there is no part {part_id!r}: `bot outbox list` shows the parts")
    if not result.is_done:
        raise UsageError(f"part {part_id}: {result.note}")
    return {"id": part_id, "state": result.part.state, "note": result.note}


MAX_TEXT_LENGTH = 200
ACTOR = "an operator"
ALL = "all"
NO_DRAFTS = {ProposalState.WAITING: "no draft waits", ALL: "there are no drafts"}
ID_PATTERN = re.compile(r"[0-9a-f]{1,64}")

drafts_app = new_group("List replies and posts that wait for a person; send, edit or drop one.")
DraftId = Annotated[str, typer.Argument(metavar="ID", help="A draft's id, as `bot drafts list` shows it.")]
Revision = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Only if it still has this revision: nobody has changed its text."),
]


@drafts_app.command("list", epilog=examples("bot drafts list", "bot drafts list --state all --json"))
def list_drafts(
    config: CharacterConfig,
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE", help=f"Those in this state: {', '.join((*ProposalState, ALL))}.", show_default=True
        ),
    ] = ProposalState.WAITING.value,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N drafts.", show_default=True)
    ] = DEFAULT_LIMIT,
) -> Output:
    """List the drafts that wait, or those in another state."""
    if state not in (*ProposalState, ALL):
        raise UsageError(f"--state {state!r}: there are {', '.join((*ProposalState, ALL))}")
    selected = None if state == ALL else ProposalState(state)
    drafts = read_store(
        config, lambda store: Operations.on_store(config.agent_id, store).drafts(state=selected, limit=limit)
    )
    lines, rows = [], []
    for draft in drafts:
        room, text = f"{draft.room} ({draft.platform})", shorten(draft.text, MAX_TEXT_LENGTH)
        rows.append((draft.id, str(draft.revision), draft.state, room, draft.reason, text, draft.decided_by))
        decided = f" by {draft.decided_by}" if draft.decided_by else ""
        lines += [f"{draft.id}  revision {draft.revision}, {draft.state}{decided}, for {room}: {draft.reason}"]
        lines += [f"  > {shorten(draft.question, MAX_TEXT_LENGTH)!r}"] if draft.question else []
        lines += [f"  {text!r}"]
    header = ("draft", "revision", "state", "room", "reason", "text", "decided by")
    body = {"drafts": [draft.model_dump(mode="json", exclude={"agent_id"}) for draft in drafts]}
    return Output(body, lines or [NO_DRAFTS.get(state, f"no draft is {state}")], header, rows)


@drafts_app.command(ProposalDecision.SEND, epilog=examples("bot drafts send 3fa2b1c4d5e6"))
def send_draft(config: CharacterConfig, draft_id: DraftId, revision: Revision = None) -> Output:
    """Send a draft."""
    return _decide_draft(config, ProposalDecision.SEND, draft_id, revision)


@drafts_app.command(ProposalDecision.EDIT, epilog=examples('bot drafts edit 3fa2b1c4d5e6 "It is a fern."'))
def edit_draft(
    config: CharacterConfig,
    draft_id: DraftId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    revision: Revision = None,
) -> Output:
    """Change the text of a draft, which still waits."""
    return _decide_draft(config, ProposalDecision.EDIT, draft_id, revision, text)


@drafts_app.command(ProposalDecision.DROP, epilog=examples("bot drafts drop 3fa2b1c4d5e6"))
def drop_draft(config: CharacterConfig, draft_id: DraftId, revision: Revision = None) -> Output:
    """Drop a draft: it is never sent."""
    return _decide_draft(config, ProposalDecision.DROP, draft_id, revision)


def _decide_draft(
    config: CharacterConfig, decision: ProposalDecision, draft_id: str, revision: int | None, text: str | None = None
) -> Output:
    unknown = UsageError(f"there is no draft {draft_id!r}: `bot drafts list` shows those that wait")
    if not ID_PATTERN.fullmatch(draft_id):
        raise unknown
    result = run_connected(
        config,
        lambda operations: operations.decide_draft(draft_id, decision, actor=ACTOR, revision=revision, text=text),
    )
    if not result.is_done and result.note == NO_DRAFT:
        raise unknown
    if not result.is_done:
        raise UsageError(result.note)
    body = result.model_dump(mode="json", exclude={"draft": {"agent_id"}})
    return Output(body, result.note.splitlines(), ("draft", "result"), [(draft_id, result.note)])
