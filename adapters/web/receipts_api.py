"""HTTP handlers of receipts, of parts of replies that have not arrived, and of replies that wait for a person."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import AwareDatetime, Field

from adapters.web import queries, schemas
from adapters.web.auth import GRANT, Access
from adapters.web.incoming import is_own_room, name_room
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import ReadBody, operation
from adapters.web.outgoing import build_steps
from bot import Entity, Outcome, Receipt, Room, system_clock
from bot.platform import (
    DELIVERY_STATES,
    AgentHandle,
    DecisionResult,
    Delivery,
    DeliveryBody,
    DraftBody,
    PartCounts,
    PartDecision,
    PartState,
    ProposalDecision,
    ReceiptBody,
    ReplayBody,
    UndeliveredPartBody,
    describe_receipt,
    list_checks,
    read_sections,
)
from bot.store import ListedReceipt, Page, ProposalState, ReceiptCount, ReceiptQuery
from bot.text import shorten

Rules = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20, default_factory=list)]
Platforms = Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=20, default_factory=list)]
MAX_PREVIEW_LENGTH = 160
DEFAULT_COUNTED = timedelta(days=1)
CURSOR_SEPARATOR = "."


class ReceiptsQuery(schemas.PageQuery):
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


class CountsQuery(schemas.AgentQuery):
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


class ReceiptsResponse(schemas.ResponseModel):
    """Receipts, newest first; `next` is the `before` of the older ones, null where there are none."""

    receipts: list[ListedReceiptBody]
    next: str | None


class CountBody(schemas.ResponseModel):
    """How many messages ended with an outcome by a rule, and the receipt of the latest of them."""

    outcome: Outcome
    rule: str
    count: int
    agent_id: UUID
    example_id: UUID
    headline: str


class CountsResponse(schemas.ResponseModel):
    """Counts of outcomes and rules, the most frequent first."""

    counts: list[CountBody]


class CheckBody(schemas.ResponseModel):
    """One check of whether to answer: what it looked at and found, and whether it decided."""

    check: str
    result: str
    decided: bool


class SectionBody(schemas.ResponseModel):
    """A part of a prompt: the system prompt, the text of a provider, or the instructions between."""

    name: str
    bytes: int
    text: str


class PromptBody(schemas.ResponseModel):
    """A prompt as it was sent; `call` is the index of the model call."""

    call: int
    purpose: str
    bytes: int
    sections: list[SectionBody]


class PromptsResponse(schemas.ResponseModel):
    """The prompts of a turn, as long as its journal is stored."""

    prompts: list[PromptBody]


class VotesBody(schemas.ResponseModel):
    """How many people liked the replies by a reaction, and how many did not."""

    liked: int
    disliked: int


class ReceiptResponse(ReceiptBody):
    """A receipt with its message, replies and deliveries, and how it was decided; `votes` is null where there are none.

    `gate` are the checks of whether to answer, in order, up to the one that decided. `steps` and `memory` are what the
    turn noted; they are empty where no model was asked, and once the journal of the turn is deleted.
    """

    steps: list[schemas.StepBody]
    memory: list[schemas.UsedMemoryBody]
    has_prompts: bool

    author: str | None
    room: str | None
    world: str | None
    gate: list[CheckBody]
    votes: VotesBody | None

    message: schemas.MessageBody | None
    replies: list[schemas.MessageBody]
    deliveries: list[DeliveryBody]


@dataclass(frozen=True, slots=True)
class ReceiptsApi:
    """Handlers for the receipts of messages."""

    _directory: queries.AgentDirectory
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
        receipt_id, grant = queries.parse_id(request.match_info["id"]), GRANT.get()
        handle, receipt = await self._directory.find_receipt(receipt_id)
        room = await handle.conversations.room(receipt.room_id)
        if grant.owner and (room is None or not is_own_room(grant, room)):
            raise build_not_found("receipt", receipt_id)
        return await _load_receipt(handle, receipt, room, is_owner=bool(grant.owner))

    @operation("GET", "/api/receipts/{id}/prompts", "receipt-prompts", Access.CHANGE, (404,))
    async def show_prompts(self, request: web.Request) -> PromptsResponse:
        """Return the prompts of a message's turn, by sections; secrets are removed."""
        handle, receipt = await self._directory.find_receipt(queries.parse_id(request.match_info["id"]))
        trace = await handle.conversations.trace(receipt.turn_id) if receipt.turn_id else None
        prompts = [_build_prompt(prompt, trace) for prompt in trace["prompts"]] if trace else []
        return PromptsResponse(prompts=prompts)

    @operation("GET", "/api/receipts/{id}/replay", "receipt-replay", Access.CHANGE, (404,))
    async def replay_receipt(self, request: web.Request) -> ReplayBody:
        """Run a message's turn again, without models, and compare both; one at a time, secrets are removed."""
        handle, receipt = await self._directory.find_receipt(queries.parse_id(request.match_info["id"]))
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", "this agent is run by a program that replays no turns")
        if receipt.turn_id is not None:
            await handle.conversations.trace(receipt.turn_id)  # stores what was noted last
        async with self._replays:
            return await handle.operator_tools.program.replay(receipt)


def _build_body(receipt: Receipt, handle: AgentHandle) -> ReceiptBody:
    return ReceiptBody.of(receipt, handle.agent_id, handle.character.name)


def _build_query(query: ReceiptsQuery) -> ReceiptQuery:
    places = (query.room, query.author, query.outcome, query.rule, query.platform)
    return ReceiptQuery(*places, query.since, query.until, query.is_filtered, query.is_degraded)


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
    headline = describe_receipt(count.example, handle.character.name)
    return CountBody.build(count, agent_id=handle.agent_id, example_id=count.example.id, headline=headline)


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
    replies = await queries.load_replies(handle, receipt)
    conversations, turn_id = handle.conversations, receipt.turn_id
    is_answer = replies or receipt.outcome is Outcome.ANSWERED
    deliveries = await conversations.deliveries(turn_id) if turn_id and is_answer else []
    votes = await conversations.votes(turn_id) if turn_id and replies else None
    message = await queries.load_message(handle, receipt.memory_id)
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
        memory=await queries.load_used_memories(handle, trace["memories"], own_world) if trace else [],
        has_prompts=bool(trace and trace["prompts"]) and not is_owner,
        message=message,
        replies=replies,
        votes=VotesBody.build(votes) if votes is not None else None,
        deliveries=[DeliveryBody.build(delivery, message_id=delivery.memory_id) for delivery in deliveries],
    )


class OutboxQuery(schemas.AgentQuery):
    """Selection of undelivered parts; `state` may be repeated, without one parts in any state are listed."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    before: Annotated[str, Field(max_length=4000)] | None = None
    state: Annotated[list[PartState], Field(max_length=4, default_factory=list)]
    platform: Annotated[str, Field(max_length=100)] = ""
    room: UUID | None = None


class DecisionsRequest(schemas.RequestModel):
    """One decision about several parts."""

    ids: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=200)]
    decision: Literal["send", "drop"]


class OutboxResponse(schemas.ResponseModel):
    """Undelivered parts, the latest ones, in the order of sending; `next` is the `before` of the earlier ones.

    With filters a part of the list may be short, even empty, and have a `next`.
    """

    parts: list[UndeliveredPartBody]
    next: str | None
    counts: PartCounts


class DecisionResponse(UndeliveredPartBody):
    """A part after a decision about it, with a note."""

    note: str


class DecisionsResponse(schemas.ResponseModel):
    """What came of each decision, in the order of the ids."""

    results: list[DecisionResult]


@dataclass(frozen=True, slots=True)
class DeliveriesApi:
    """Handlers for undelivered parts."""

    _directory: queries.AgentDirectory

    @operation("GET", "/api/outbox", "outbox", Access.READ)
    async def list_parts(self, request: web.Request, query: OutboxQuery) -> OutboxResponse:
        """List the parts that wait, are held or have failed."""
        if query.room is not None:
            await self._directory.find_room(query.room)
        handles = self._directory.select_agents(query.agent)
        keys = queries.parse_page_keys(query.before, len(handles))
        states = frozenset(state for name in query.state or PartState for state in DELIVERY_STATES[name])

        def is_wanted(part: Delivery) -> bool:
            return (
                (not query.state or PartState.of(part) in query.state)
                and query.platform in ("", part.platform)
                and query.room in (None, part.room_id)
            )

        pages = []
        for handle, key in zip(handles, keys, strict=True):
            page = await handle.lists.deliveries(states, before=key, limit=query.limit)
            pages.append(Page(tuple(item for item in page.items if is_wanted(item[1])), page.next))
        parts, following = queries.merge_pages(pages, keys, lambda part: part.created_at, query.limit)
        bodies: dict[str, UndeliveredPartBody] = {}
        for number, handle in enumerate(handles):
            own = [part for of_agent, part in parts if of_agent == number]
            bodies |= {body.id: body for body in await handle.operations.describe_parts(own, name_room)}
        counts = Counter[str]()
        for handle in handles:
            counts.update((await handle.operations.count_parts()).model_dump())
        return OutboxResponse(
            parts=[bodies[part.id] for _, part in reversed(parts)],
            next=following,
            counts=PartCounts.model_validate(counts),
        )

    @operation("POST", "/api/outbox/decisions", "decisions", Access.CHANGE, (503,))
    async def decide_parts(self, request: web.Request, read_body: ReadBody[DecisionsRequest]) -> DecisionsResponse:
        """Send several held or failed parts again, or drop them."""
        body = await read_body()
        results = [await self._decide(part_id, PartDecision(body.decision)) for part_id in dict.fromkeys(body.ids)]
        return DecisionsResponse(results=results)

    async def _decide(self, part_id: str, decision: PartDecision) -> DecisionResult:
        for handle in self._directory:
            result = await handle.operations.decide(part_id, decision, name_room)
            if result.part is not None:
                break
        return result

    @operation("POST", "/api/outbox/{id}/send", "send", Access.CHANGE, (404, 409))
    async def send_part(self, request: web.Request) -> DecisionResponse:
        """Send a held or failed part again."""
        return await self._decide_part(request, PartDecision.SEND)

    @operation("POST", "/api/outbox/{id}/drop", "drop", Access.CHANGE, (404, 409))
    async def drop_part(self, request: web.Request) -> DecisionResponse:
        """Drop a part."""
        return await self._decide_part(request, PartDecision.DROP)

    async def _decide_part(self, request: web.Request, decision: PartDecision) -> DecisionResponse:
        result = await self._decide(request.match_info["id"], decision)
        if result.part is None:
            raise build_not_found("part", result.id)
        if not result.is_done:
            raise HttpProblem(409, "conflict", result.note)
        return DecisionResponse(**dict(result.part), note=result.note)


ACTOR = "an operator"
MAX_TEXT_LENGTH = 20_000


class DraftsQuery(schemas.AgentQuery):
    """Selection of drafts: those that wait, those in another state, or all."""

    state: ProposalState | Literal["all"] = ProposalState.WAITING
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class DraftsResponse(schemas.ResponseModel):
    """The latest drafts, oldest first; `waiting` is how many wait in all."""

    drafts: list[DraftBody]
    waiting: int


class DraftRequest(schemas.RequestModel):
    """A decision about a draft, as it was shown in a revision; without one, as it is now."""

    revision: Annotated[int, Field(ge=1)] | None = None


class DraftEditRequest(DraftRequest):
    """Another text for a draft; null says that a person is writing one, so that nothing replaces it meanwhile."""

    text: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = None


class DraftResponse(DraftBody):
    """A draft after a decision about it, with a note."""

    note: str


@dataclass(frozen=True, slots=True)
class DraftsApi:
    """Handlers for drafts; a decision that cannot be carried out is a conflict, whose message says why."""

    _directory: queries.AgentDirectory

    @operation("GET", "/api/drafts", "drafts", Access.READ)
    async def list_drafts(self, request: web.Request, query: DraftsQuery) -> DraftsResponse:
        """List the replies and posts that wait for a person."""
        state = None if query.state == "all" else query.state
        handles = self._directory.select_agents(query.agent)
        drafts = [
            draft
            for handle in handles
            for draft in await handle.operations.drafts(state=state, limit=query.limit, name_room=name_room)
        ]
        waiting = sum([len(await handle.operations.proposals.waiting()) for handle in handles])
        newest = sorted(drafts, key=lambda draft: draft.created_at)[-query.limit :]
        return DraftsResponse(drafts=newest, waiting=waiting)

    @operation("POST", "/api/drafts/{id}/send", "send-draft", Access.CHANGE, (404, 409))
    async def send_draft(self, request: web.Request, read_body: ReadBody[DraftRequest]) -> DraftResponse:
        """Send a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.SEND, body)

    @operation("POST", "/api/drafts/{id}/edit", "edit-draft", Access.CHANGE, (404, 409))
    async def edit_draft(self, request: web.Request, read_body: ReadBody[DraftEditRequest]) -> DraftResponse:
        """Change the text of a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.EDIT, body, body.text)

    @operation("POST", "/api/drafts/{id}/drop", "drop-draft", Access.CHANGE, (404, 409))
    async def drop_draft(self, request: web.Request, read_body: ReadBody[DraftRequest]) -> DraftResponse:
        """Drop a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.DROP, body)

    async def _find(self, request: web.Request) -> AgentHandle:
        """Return the agent that has a draft, before the body is read."""
        draft_id = request.match_info["id"]
        for handle in self._directory:
            if await handle.operations.has_draft(draft_id):
                return handle
        raise build_not_found("draft", draft_id)

    async def _decide(
        self,
        handle: AgentHandle,
        request: web.Request,
        decision: ProposalDecision,
        body: DraftRequest,
        text: str | None = None,
    ) -> DraftResponse:
        draft_id = request.match_info["id"]
        actor = GRANT.get().name or ACTOR
        result = await handle.operations.decide_draft(
            draft_id, decision, actor=actor, revision=body.revision, text=text, name_room=name_room
        )
        if result.draft is None:
            raise build_not_found("draft", draft_id)
        if not result.is_done:
            raise HttpProblem(409, "conflict", result.note)
        return DraftResponse(**dict(result.draft), note=result.note)
