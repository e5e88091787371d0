"""Erasure of a person's data, in batches between which other work is done.

No index is maintained for it: tables are read in windows of some thousand rows of their key, up to the last row of
the moment at which it begins. Of what it finds each batch deletes some.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Delete, Table
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from bot.domain.content import Content, Quotation
from bot.domain.environment import ANYBODY
from bot.domain.inbound import (
    ERASURE_COMPONENT,
    DeletionResult,
    ErasedWords,
    ErasureResult,
    anonymize_entity,
    cancel_unsent,
    opt_out_component,
    redact_delivery,
    redact_receipt,
)
from bot.domain.ledger import DeliveryState, Rule
from bot.domain.memory import MemoryKind
from bot.domain.proposal import Proposal, ProposalState, card_turn_id
from bot.receipts import TRACE_KEY
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart, writes
from bot.store.sql.core.mapping import (
    LIMIT,
    NIL,
    Row,
    contains_text,
    count_changed,
    first_id,
    forward_mark,
    is_flag,
    matches,
    quotation_mark,
    rows_of,
    text_literal,
)
from bot.store.sql.core.schema import (
    activity,
    cache,
    components,
    deliveries,
    disclosures,
    logs,
    memories,
    participants,
    proposals,
    receipts,
    relationships,
    steps,
    take_overs,
    tasks,
    unreadable_events,
)
from bot.store.sql.stores import search
from bot.store.sql.stores.cache_logs_costs import DAYS_OF_PERSON, anonymize_costs, build_tombstones
from bot.store.sql.stores.ledger import (
    PROPOSAL,
    RECEIPT,
    SET_STATE,
    find_receipt,
    list_deliveries,
    list_unsent,
    save_deliveries,
    state_values,
    withdraw_proposals,
)
from bot.store.sql.stores.memories import FIND_MEMORIES, MEMORY, delete_with_derived, memory_columns
from bot.store.sql.stores.summaries import empty_summaries_of
from bot.store.sql.stores.worlds import ENTITY, UPSERT_ENTITY, erase_names, find_entities, save_component

T = TypeVar("T")
R = TypeVar("R")
ROWS_PER_WINDOW, ITEMS_PER_BATCH = 2_000, 50  # each takes some milliseconds
PAGES_PER_MERGE = 250  # of the index of terms: about 10 ms
MAX_TURN_AGE = timedelta(hours=1)  # a turn reads messages that came after it began
FINISHED_STATES = (DeliveryState.SENT, DeliveryState.CANCELLED, DeliveryState.FAILED)
FORGOTTEN = "it was forgotten"
OnCancelled = Callable[[DeletionResult], Awaitable[None]]


class Windows:
    """Windows of an agent's rows of one table, in the order of a key; the condition of a statement on one of them."""

    def __init__(self, key: Column[Any], lowest: Any) -> None:
        self._lowest = lowest
        of_agent = matches(key.table)
        self.condition = sa.and_(of_agent, key > sa.bindparam("after"), key <= sa.bindparam("last"))
        self._find_last = sa.select(key).where(of_agent).order_by(key.desc()).limit(1)
        self._find_end = sa.select(key).where(self.condition).order_by(key).limit(1).offset(LIMIT)

    def find_last(self, connection: Connection, agent: int) -> Any:
        """Return the last key; the lowest one if there is no row."""
        row = connection.execute(self._find_last, {"agent": agent}).first()
        return self._lowest if row is None else row[0]

    async def read(self, database: Access, agent: int, last: Any = None) -> AsyncIterator[dict[str, Any]]:
        """Yield `after` which key each window begins and its `last` one, up to `last` or the last key of now."""
        if last is None:
            last = await database.search(partial(self.find_last, agent=agent))
        after = self._lowest
        while after != last:
            values = {"agent": agent, "after": after, "last": last, "limit": ROWS_PER_WINDOW - 1}
            row = await database.search(partial(_first, self._find_end, values))
            end = last if row is None else row[0]
            yield {"after": after, "last": end}
            after = end


def _first(statement: Executable, values: dict[str, Any], connection: Connection) -> Row | None:
    return connection.execute(statement, values).first()


RECEIPT_WINDOWS, MEMORY_WINDOWS = Windows(receipts.c.position, 0), Windows(memories.c.position, 0)
STEP_WINDOWS, COMPONENT_WINDOWS = Windows(steps.c.turn_id, NIL), Windows(components.c.position, 0)
RELATIONSHIP_WINDOWS, TASK_WINDOWS = Windows(relationships.c.position, 0), Windows(tasks.c.position, 0)
PARTICIPANT_WINDOWS, LOG_WINDOWS = Windows(participants.c.room_id, NIL), Windows(logs.c.position, 0)
CACHE_WINDOWS, PROPOSAL_WINDOWS = Windows(cache.c.key, ""), Windows(proposals.c.position, 0)


def _delete_in(windows: Windows, table: Table, *conditions: ColumnElement[bool]) -> Delete:
    """Return a statement that deletes the rows of a window under conditions."""
    return sa.delete(table).where(windows.condition, *conditions)


def _names(*columns: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that one of these columns names the entity."""
    return sa.or_(*(column == sa.bindparam("entity") for column in columns))


def _is_any(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a column is one of the items, in a row of the agent."""
    return sa.and_(matches(column.table), column.in_(sa.bindparam("items")))


CLEAR_CONTENT = (
    sa.update(deliveries)
    .where(_is_any(deliveries.c.turn_id), deliveries.c.state.in_(list(map(text_literal, FINISHED_STATES))))
    .values(content=sa.bindparam("content"))
)
DELETE_STEPS = sa.delete(steps).where(_is_any(steps.c.turn_id))
DELETE_TRACES = sa.delete(steps).where(
    matches(steps),
    steps.c.turn_id >= sa.bindparam("first_turn"),
    steps.c.key == text_literal(TRACE_KEY),
    contains_text(steps.c.subject_ids, "mark"),
)
DELIVERED_OF_TURNS = sa.select(deliveries.c.room_id, deliveries.c.external_id).where(
    _is_any(deliveries.c.turn_id), deliveries.c.external_id != sa.literal_column("''")
)
MARKED_IN_ROOM = sa.select(memories.c.id, memories.c.content).where(
    matches(memories, "room_id", "kind"),
    memories.c.position >= sa.bindparam("first"),
    contains_text(memories.c.content, "mark"),
)
FIRST_POSITION = sa.select(sa.func.min(memories.c.position)).where(_is_any(memories.c.id))
SET_CONTENT = sa.update(memories).where(matches(memories, "id")).values(content=sa.bindparam("content"))
SET_REPLY = SET_CONTENT.values(metadata=sa.bindparam("metadata"), terms=sa.bindparam("terms"))
SET_PART = sa.update(deliveries).where(matches(deliveries, "id")).values(content=sa.bindparam("content"))
OPEN_RECEIPTS = sa.select(receipts.c.id).where(matches(receipts, "author_id"), is_flag(receipts.c.is_open))
AUTHORS_RECEIPTS = sa.select(receipts.c.id).where(
    RECEIPT_WINDOWS.condition, _names(receipts.c.author_id), receipts.c.rule != text_literal(Rule.ERASED)
)
OWN_MEMORIES = sa.select(memories.c.id, memories.c.content).where(
    MEMORY_WINDOWS.condition, sa.or_(_names(memories.c.entity_id), contains_text(memories.c.content, "forward"))
)
QUOTING_MEMORIES = sa.select(memories.c.id, memories.c.room_id, memories.c.content).where(
    MEMORY_WINDOWS.condition, contains_text(memories.c.content, "quotation")
)
OTHER_REPLIES = sa.select(*MEMORY).where(
    MEMORY_WINDOWS.condition, memories.c.turn_id.is_not(None), memories.c.entity_id != sa.bindparam("entity")
)
KINDS = sa.select(memories.c.id, memories.c.kind).where(_is_any(memories.c.id))
CONTENTS = sa.select(memories.c.id, memories.c.content).where(_is_any(memories.c.id))
MEMORIES_OF_TURNS = sa.select(memories.c.id, memories.c.kind, memories.c.entity_id).where(_is_any(memories.c.turn_id))
DELETE_READ_TRACES = _delete_in(
    STEP_WINDOWS,
    steps,
    steps.c.key == text_literal(TRACE_KEY),
    sa.or_(contains_text(steps.c.subject_ids, "mark"), contains_text(steps.c.subject_ids, "anybody")),
)
DELETE_TRACES_OF = _delete_in(
    STEP_WINDOWS, steps, steps.c.key == text_literal(TRACE_KEY), contains_text(steps.c.subject_ids, "mark")
)
DELETE_COMPONENTS = _delete_in(
    COMPONENT_WINDOWS,
    components,
    _names(components.c.entity_id, components.c.source_entity_id),
    components.c.type != text_literal(ERASURE_COMPONENT),
)
DELETE_RELATIONSHIPS = _delete_in(
    RELATIONSHIP_WINDOWS, relationships, _names(relationships.c.source_id, relationships.c.target_id)
)
DELETE_TASKS = _delete_in(TASK_WINDOWS, tasks, _names(tasks.c.entity_id))
ROOMS_OF_ENTITY = sa.select(participants.c.room_id).where(
    PARTICIPANT_WINDOWS.condition, _names(participants.c.entity_id)
)
DELETE_PARTICIPATION = sa.delete(participants).where(_is_any(participants.c.room_id), _names(participants.c.entity_id))
DELETE_ACTIVITY = sa.delete(activity).where(matches(activity), _names(activity.c.entity_id))
DELETE_DISCLOSURES = sa.delete(disclosures).where(matches(disclosures), _names(disclosures.c.entity_id))
# A take-over that holds goes on, without names and words.
TAKEN_OVER_OR_BY = (matches(take_overs), _names(take_overs.c.person_id, take_overs.c.by_id))
DELETE_TAKE_OVERS = sa.delete(take_overs).where(*TAKEN_OVER_OR_BY, take_overs.c.ended_at.is_not(None))
CLEAR_TAKE_OVERS = sa.update(take_overs).where(*TAKEN_OVER_OR_BY).values(name="", reason="")
DELETE_LOGS = _delete_in(LOG_WINDOWS, logs, _names(logs.c.entity_id))
PROPOSALS_OF_ENTITY = sa.select(proposals.c.position, proposals.c.turn_id, proposals.c.action).where(
    PROPOSAL_WINDOWS.condition,
    sa.or_(contains_text(proposals.c.subject_ids, "mark"), contains_text(proposals.c.author_ids, "mark")),
)
# What the person has decided about stays, without their name.
DECIDED_PROPOSALS = sa.select(*PROPOSAL).where(matches(proposals, "decided_by_id"))
CLEAR_DECIDED_BY = (
    sa.update(proposals)
    .where(matches(proposals, "decided_by_id"))
    .values(decided_by="", decided_by_id=None, editor="", edited_until=None)
)
DELETE_PROPOSALS = sa.delete(proposals).where(proposals.c.position.in_(sa.bindparam("items")))
DELETE_CACHED = _delete_in(CACHE_WINDOWS, cache, contains_text(cache.c.key, "mark"))
UNREADABLE_OF_PLATFORM = sa.select(unreadable_events.c.position, unreadable_events.c.raw).where(
    matches(unreadable_events, "platform")
)
DELETE_UNREADABLE = sa.delete(unreadable_events).where(unreadable_events.c.position.in_(sa.bindparam("items")))
EMPTY_LOG = (
    sa.update(logs)
    .where(logs.c.position == sa.bindparam("position_"))
    .values(body=sa.bindparam("body"), entity_id=None)
)


@dataclass(slots=True)
class _Counts:
    """How many memories were deleted: messages of the person, replies to them, and all with what was derived."""

    messages: int = 0
    replies: int = 0
    total: int = 0

    def add(self, other: "_Counts") -> None:
        self.messages += other.messages
        self.replies += other.replies
        self.total += other.total


class Erasure(SqlStorePart):
    """Deletes a person's data, the replies to them, and what was derived from either; used once."""

    def __init__(
        self,
        database: Access,
        agent_row: AgentRow,
        entity_id: UUID,
        now: datetime,
        on_cancelled: OnCancelled | None = None,
    ) -> None:
        super().__init__(database, agent_row)
        self._entity_id, self._now, self._on_cancelled = entity_id, now, on_cancelled
        self._words = ErasedWords()
        self._counts = _Counts()
        self._answers: defaultdict[UUID, set[str]] = defaultdict(set)  # ids on the platform by room

    async def run(self) -> ErasureResult:
        """Delete all of it; where it was interrupted, a repetition deletes the rest."""
        entity = self._entity_id
        opened, last_receipt, last_memory, withdrawn = await self._begin()
        cancelled = replace(await self._erase_receipts(opened), proposals=withdrawn)
        if self._on_cancelled is not None:
            await self._on_cancelled(cancelled)
        async for window in RECEIPT_WINDOWS.read(self._database, self._agent, last_receipt):
            rows = await self._search(AUTHORS_RECEIPTS, **window, entity=entity)
            await self._erase_receipts([row[0] for row in rows])
        async for window in MEMORY_WINDOWS.read(self._database, self._agent, last_memory):
            await self._erase_memories(window)
        async for window in PROPOSAL_WINDOWS.read(self._database, self._agent):
            rows = await self._search(PROPOSALS_OF_ENTITY, **window, mark=entity.hex)
            await _in_batches(self._delete_proposals, rows)
        await self._delete(STEP_WINDOWS, DELETE_READ_TRACES, mark=entity.hex, anybody=ANYBODY.hex)
        await self._database.write(lambda connection: empty_summaries_of(connection, self._agent, entity))
        component_count = await self._delete(COMPONENT_WINDOWS, DELETE_COMPONENTS, entity=entity)
        relationship_count = await self._delete(RELATIONSHIP_WINDOWS, DELETE_RELATIONSHIPS, entity=entity)
        task_count = await self._delete(TASK_WINDOWS, DELETE_TASKS, entity=entity)
        async for window in PARTICIPANT_WINDOWS.read(self._database, self._agent):
            rows = await self._search(ROOMS_OF_ENTITY, **window, entity=entity)
            await _in_batches(self._leave_rooms, [row[0] for row in rows])
        async for window in LOG_WINDOWS.read(self._database, self._agent):
            await self._delete_logs(window)
        await self._delete(CACHE_WINDOWS, DELETE_CACHED, mark=str(entity))
        days = [row[0] for row in await self._search(DAYS_OF_PERSON, person_id_=entity)]
        cost_count = sum([await self._anonymize_costs(day) for day in days])
        pages = -PAGES_PER_MERGE
        while await self._database.write(partial(search.merge_deleted_terms, pages=pages)):
            pages = PAGES_PER_MERGE
        await self._database.truncate_log()
        counts = self._counts
        return ErasureResult(
            counts.messages,
            counts.replies,
            counts.total - counts.messages - counts.replies,
            component_count,
            relationship_count,
            task_count,
            cancelled,
            cost_count,
        )

    @writes
    def _begin(self, connection: Connection) -> tuple[list[UUID], int, int, tuple[Proposal, ...]]:
        """Mark the person, and remove their names.

        Return their open receipts, the last receipt and memory, and the proposals that were withdrawn.
        """
        agent, entity_id = self._agent, self._entity_id
        if (entity := find_entities(connection, agent, [entity_id]).get(entity_id)) is not None:
            _delete_unreadable(connection, agent, entity.platform, entity.external_id)
            UPSERT_ENTITY.execute(connection, ENTITY.values(anonymize_entity(entity), agent))
        save_component(connection, agent, opt_out_component(entity_id, self._now))
        for statement in (DELETE_ACTIVITY, DELETE_DISCLOSURES, DELETE_TAKE_OVERS, CLEAR_TAKE_OVERS):
            connection.execute(statement, {"agent": agent, "entity": entity_id})
        self._clear_decisions(connection)
        opened_ids = list(connection.scalars(OPEN_RECEIPTS, {"agent": agent, "author_id_": entity_id}))
        withdrawn = withdraw_proposals(
            connection, agent, self._now, FORGOTTEN, lambda item: entity_id in item.subject_ids | item.author_ids
        )
        last_keys = (windows.find_last(connection, agent) for windows in (RECEIPT_WINDOWS, MEMORY_WINDOWS))
        return opened_ids, *last_keys, withdrawn

    def _clear_decisions(self, connection: Connection) -> None:
        """Remove the person's name from their decisions about proposals, and from the receipts and cards of these."""
        agent = self._agent
        decider = {"agent": agent, "decided_by_id_": self._entity_id}
        for proposal in PROPOSAL.read_all(connection.execute(DECIDED_PROPOSALS, decider)):
            receipt = None if proposal.receipt_id is None else find_receipt(connection, agent, proposal.receipt_id)
            if receipt is not None and proposal.decided_by:
                named = f"{proposal.decided_by} "
                reason, *notes = (text.replace(named, "a person ", 1) for text in (receipt.reason, *receipt.notes))
                connection.execute(SET_STATE, state_values(agent, replace(receipt, reason=reason, notes=tuple(notes))))
            if proposal.state is not ProposalState.WAITING:
                card = card_turn_id(proposal.turn_id, proposal.action)
                count_changed(connection, CLEAR_CONTENT, [card], agent=agent, content=Content())
        connection.execute(CLEAR_DECIDED_BY, decider)

    async def _delete(self, windows: Windows, statement: Executable, **values: Any) -> int:
        count = 0
        async for window in windows.read(self._database, self._agent):
            count += await self._database.write(partial(_run, statement, {"agent": self._agent, **window, **values}))
        return count

    async def _erase_receipts(self, ids: Sequence[UUID]) -> DeletionResult:
        results = await _in_batches(self._redact_receipts, ids)
        return DeletionResult(
            receipts=tuple(receipt for result in results for receipt in result.receipts),
            deliveries=tuple(delivery for result in results for delivery in result.deliveries),
        )

    async def _redact_receipts(self, ids: Sequence[UUID]) -> DeletionResult:
        cancelled, answers, counts = await self._redact_turns(ids)
        self._counts.add(counts)
        for room_id, external_id in answers:
            self._answers[room_id].add(external_id)
        return cancelled

    @writes
    def _redact_turns(
        self, connection: Connection, ids: Sequence[UUID]
    ) -> tuple[DeletionResult, Sequence[Row], _Counts]:
        """Redact receipts, and delete what their turns have made; return what was cancelled, and the answers' ids."""
        agent = self._agent
        found = list(RECEIPT.find_by_id(connection, agent, ids).values())
        turn_ids = {receipt.turn_id for receipt in found if receipt.turn_id is not None}
        of_turns = {row[0]: row for row in rows_of(connection, MEMORIES_OF_TURNS, turn_ids, agent=agent)}
        messages = [author for _, kind, author in of_turns.values() if kind == MemoryKind.MESSAGE]
        own_count = messages.count(self._entity_id)
        answers = rows_of(connection, DELIVERED_OF_TURNS, turn_ids, agent=agent)
        unsent = (delivery for delivery in list_unsent(connection, agent) if delivery.turn_id in turn_ids)
        cancelled = tuple(map(redact_delivery, cancel_unsent(unsent, FORGOTTEN)))
        save_deliveries(connection, agent, cancelled)
        redacted = [redact_receipt(receipt, self._now) for receipt in found]
        for receipt in redacted:
            connection.execute(SET_STATE, state_values(agent, receipt))
        closed = tuple(after for before, after in zip(found, redacted, strict=True) if not before.outcome.is_final)
        count_changed(connection, CLEAR_CONTENT, turn_ids, agent=agent, content=Content())
        count_changed(connection, DELETE_STEPS, turn_ids, agent=agent)
        total = delete_with_derived(connection, agent, [*of_turns])
        counts = _Counts(own_count, len(messages) - own_count, total)
        return DeletionResult(receipts=closed, deliveries=cancelled), answers, counts

    async def _erase_memories(self, window: dict[str, Any]) -> None:
        entity = self._entity_id
        own = await self._search(OWN_MEMORIES, **window, entity=entity, forward=forward_mark(entity))
        for _, content in own:
            self._words.add(_readable(content).text)
        if self._words:
            replies = await self._search(OTHER_REPLIES, **window, entity=entity)
            repeating = await asyncio.to_thread(_find_repeating, self._words, replies)
            await _in_batches(self._redact_replies, repeating)
        quoting = await self._search(QUOTING_MEMORIES, **window, quotation=quotation_mark())
        quoting_ids = [row[0] for row in quoting if self._is_quoted(row[1], _readable(row[2]).quotation)]
        await _in_batches(self._remove_quotations, quoting_ids)
        for counts in await _in_batches(self._delete_memories, [row[0] for row in own]):
            self._counts.add(counts)

    def _is_quoted(self, room_id: UUID, quotation: Quotation | None) -> bool:
        if quotation is None:
            return False
        return quotation.author_id == self._entity_id or quotation.message_id in self._answers.get(room_id, ())

    @writes
    def _delete_memories(self, connection: Connection, ids: Sequence[UUID]) -> _Counts:
        kinds = {row[0]: row[1] for row in rows_of(connection, KINDS, ids, agent=self._agent)}
        message_count = sum(kind == MemoryKind.MESSAGE for kind in kinds.values())
        return _Counts(message_count, 0, delete_with_derived(connection, self._agent, [*kinds]))

    @writes
    def _redact_replies(self, connection: Connection, ids: Sequence[UUID]) -> None:
        """Remove the words from replies, and from what was sent of them; delete the steps of their turns."""
        agent, words = self._agent, self._words
        for reply in MEMORY.find(connection, FIND_MEMORIES, ids, agent=agent):
            redacted = words.remove_from_reply(reply)
            values = {name: getattr(redacted, name) for name in ("content", "metadata")} | memory_columns(redacted)
            connection.execute(SET_REPLY, {"agent": agent, "id_": reply.id, **values})
            search.delete_embeddings(connection, agent, [reply.id])
            if reply.turn_id is None:
                continue
            for part in list_deliveries(connection, agent, turn_id=reply.turn_id):
                content = replace(part.content, text=words.remove_from(part.content.text))
                if content != part.content:
                    kept = Content() if part.state in FINISHED_STATES else content
                    connection.execute(SET_PART, {"agent": agent, "id_": part.id, "content": kept})
            count_changed(connection, DELETE_STEPS, [reply.turn_id], agent=agent)

    @writes
    def _remove_quotations(self, connection: Connection, ids: Sequence[UUID]) -> None:
        rows = rows_of(connection, CONTENTS, ids, agent=self._agent)
        _remove_quotations(connection, self._agent, rows, lambda _: True)

    @writes
    def _delete_proposals(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Delete proposals with the text of the messages that showed them to approvers."""
        count_changed(connection, DELETE_PROPOSALS, [position for position, _, _ in rows], agent=self._agent)
        cards = [card_turn_id(turn_id, action) for _, turn_id, action in rows]
        count_changed(connection, CLEAR_CONTENT, cards, agent=self._agent, content=Content())

    @writes
    def _leave_rooms(self, connection: Connection, room_ids: Sequence[UUID]) -> None:
        erase_names(connection, self._agent, room_ids)
        count_changed(connection, DELETE_PARTICIPATION, room_ids, agent=self._agent, entity=self._entity_id)

    @writes
    def _delete_logs(self, connection: Connection, window: dict[str, int]) -> None:
        for position, body in build_tombstones(connection, self._agent, self._entity_id, **window):
            connection.execute(EMPTY_LOG, {"position_": position, "body": body})
        connection.execute(DELETE_LOGS, {"agent": self._agent, "entity": self._entity_id, **window})

    @writes
    def _anonymize_costs(self, connection: Connection, day: date) -> int:
        return anonymize_costs(connection, self._agent, self._entity_id, day, self._now.date())


async def _in_batches(work: Callable[[Sequence[T]], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Run work on some of the items at a time; return the results."""
    return [await work(items[start : start + ITEMS_PER_BATCH]) for start in range(0, len(items), ITEMS_PER_BATCH)]


def _run(statement: Executable, values: dict[str, Any], connection: Connection) -> int:
    return connection.execute(statement, values).rowcount


def _readable(content: Any) -> Content:
    """Return a stored content; an empty one if it cannot be read."""
    return content if isinstance(content, Content) else Content()


def _find_repeating(words: ErasedWords, rows: Sequence[Row]) -> list[UUID]:
    """Return the ids of the replies that repeat some of the words."""
    return [reply.id for reply in MEMORY.read_all(rows) if words.remove_from_reply(reply) is not reply]


def delete_traces(connection: Connection, agent: int, marks: Collection[UUID], since: datetime | None = None) -> None:
    """Delete what turns noted that read words of these people, or in these rooms, since an hour before `since`."""
    first_turn = first_id(since - MAX_TURN_AGE) if since else NIL
    for mark in marks:
        connection.execute(DELETE_TRACES, {"agent": agent, "first_turn": first_turn, "mark": mark.hex})


async def delete_traces_of(database: Access, agent: int, entity_id: UUID) -> None:
    """Delete what turns noted that read words of a person, in batches between which other work is done."""
    async for window in STEP_WINDOWS.read(database, agent):
        values = {"agent": agent, "mark": entity_id.hex, **window}
        await database.write(partial(_run, DELETE_TRACES_OF, values))


def remove_quotations_in_room(
    connection: Connection, agent: int, room_id: UUID, message_ids: Collection[str], stored_ids: Sequence[UUID] = ()
) -> bool:
    """Remove the words of these messages from the replies to them, in their room; return whether there were any.

    Where all of them are stored, under `stored_ids`, only what came after the first of them is read.
    """
    first = 0
    if len(stored_ids) == len(message_ids):
        positions = rows_of(connection, FIRST_POSITION, stored_ids, agent=agent)
        first = min((row[0] for row in positions if row[0] is not None), default=0)
    mark = quotation_mark(message_id=next(iter(message_ids)) if len(message_ids) == 1 else "")
    values = {"agent": agent, "room_id_": room_id, "kind_": MemoryKind.MESSAGE, "first": first, "mark": mark}
    rows = connection.execute(MARKED_IN_ROOM, values).all()
    return _remove_quotations(connection, agent, rows, lambda quotation: quotation.message_id in message_ids)


def _remove_quotations(
    connection: Connection, agent: int, rows: Sequence[Row], is_removed: Callable[[Quotation], bool]
) -> bool:
    is_changed = False
    for memory_id, content in rows:
        quotation = _readable(content).quotation
        if quotation is not None and is_removed(quotation):
            values = {"agent": agent, "id_": memory_id, "content": replace(content, quotation=None)}
            connection.execute(SET_CONTENT, values)
            is_changed = True
    return is_changed


def _delete_unreadable(connection: Connection, agent: int, platform: str, external_id: str) -> None:
    """Delete the unreadable events that name a person by their id on the platform, if that is still known."""
    if external_id:
        rows = connection.execute(UNREADABLE_OF_PLATFORM, {"agent": agent, "platform_": platform})
        count_changed(connection, DELETE_UNREADABLE, [position for position, raw in rows if external_id in raw])
