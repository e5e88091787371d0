"""HTTP handlers of receipts."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import AwareDatetime, Field

from adapters.web.auth import GRANT, Access
from adapters.web.incoming import is_own_room, name_room
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import operation
from adapters.web.outgoing import build_steps
from adapters.web.queries import AgentDirectory, load_message, load_replies, load_used_memories, parse_id
from adapters.web.schemas import AgentQuery, MessageBody, PageQuery, ResponseModel, StepBody, UsedMemoryBody
from bot import Entity, Outcome, Receipt, Room, system_clock
from bot.platform import (
    AgentHandle,
    DeliveryBody,
    ReceiptBody,
    ReplayBody,
    describe_receipt,
    list_checks,
    read_sections,
)
from bot.store import ListedReceipt, ReceiptCount, ReceiptQuery
from bot.text import shorten

Rules = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20, default_factory=list)]
Platforms = Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=20, default_factory=list)]
MAX_PREVIEW_LENGTH = 160
DEFAULT_COUNTED = timedelta(days=1)
CURSOR_SEPARATOR = "."


class ReceiptsQuery(PageQuery):
    """Selection of receipts; `outcome`, `rule` and `platform` may be repeated, `to` is exclusive.

    `after` is the id of a receipt: those of its agent that came in later follow, oldest first. `filtered` are those of
    which a filter stopped, replaced or held a text, `degraded` those that a step of DEGRADE shaped.
    """

    before: Annotated[str, Field(max_length=4000)] | None = None
    after: UUID | None = None
    room: UUID | None = None
    author: UUID | None = None
    outcome: Annotated[list[Outcome], Field(max_length=20, default_factory=list)]
    rule: Rules
    platform: Platforms
    since: Annotated[AwareDatetime | None, Field(alias="from")] = None
    until: Annotated[AwareDatetime | None, Field(alias="to")] = None
    is_filtered: Annotated[bool, Field(alias="filtered")] = False
    is_degraded: Annotated[bool, Field(alias="degraded")] = False


class CountsQuery(AgentQuery):
    """Selection of what is counted: by default the last day; `to` is exclusive."""

    by: Literal["rule"] = "rule"
    room: UUID | None = None
    since: Annotated[AwareDatetime | None, Field(alias="from")] = None
    until: Annotated[AwareDatetime | None, Field(alias="to")] = None


class ListedReceiptBody(ReceiptBody):
    """A receipt with the names that belong to it, and the beginning of its message; null where it was deleted."""

    text: str | None
    author: str | None
    room: str | None
    world: str | None


class ReceiptsResponse(ResponseModel):
    """Receipts, newest first; `next` is the `before` of the older ones, null where there are none."""

    receipts: list[ListedReceiptBody]
    next: str | None


class CountBody(ResponseModel):
    """How many messages ended with an outcome by a rule, and the receipt of the latest of them."""

    outcome: Outcome
    rule: str
    count: int
    agent_id: UUID
    example_id: UUID
    headline: str


class CountsResponse(ResponseModel):
    """Counts of outcomes and rules, the most frequent first."""

    counts: list[CountBody]


class CheckBody(ResponseModel):
    """One check of whether to answer: what it looked at and found, and whether it decided."""

    check: str
    result: str
    decided: bool


class SectionBody(ResponseModel):
    """A part of a prompt: the system prompt, the text of a provider, or the instructions between."""

    name: str
    bytes: int
    text: str


class PromptBody(ResponseModel):
    """A prompt as it was sent; `call` is the index of the model call."""

    call: int
    purpose: str
    bytes: int
    sections: list[SectionBody]


class PromptsResponse(ResponseModel):
    """The prompts of a turn, as long as its journal is stored."""

    prompts: list[PromptBody]


class VotesBody(ResponseModel):
    """How many people liked the replies by a reaction, and how many did not."""

    liked: int
    disliked: int


class ReceiptResponse(ReceiptBody):
    """A receipt with its message, replies and deliveries, and how it was decided; `votes` is null where there are none.

    `gate` are the checks of whether to answer, in order, up to the one that decided. `steps` and `memory` are what the
    turn noted; they are empty where no model was asked, and once the journal of the turn is deleted.
    """

    steps: list[StepBody]
    memory: list[UsedMemoryBody]
    has_prompts: bool

    author: str | None
    room: str | None
    world: str | None
    gate: list[CheckBody]
    votes: VotesBody | None

    message: MessageBody | None
    replies: list[MessageBody]
    deliveries: list[DeliveryBody]


@dataclass(frozen=True, slots=True)
class ReceiptsApi:
    """Handlers for the receipts of messages."""

    _directory: AgentDirectory
    _replays: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))  # each starts an agent

    @operation("GET", "/api/receipts", "receipts", Access.READ)
    async def list_receipts(self, request: web.Request, query: ReceiptsQuery) -> ReceiptsResponse:
        """List the receipts of the latest messages, or of those that the filters select."""
        if query.room is not None:
            await self._directory.find_room(query.room)
        if query.after is not None:
            return await self._list_newer(query, query.after)
        handles = self._directory.select_agents(query.agent)
        cursors = _parse_cursors(query.before, len(handles))
        selection = _build_query(query)
        pages = [
            await handle.conversations.search_receipts(selection, before=cursor, limit=query.limit)
            for handle, cursor in zip(handles, cursors, strict=True)
        ]
        newest = [(item, number) for number, page in enumerate(pages) for item in page]
        newest.sort(key=lambda entry: entry[0].receipt.received_at, reverse=True)
        shown = newest[: query.limit]
        for item, number in shown:
            cursors[number] = item.receipt.id
        has_more = len(newest) > len(shown) or any(len(page) == query.limit for page in pages)
        return ReceiptsResponse(
            receipts=[_build_listed(item, handles[number]) for item, number in shown],
            next=CURSOR_SEPARATOR.join(cursor.hex if cursor else "" for cursor in cursors) if has_more else None,
        )

    async def _list_newer(self, query: ReceiptsQuery, after: UUID) -> ReceiptsResponse:
        if query.before is not None:
            raise HttpProblem(422, "invalid_request", "after: not together with `before`")
        handle, receipt = await self._directory.find_receipt(after)
        found = await handle.conversations.search_receipts(_build_query(query), after=receipt.id, limit=query.limit)
        return ReceiptsResponse(receipts=[_build_listed(item, handle) for item in found], next=None)

    @operation("GET", "/api/receipts/counts", "receipt-counts", Access.READ)
    async def count_receipts(self, request: web.Request, query: CountsQuery) -> CountsResponse:
        """Count the messages of a time by outcome and rule."""
        if query.room is not None:
            await self._directory.find_room(query.room)
        since = query.since or (query.until or system_clock()) - DEFAULT_COUNTED
        selection = ReceiptQuery(query.room, since=since, until=query.until)
        counts = [
            _build_count(handle, count)
            for handle in self._directory.select_agents(query.agent)
            for count in await handle.conversations.count_receipts(selection)
        ]
        return CountsResponse(counts=sorted(counts, key=lambda body: -body.count))

    @operation("GET", "/api/receipts/{id}", "receipt", Access.ANY, (404,))
    async def show_receipt(self, request: web.Request) -> ReceiptResponse:
        """Return the receipt of a message, by its id or its receipt's id."""
        receipt_id, grant = parse_id(request.match_info["id"]), GRANT.get()
        handle, receipt = await self._directory.find_receipt(receipt_id)
        room = await handle.conversations.room(receipt.room_id)
        if grant.owner and (room is None or not is_own_room(grant, room)):
            raise build_not_found("receipt", receipt_id)
        return await _load_receipt(handle, receipt, room, is_owner=bool(grant.owner))

    @operation("GET", "/api/receipts/{id}/prompts", "receipt-prompts", Access.CHANGE, (404,))
    async def show_prompts(self, request: web.Request) -> PromptsResponse:
        """Return the prompts of a message's turn, by sections; secrets are removed."""
        handle, receipt = await self._directory.find_receipt(parse_id(request.match_info["id"]))
        trace = await handle.conversations.trace(receipt.turn_id) if receipt.turn_id else None
        prompts = [_build_prompt(prompt, trace) for prompt in trace["prompts"]] if trace else []
        return PromptsResponse(prompts=prompts)

    @operation("GET", "/api/receipts/{id}/replay", "receipt-replay", Access.CHANGE, (404,))
    async def replay_receipt(self, request: web.Request) -> ReplayBody:
        """Run a message's turn again, without models, and compare both; one at a time, secrets are removed."""
        handle, receipt = await self._directory.find_receipt(parse_id(request.match_info["id"]))
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", "this agent is run by a program that replays no turns")
        if receipt.turn_id is not None:
            await handle.conversations.trace(receipt.turn_id)  # stores what was noted last
        async with self._replays:
            return await handle.operator_tools.program.replay(receipt)


def _build_body(receipt: Receipt, handle: AgentHandle) -> ReceiptBody:
    return ReceiptBody.of(receipt, handle.agent_id, handle.character.name)


def _build_query(query: ReceiptsQuery) -> ReceiptQuery:
    return ReceiptQuery(
        query.room,
        query.author,
        query.outcome,
        query.rule,
        query.platform,
        query.since,
        query.until,
        query.is_filtered,
        query.is_degraded,
    )


def _parse_cursors(text: str | None, count: int) -> list[UUID | None]:
    """Return, for each agent, the receipt after which its list goes on; None from its beginning."""
    ids = ["" for _ in range(count)] if text is None else text.split(CURSOR_SEPARATOR)
    try:
        cursors = [UUID(item) if item else None for item in ids]
    except ValueError:
        cursors = []
    if len(cursors) != count:
        raise HttpProblem(422, "invalid_request", "before: use the `next` of the part before, with the same agent")
    return cursors


def _build_listed(item: ListedReceipt, handle: AgentHandle) -> ListedReceiptBody:
    text = shorten(item.message.content.text, MAX_PREVIEW_LENGTH) if item.message else None
    return ListedReceiptBody(**dict(_build_body(item.receipt, handle)), text=text, **_names(item))


def _names(item: ListedReceipt) -> dict[str, str | None]:
    return {
        "author": _name_of(item.author),
        "room": name_room(item.room) if item.room else None,
        "world": item.world.name if item.world else None,
    }


def _name_of(author: Entity | None) -> str | None:
    """Return a person's name; None for one who was forgotten, or is not known."""
    return author.name or None if author else None


def _build_count(handle: AgentHandle, count: ReceiptCount) -> CountBody:
    return CountBody(
        outcome=count.outcome,
        rule=count.rule,
        count=count.count,
        agent_id=handle.agent_id,
        example_id=count.example.id,
        headline=describe_receipt(count.example, handle.character.name),
    )


def _build_prompt(prompt: Mapping[str, Any], trace: Mapping[str, Any]) -> PromptBody:
    sections = [
        SectionBody(name=section.name, bytes=len(section.text.encode("utf-8", "replace")), text=section.text)
        for section in read_sections(prompt)
    ]
    call = int(prompt["call"]) + int(trace["earlier_calls"])
    return PromptBody(call=call, purpose=prompt["purpose"], bytes=prompt["bytes"], sections=sections)


async def _load_receipt(
    handle: AgentHandle, receipt: Receipt, room: Room | None, *, is_owner: bool = False
) -> ReceiptResponse:
    """Return a receipt with its message, replies and deliveries.

    With `is_owner`, of the memories only those of its world: documents and what others said belong to the operator.
    """
    replies = await load_replies(handle, receipt)
    conversations, turn_id = handle.conversations, receipt.turn_id
    is_answer = replies or receipt.outcome is Outcome.ANSWERED
    deliveries = await conversations.deliveries(turn_id) if turn_id and is_answer else []
    votes = await conversations.votes(turn_id) if turn_id and replies else None
    message = await load_message(handle, receipt.memory_id)
    world = await handle.conversations.world(room.world_id) if room else None
    trace = await handle.conversations.trace(receipt.turn_id) if receipt.turn_id else None
    own_world = room.world_id if room and is_owner else None
    checks = list_checks(receipt, handle.character.name, str(trace["gate"]) if trace else "")
    return ReceiptResponse(
        **dict(_build_body(receipt, handle)),
        author=_name_of(await handle.conversations.receipt_author(receipt)),
        room=name_room(room) if room else None,
        world=world.name if world else None,
        gate=[CheckBody(check=check.check, result=check.result, decided=check.is_deciding) for check in checks],
        steps=build_steps(receipt, trace, deliveries) if trace else [],
        memory=await load_used_memories(handle, trace["memories"], own_world) if trace else [],
        has_prompts=bool(trace and trace["prompts"]) and not is_owner,
        message=message,
        replies=replies,
        votes=VotesBody(liked=votes.liked, disliked=votes.disliked) if votes is not None else None,
        deliveries=[DeliveryBody.build(delivery, message_id=delivery.memory_id) for delivery in deliveries],
    )
