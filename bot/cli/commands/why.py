"""`bot why`, `bot replay`: why messages were answered or not, what the models have cost, and a turn run again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from bot.cli import options
from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.process.shutdown import UsageError
from bot.cli.running_bot import find_rooms, find_running_bot, read_store
from bot.domain.environment import Entity, Room
from bot.domain.ledger import (
    CostDimension,
    CostEntry,
    Delivery,
    DeliveryState,
    EventOrigin,
    ModelCall,
    Outcome,
    Receipt,
    Rule,
    sort_sums,
)
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.errors import ConfigError, TemporaryError
from bot.operate.conversations import ConversationReader
from bot.operate.operations import DeliveryBody
from bot.operate.results import ReceiptBody, ReplayBody, ReplayState
from bot.outbound.outbox import describe_cause, list_behind
from bot.store.activity import VoteSum
from bot.store.ledger import ReceiptQuery
from bot.store.protocols import Store
from bot.text import redact, shorten

MAX_TEXT_LENGTH = 120
MIN_AMOUNT = 0.000001


@dataclass(frozen=True, slots=True)
class MessageReport:
    """A message with its receipt, replies and deliveries; those in `behind` wait for an earlier one of the room."""

    receipt: Receipt
    body: ReceiptBody
    room: str
    author: str
    message: Memory | None
    replies: tuple[Memory, ...]
    deliveries: tuple[Delivery, ...]
    run: Mapping[str, Any] | None
    draft: Proposal | None = None
    votes: VoteSum | None = None
    behind: frozenset[str] = frozenset()

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        receipt = self.receipt
        is_command = receipt.origin is EventOrigin.COMMAND
        text = repr(shorten(self.message.content.text, MAX_TEXT_LENGTH)) if self.message else "(removed)"
        if is_command:
            text = receipt.reason
        yield f"{receipt.received_at.astimezone():%Y-%m-%d %H:%M:%S}  {self.author} in {self.room}: {text}"
        yield f"  {self.body.headline}"
        for line in explain_receipt(receipt):
            yield f"  {line}"
        if receipt.attempts > 1:
            yield f"  attempts: {receipt.attempts}"
        if self.run is not None:
            yield from (f"  {line}" for line in format_run(self.run))
        if self.draft is not None:
            decided = f" by {self.draft.decided_by}" if self.draft.decided_by else ""
            yield f"  draft {self.draft.id}: {self.draft.state}{decided}"
            texts = [self.draft.proposed.text, *([self.draft.content.text] if self.draft.is_edited else [])]
            yield from (f"    {shorten(text, MAX_TEXT_LENGTH)!r}" for text in texts)
        for reply in self.replies:
            yield f"  reply: {shorten(reply.content.text, MAX_TEXT_LENGTH)!r}"
        if self.votes is not None:
            yield f"  reactions to it: {self.votes.liked} like it, {self.votes.disliked} do not"
        for part in self.deliveries:
            tries = f", {part.attempts} attempts" if part.attempts > 1 else ""
            held = ", held" if part.state is DeliveryState.UNKNOWN else ""
            cause = describe_cause(part, self.behind)
            yield f"  part {part.id}: {part.state}{held}{tries}{f': {cause}' if cause else ''}"
        yield f"  receipt {receipt.id}" if is_command else f"  message {receipt.memory_id}, receipt {receipt.id}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, with the names of the HTTP API."""
        receipt = self.receipt
        return (
            self.body.model_dump(exclude={"agent_id", "seconds", "tokens_in", "tokens_out", "cost"})
            | {
                "platform_message_id": receipt.key.message_id,
                "room": self.room,
                "author": self.author,
                "text": self.message.content.text if self.message else None,
                "model_calls": [asdict(call) for call in receipt.model_calls],
                "replies": [{"id": reply.id, "text": reply.content.text} for reply in self.replies],
                "deliveries": [
                    DeliveryBody.build(part, message_id=part.memory_id).model_dump() | {"external_id": part.external_id}
                    for part in self.deliveries
                ],
                "votes": {"liked": self.votes.liked, "disliked": self.votes.disliked} if self.votes else None,
                "run": self.run,
            }
            | ({} if self.draft is None else {"draft": _draft_to_json(self.draft)})
        )


def _draft_to_json(draft: Proposal) -> dict[str, Any]:
    fields = ("id", "state", "revision", "reason", "decided_by", "decided_at")
    return {name: getattr(draft, name) for name in fields} | {
        "text": draft.content.text,
        "proposed": draft.proposed.text,
    }


async def build_report(
    conversations: ConversationReader, receipt: Receipt, agent_id: UUID, agent_name: str
) -> MessageReport:
    """Return the report of a message, read from the store."""
    replies, parts, draft = [], [], None
    if receipt.turn_id is not None and receipt.rule in (Rule.DRAFT, Rule.APPROVAL_TIMEOUT, Rule.LATEST_RESPONSE):
        draft = await conversations.proposal(receipt.turn_id)
    if receipt.turn_id is not None and receipt.superseded_by is None:
        replies = await conversations.replies(receipt.turn_id)
        parts = await conversations.deliveries(receipt.turn_id)
    open_parts: Sequence[Delivery] = ()
    if any(part.state is DeliveryState.PENDING for part in parts):
        open_parts = await conversations.room_deliveries(receipt.room_id, is_open=True)
    return MessageReport(
        receipt=receipt,
        body=ReceiptBody.of(receipt, agent_id, agent_name),
        room=room_label(await conversations.room(receipt.room_id), receipt.room_id),
        author=author_label(await conversations.receipt_author(receipt)),
        message=await conversations.message(receipt.memory_id),
        replies=tuple(reply for reply in replies if reply.kind is MemoryKind.MESSAGE and reply.entity_id == agent_id),
        deliveries=tuple(parts),
        run=await conversations.run_log(receipt),
        draft=draft,
        votes=await conversations.votes(receipt.turn_id) if receipt.turn_id is not None and replies else None,
        behind=list_behind(open_parts),
    )


def author_label(author: Entity | None) -> str:
    """Return the name of a message's author, or why there is none."""
    if author is None:
        return "an unknown person"
    is_forgotten = not author.external_id  # see `anonymize_entity`
    return author.name or ("a person who was forgotten" if is_forgotten else "a person without a name")


def room_label(room: Room | None, room_id: UUID) -> str:
    """Return the room's name, or the platform's id of it, with the platform."""
    if room is None:
        return str(room_id)
    return f"{room.name or room.external_id} ({room.platform})"


def format_run(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each action and each evaluator of a run."""
    for kind in ("action", "evaluator"):
        for component in run.get(f"{kind}s", ()):
            yield f"{kind} {component['name']}: {component['error'] or 'done'}"


def explain_receipt(receipt: Receipt) -> Iterator[str]:
    """Yield a receipt as lines: outcome, reason, rule, model calls with costs, duration."""
    yield f"{receipt.outcome}: {receipt.reason}" if receipt.reason else str(receipt.outcome)
    if receipt.rule:
        yield f"decided by: {receipt.rule}"
    if receipt.superseded_by is not None:
        yield f"superseded by: message {receipt.superseded_by}"
    if not receipt.model_calls:
        yield "no model was called"
    for call in receipt.model_calls:
        yield _format_call(call)
    if len(receipt.model_calls) > 1:
        costs = [call.cost for call in receipt.model_calls if call.is_counted]
        unpriced = f", and what {count} of them cost" if (count := costs.count(None)) else ""
        yield f"total: {format_dollars(sum(cost for cost in costs if cost is not None))}{unpriced}"
    if receipt.seconds is not None:
        yield f"took {receipt.seconds * 1000:.0f} ms"
    yield from receipt.notes


def _format_call(call: ModelCall) -> str:
    estimate_prefix = "about " if call.is_estimate else ""
    cached = f" ({call.tokens_cached} of them cached)" if call.tokens_cached else ""
    price = format_price(call.cost) if call.is_counted else "not counted"
    error = (f", failed: {call.error}" if call.has_failed else ", cancelled") if call.error else ""
    return (
        f"called {call.model} for {call.purpose}: {estimate_prefix}{call.tokens_in} tokens in{cached}, "
        f"{call.tokens_out} out, {price}, {call.seconds * 1000:.0f} ms{error}"
    )


def format_price(cost: float | None) -> str:
    """Return an amount in dollars, or "price unknown" for None."""
    return "price unknown" if cost is None else format_dollars(cost)


def format_dollars(amount: float) -> str:
    """Return an amount in dollars: with cents from $10 on, else with up to six decimals."""
    if amount >= 10:
        return f"${amount:,.2f}"
    if 0 < amount < MIN_AMOUNT:
        return "under $0.000001"
    return "$" + (f"{amount:.6f}".rstrip("0").rstrip("."))


NAME_WIDTH = 40
COST_COLUMNS = ("cost", "calls", "failed", "without a price", "tokens in", "of them cached", "tokens out")
NO_PERSON = "(no person: tasks, posts)"
DEFAULT_LAST = 5
DEFAULT_DAYS = 7
MAX_DAYS = 3660  # ten years; sums are stored for less


class GroupBy(StrEnum):
    """What costs are grouped by."""

    DAY = "day"
    ROOM = "room"
    PERSON = "person"
    MODEL = "model"
    PURPOSE = "purpose"


async def load_costs(store: Store, now: datetime, *, days: int, by: GroupBy) -> options.Output:
    """Return the costs of the last `days` days, today included; the highest first, days in order."""
    today, dimension = now.date(), CostDimension[by.name]
    entries = await ConversationReader(store).costs(today - timedelta(days=days - 1), today, [dimension])
    total = next(iter(sort_sums(entries, ())), CostEntry(today, ""))
    sums = sort_sums(entries, [dimension])
    named = list(zip(await _names(store, sums, by), sums, strict=True))
    documents = [{"name": name, **entry.to_json()} for name, entry in named]
    if by in (GroupBy.ROOM, GroupBy.PERSON):
        documents = [{**item, "id": getattr(entry, dimension)} for item, entry in zip(documents, sums, strict=True)]
    period = "today (UTC)" if days == 1 else f"the last {days} days (UTC)"
    notes = []
    if total.unpriced_calls:
        notes.append("calls without a price are not in the dollars: set one with MODEL_PRICES, `name=in/out`")
    if total.estimated_calls:
        notes.append(f"the tokens of {total.estimated_calls} calls are estimated: their provider did not count")
    return options.Output(
        {"days": days, "by": by.value, "total": total.to_json(), "sums": documents},
        [f"  {shorten(name, NAME_WIDTH):<{NAME_WIDTH}}  {format_costs(entry)}" for name, entry in named],
        (by.value, *COST_COLUMNS),
        starmap(_cost_row, named),
        before=[f"{period}: {format_costs(total)}"],
        after=notes,
    )


async def _names(store: Store, sums: Sequence[CostEntry], by: GroupBy) -> list[str]:
    if by is GroupBy.ROOM:
        rooms = {room.id: room for room in await store.worlds.rooms()}
        return [room_label(rooms.get(entry.room_id), entry.room_id) if entry.room_id else NO_PERSON for entry in sums]
    if by is GroupBy.PERSON:
        ids = {entry.person_id for entry in sums if entry.person_id}
        people = await store.entities.entities(ids)
        names = {key: f"{author_label(person)} ({person.platform})" for key, person in people.items()}
        return [names.get(entry.person_id, author_label(None)) if entry.person_id else NO_PERSON for entry in sums]
    return [str(getattr(entry, by.value)) for entry in sums]


def format_costs(entry: CostEntry) -> str:
    """Return a sum as text."""
    is_unknown = _is_unpriced(entry)
    parts = [format_price(None if is_unknown else entry.cost)]
    parts.append("1 call" if entry.calls == 1 else f"{entry.calls:,} calls")
    if entry.failed_calls:
        parts.append(f"{entry.failed_calls:,} failed")
    if entry.unpriced_calls and not is_unknown:
        parts.append(f"{entry.unpriced_calls:,} without a price")
    cached = f" ({entry.tokens_cached:,} cached)" if entry.tokens_cached else ""
    return ", ".join([*parts, f"{entry.tokens_in:,} tokens in{cached}", f"{entry.tokens_out:,} out"])


def _cost_row(name: str, entry: CostEntry) -> tuple[str, ...]:
    numbers = (
        entry.calls,
        entry.failed_calls,
        entry.unpriced_calls,
        entry.tokens_in,
        entry.tokens_cached,
        entry.tokens_out,
    )
    price = None if _is_unpriced(entry) else entry.cost
    return (name, format_price(price), *(f"{number:,}" for number in numbers))


def _is_unpriced(entry: CostEntry) -> bool:
    return not entry.cost and 0 < entry.unpriced_calls >= entry.calls - entry.failed_calls


why_app = options.new_command()


@why_app.command(
    epilog=options.examples(
        "bot why", "bot why --room general --outcome ignored --last 20", "bot why --costs --by room --days 30"
    )
)
def why(
    config: CharacterConfig,
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="MESSAGE_ID",
            help="The id of a message or of its receipt, or the platform's id.",
            show_default=False,
        ),
    ] = None,
    room: Annotated[str | None, typer.Option(metavar="R", help="Only this room, by id or name.")] = None,
    last: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=options.MAX_COUNT, help=f"The last N messages (default: {DEFAULT_LAST})."),
    ] = None,
    outcome: Annotated[
        list[Outcome] | None,
        typer.Option(metavar="OUTCOME", help=f"Only with this outcome ({', '.join(Outcome)}); may be repeated."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Only those that this rule decided, as --json names it; may be repeated."),
    ] = None,
    costs: Annotated[bool, typer.Option("--costs", help="Show what the models have cost instead.")] = False,
    by: Annotated[GroupBy | None, typer.Option(help="Group the costs by this (default: day).")] = None,
    days: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_DAYS, help=f"The last N days, today included (default: {DEFAULT_DAYS})."
        ),
    ] = None,
) -> options.Output:
    """Show why messages were answered or not, or what the models have cost."""
    if message and (room or last or outcome or rule):
        raise UsageError("a message's id excludes --room, --last, --outcome and --rule")
    if costs and (message or room or last or outcome or rule):
        raise UsageError(
            "--costs excludes a message's id, --room, --last, --outcome and --rule; use `--costs --by room`"
        )
    if not costs and (by or days):
        raise UsageError("--by and --days need --costs")
    if costs:
        return _show_costs(config, days or DEFAULT_DAYS, by or GroupBy.DAY)
    query = ReceiptQuery(outcomes=outcome or (), rules=rule or ())
    reports = read_store(config, lambda store: _load_reports(config, store, message, room, query, last or DEFAULT_LAST))
    lines = list(options.join_blocks(report.lines() for report in reports))
    none = "there is no such message" if outcome or rule else "there has been no message yet"
    return options.Output({"messages": [report.to_json() for report in reports]}, lines or [none])


def _show_costs(config: CharacterConfig, days: int, by: GroupBy) -> options.Output:
    with suppress(ConfigError, TemporaryError):  # no bot is running: all costs are stored
        find_running_bot(config).send("GET", "/api/costs?days=1")  # it stores the latest first
    now = config.agent_config.clock()
    return read_store(config, lambda store: load_costs(store, now, days=days, by=by))


async def _load_reports(
    config: CharacterConfig, store: Store, message: str | None, room: str | None, query: ReceiptQuery, last: int
) -> list[MessageReport]:
    """Return the requested reports, oldest first."""
    agent_id, name = config.agent_id, config.agent_config.character.name
    conversations = ConversationReader(store)
    if message:
        receipts: Sequence[Receipt] = await find_receipts(store, message)
    else:
        rooms = [None] if room is None else [item.id for item in await find_rooms(store, room)]
        queries = [replace(query, room_id=room_id) for room_id in rooms]
        listed = [item for wanted in queries for item in await conversations.search_receipts(wanted, limit=last)]
        matches = [item.receipt for item in listed]
        receipts = sorted(matches, key=lambda item: item.received_at, reverse=True)[:last]
    return [await build_report(conversations, receipt, agent_id, name) for receipt in reversed(receipts)]


async def find_receipts(store: Store, name: str) -> Sequence[Receipt]:
    """Return receipts by any id of their message, or by a reply's id. Raises UsageError if none match."""
    try:
        message_id = UUID(name)
    except ValueError:
        message_id = None
    if message_id is not None:
        reply = (await store.memories.memories([message_id])).get(message_id)
        for candidate_id in (message_id, reply.content.in_reply_to if reply else None):
            if candidate_id is not None and (receipt := await store.ledger.receipt(candidate_id)) is not None:
                return [receipt]
    receipts = await store.ledger.receipts_by_message_id(name)
    if not receipts:
        raise UsageError(f"no message {name!r} was found; `bot why --last 20` lists the latest")
    return receipts


# Of `bot replay`, beside those of every command.
EXIT_CODES = {ReplayState.EQUAL: 0, ReplayState.DIFFERENT: 1, ReplayState.NOT_REPLAYED: 3}

replay_app = options.new_command()


@replay_app.command(
    epilog=options.examples(
        "bot replay 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001", "bot replay 4711 --with new.json", "bot replay 4711 --json"
    )
)
def replay(
    config: CharacterConfig,
    message: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT",
            help="The id of the receipt or of its message, or the platform's id; `bot why` lists them.",
            show_default=False,
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Option("--with", metavar="NEW.json", help="Run it with this character instead, and show what changes."),
    ] = None,
) -> options.Output:
    """Run a turn again, byte for byte, from what was recorded of it; no model is called, nothing is sent or stored.

    The exit code is 0 if prompts, decisions, actions and replies are equal, 1 if something differs, and 3 if it cannot
    be replayed: its data were erased or have expired, or another version ran it.
    """
    from bot.runtime.replay import replay_turn  # here, because help needs no pipeline

    new_config = load_character_config(other) if other is not None else None

    async def run(store: Store) -> ReplayBody:
        *_, receipt = await find_receipts(store, message)
        other_agent = new_config.agent_config if new_config is not None else None
        return await replay_turn(store, receipt, config.agent_config, other_agent)

    body = ReplayBody.model_validate_json(redact(read_store(config, run).model_dump_json(), config.secrets))
    return options.Output(body, _describe(body, shows_all=other is not None), code=EXIT_CODES[body.state])


def _describe(body: ReplayBody, *, shows_all: bool) -> Iterator[str]:
    """Yield the result as lines: the first difference, or all of them with what changes in each."""
    if body.state is ReplayState.NOT_REPLAYED:
        yield f"it cannot be replayed: {body.reason}"
        return
    if not body.differences:
        yield f"equal: {', '.join(body.steps)}"
        return
    if not shows_all:
        first = body.differences[0]
        yield f"{first.step} differs in line {first.line}"
        yield f"  recorded: {first.recorded}"
        yield f"  replayed: {first.replayed}"
        yield f"{len(body.differences)} of {len(body.steps)} steps differ; --json shows all"
        return
    for difference in body.differences:
        yield f"{difference.step} changes:"
        yield from (f"  {line}" for line in difference.diff[2:])
    if first_prompt := next((item.step for item in body.differences if item.step.startswith("prompt")), ""):
        yield f"from {first_prompt} on, the recorded answers are to other prompts: a model may answer otherwise now"
