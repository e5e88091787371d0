"""Erasure of a person's data, in batches between which other work is done.

No index is maintained for it: tables are read in windows of some thousand rows of their key, up to the last row of
the moment at which it begins. Of what it finds each batch deletes some.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Column, Connection, Table, and_, delete, func, literal_column, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from bot import Content, MemoryKind, Receipt, Rule
from bot.platform import DeliveryState, Quotation
from bot.prompts import ANYBODY
from bot.store import (
    ERASURE_COMPONENT,
    TRACE_KEY,
    DeletionResult,
    ErasedWords,
    ErasureResult,
    anonymize_entity,
    cancel_unsent,
    opt_out_component,
    redact_delivery,
    redact_receipt,
)
from plugins.sql.core.audit_log import build_tombstones
from plugins.sql.core.base import Access
from plugins.sql.core.columns import text_position
from plugins.sql.core.memory_rows import MEMORY
from plugins.sql.core.row_cache import invalidate
from plugins.sql.core.schema import (
    activity,
    cache,
    components,
    deliveries,
    logs,
    memories,
    participants,
    receipts,
    relationships,
    steps,
    tasks,
    unreadable_events,
)
from plugins.sql.core.statements import (
    ListStatement,
    Row,
    Statement,
    equals,
    flag_equals,
    limit_parameter,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import (
    content_of,
    content_text,
    dumps,
    first_id,
    forward_mark,
    microseconds_of,
    quotation_mark,
)
from plugins.sql.stores import search
from plugins.sql.stores.cache_logs_costs import DAYS_OF_PERSON, anonymize_costs
from plugins.sql.stores.deliveries import DELIVERIES_OF_TURN, DELIVERY, list_unsent, save_delivery
from plugins.sql.stores.entities import UPSERT_COMPONENT, UPSERT_ENTITY, component_values, entity_values, find_entities
from plugins.sql.stores.memories import FIND_MEMORIES, delete_with_derived
from plugins.sql.stores.receipts import RECEIPT, RECEIPT_STATE_NAMES, state_values
from plugins.sql.stores.worlds import erase_names

ROWS_PER_WINDOW, ITEMS_PER_BATCH = 2_000, 50  # each takes some milliseconds
MAX_TURN_AGE = timedelta(hours=1)  # a turn reads messages that came after it began
FINISHED_STATES = tuple(state.value for state in (DeliveryState.SENT, DeliveryState.CANCELLED, DeliveryState.FAILED))
OnCancelled = Callable[[DeletionResult], Awaitable[None]]


class Windows:
    """Windows of an agent's rows of one table, in the order of a key; the condition of a statement on one of them."""

    def __init__(self, key: Column[Any], lowest: Any) -> None:
        table = key.table
        self._lowest = lowest
        after, last = typed_parameter(key, "after"), typed_parameter(key, "last")
        self.condition = and_(matches(table, "agent_id"), key > after, key <= last)
        of_agent = matches(table, "agent_id")
        self._find_last = Statement(lambda _: select(key).where(of_agent).order_by(key.desc()).limit(1))
        self._find_end = Statement(
            lambda _: select(key).where(self.condition).order_by(key).limit(1).offset(limit_parameter())
        )

    def find_last(self, connection: Connection, agent: int) -> Any:
        """Return the last key; the lowest one if there is no row."""
        row = self._find_last.first(connection, agent)
        return self._lowest if row is None else row[0]

    async def read(self, database: Access, agent: int, last: Any = None) -> AsyncIterator[tuple[Any, Any]]:
        """Yield after which key each window begins, and its last one, up to `last` or the last key of now."""
        if last is None:
            last = await database.search(partial(self.find_last, agent=agent))
        after = self._lowest
        while after != last:
            values = (agent, after, last, ROWS_PER_WINDOW - 1)
            row = await database.search(partial(_first, self._find_end, values))
            end = last if row is None else row[0]
            yield after, end
            after = end


RECEIPT_WINDOWS, MEMORY_WINDOWS = Windows(receipts.c.position, 0), Windows(memories.c.position, 0)
STEP_WINDOWS, COMPONENT_WINDOWS = Windows(steps.c.turn_id, b""), Windows(components.c.position, 0)
RELATIONSHIP_WINDOWS, TASK_WINDOWS = Windows(relationships.c.position, 0), Windows(tasks.c.position, 0)
PARTICIPANT_WINDOWS, LOG_WINDOWS = Windows(participants.c.room_id, b""), Windows(logs.c.position, 0)
CACHE_WINDOWS = Windows(cache.c.key, "")


def _delete_in(windows: Windows, table: Table, *conditions: ColumnElement[bool]) -> Statement:
    """Return a statement that deletes the rows of a window under conditions."""
    return Statement(lambda _: delete(table).where(windows.condition, *conditions))


def _names(*columns: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that one of these columns names the entity."""
    return or_(*(equals(column, "entity") for column in columns))


def _contains(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return text_position(column, typed_parameter(column, name)) > literal_column("0")


REDACT_RECEIPT = Statement(
    lambda _: (
        update(receipts)
        .where(matches(receipts, "agent_id", "id"))
        .values({name: typed_parameter(receipts.c[name], name) for name in RECEIPT_STATE_NAMES})
    )
)
CLEAR_CONTENT = ListStatement(
    lambda ids: (
        update(deliveries)
        .where(
            matches(deliveries, "agent_id"),
            deliveries.c.turn_id.in_(ids),
            deliveries.c.state.in_([literal_column(f"'{state}'") for state in FINISHED_STATES]),
        )
        .values(content=typed_parameter(deliveries.c.content, "content"))
    )
)
DELETE_STEPS = ListStatement(lambda ids: delete(steps).where(matches(steps, "agent_id"), steps.c.turn_id.in_(ids)))
DELETE_TRACES = Statement(
    lambda _: delete(steps).where(
        matches(steps, "agent_id"),
        steps.c.turn_id >= typed_parameter(steps.c.turn_id, "first_turn"),
        steps.c.key == literal_column(f"'{TRACE_KEY}'"),
        _contains(steps.c.effect, "mark"),
    )
)
DELIVERED_OF_TURNS = ListStatement(
    lambda ids: select(deliveries.c.room_id, deliveries.c.external_id).where(
        matches(deliveries, "agent_id"), deliveries.c.turn_id.in_(ids), deliveries.c.external_id != literal_column("''")
    )
)
CONTENT = typed_parameter(memories.c.content, "content")
MARKED_IN_ROOM = Statement(
    lambda _: select(memories.c.id, memories.c.content).where(
        matches(memories, "agent_id", "room_id", "kind"),
        memories.c.position >= typed_parameter(memories.c.position, "first"),
        _contains(memories.c.content, "mark"),
    )
)
FIRST_POSITION = ListStatement(
    lambda ids: select(func.min(memories.c.position)).where(matches(memories, "agent_id"), memories.c.id.in_(ids))
)
SET_CONTENT = Statement(lambda _: update(memories).where(matches(memories, "agent_id", "id")).values(content=CONTENT))
OPEN_RECEIPTS = Statement(
    lambda _: select(receipts.c.id).where(matches(receipts, "agent_id", "author_id"), flag_equals(receipts.c.is_open))
)
AUTHORS_RECEIPTS = Statement(
    lambda _: select(receipts.c.id).where(
        RECEIPT_WINDOWS.condition, _names(receipts.c.author_id), receipts.c.rule != literal_column(f"'{Rule.ERASED}'")
    )
)
FIND_RECEIPTS = ListStatement(lambda ids: select(*RECEIPT).where(matches(receipts, "agent_id"), receipts.c.id.in_(ids)))
OWN_MEMORIES = Statement(
    lambda _: select(memories.c.id, memories.c.content).where(
        MEMORY_WINDOWS.condition, or_(_names(memories.c.entity_id), _contains(memories.c.content, "forward"))
    )
)
QUOTING_MEMORIES = Statement(
    lambda _: select(memories.c.id, memories.c.room_id, memories.c.content).where(
        MEMORY_WINDOWS.condition, _contains(memories.c.content, "quotation")
    )
)
OTHER_REPLIES = Statement(
    lambda _: select(*MEMORY).where(
        MEMORY_WINDOWS.condition,
        memories.c.turn_id.is_not(None),
        memories.c.entity_id != typed_parameter(memories.c.entity_id, "entity"),
    )
)
KINDS = ListStatement(
    lambda ids: select(memories.c.id, memories.c.kind).where(matches(memories, "agent_id"), memories.c.id.in_(ids))
)
CONTENTS = ListStatement(
    lambda ids: select(memories.c.id, memories.c.content).where(matches(memories, "agent_id"), memories.c.id.in_(ids))
)
MEMORIES_OF_TURNS = ListStatement(
    lambda ids: select(memories.c.id, memories.c.kind, memories.c.entity_id).where(
        matches(memories, "agent_id"), memories.c.turn_id.in_(ids)
    )
)
SET_REPLY = Statement(
    lambda _: (
        update(memories)
        .where(matches(memories, "agent_id", "id"))
        .values(content=CONTENT, metadata=typed_parameter(memories.c.metadata, "details"))
    )
)
SET_PART = Statement(
    lambda _: (
        update(deliveries)
        .where(matches(deliveries, "agent_id", "id"))
        .values(content=typed_parameter(deliveries.c.content, "content"))
    )
)
DELETE_READ_TRACES = _delete_in(
    STEP_WINDOWS,
    steps,
    steps.c.key == literal_column(f"'{TRACE_KEY}'"),
    or_(_contains(steps.c.effect, "mark"), _contains(steps.c.effect, "anybody")),
)
DELETE_COMPONENTS = _delete_in(
    COMPONENT_WINDOWS,
    components,
    _names(components.c.entity_id, components.c.source_entity_id),
    components.c.type != literal_column(f"'{ERASURE_COMPONENT}'"),
)
DELETE_RELATIONSHIPS = _delete_in(
    RELATIONSHIP_WINDOWS, relationships, _names(relationships.c.source_id, relationships.c.target_id)
)
DELETE_TASKS = _delete_in(TASK_WINDOWS, tasks, _names(tasks.c.entity_id))
ROOMS_OF_ENTITY = Statement(
    lambda _: select(participants.c.room_id).where(PARTICIPANT_WINDOWS.condition, _names(participants.c.entity_id))
)
DELETE_PARTICIPATION = ListStatement(
    lambda ids: delete(participants).where(
        matches(participants, "agent_id", "entity_id"), participants.c.room_id.in_(ids)
    )
)
DELETE_ACTIVITY = Statement(lambda _: delete(activity).where(matches(activity, "agent_id", "entity_id")))
DELETE_LOGS = _delete_in(LOG_WINDOWS, logs, _names(logs.c.entity_id))
DELETE_CACHED = _delete_in(CACHE_WINDOWS, cache, _contains(cache.c.key, "entity"))
UNREADABLE_OF_PLATFORM = Statement(
    lambda _: select(unreadable_events.c.position, unreadable_events.c.raw).where(
        matches(unreadable_events, "agent_id", "platform")
    )
)
DELETE_UNREADABLE = Statement(lambda _: delete(unreadable_events).where(matches(unreadable_events, "position")))
EMPTY_LOG = Statement(
    lambda _: (
        update(logs).where(matches(logs, "position")).values(body=typed_parameter(logs.c.body, "body"), entity_id=None)
    )
)


@dataclass(slots=True)
class _Counts:
    """How many memories were deleted: messages of the person, replies to them, and all with what was derived."""

    messages: int = 0
    replies: int = 0
    total: int = 0


class Erasure:
    """Deletes a person's data, the replies to them, and what was derived from either; used once."""

    def __init__(
        self, database: Access, agent: int, entity_id: UUID, now: datetime, on_cancelled: OnCancelled | None = None
    ) -> None:
        self._database, self._agent, self._entity_id, self._now = database, agent, entity_id, now
        self._on_cancelled = on_cancelled
        self._entity = entity_id.bytes
        self._words = ErasedWords()
        self._counts = _Counts()
        self._answers: defaultdict[bytes, set[str]] = defaultdict(set)  # ids on the platform by room

    async def run(self) -> ErasureResult:
        """Delete all of it; where it was interrupted, a repetition deletes the rest."""
        begin = partial(_begin, self._agent, self._entity_id, self._now)
        opened, last_receipt, last_memory = await self._database.write(begin)
        cancelled = await self._erase_receipts(opened)
        if self._on_cancelled is not None:
            await self._on_cancelled(cancelled)
        async for window in RECEIPT_WINDOWS.read(self._database, self._agent, last_receipt):
            rows = await self._rows(AUTHORS_RECEIPTS, window, self._entity)
            await self._erase_receipts([row[0] for row in rows])
        async for window in MEMORY_WINDOWS.read(self._database, self._agent, last_memory):
            await self._erase_memories(window)
        await self._delete(STEP_WINDOWS, DELETE_READ_TRACES, self._entity_id.hex, ANYBODY.hex)
        component_count = await self._delete(COMPONENT_WINDOWS, DELETE_COMPONENTS, self._entity)
        relationship_count = await self._delete(RELATIONSHIP_WINDOWS, DELETE_RELATIONSHIPS, self._entity)
        task_count = await self._delete(TASK_WINDOWS, DELETE_TASKS, self._entity)
        async for window in PARTICIPANT_WINDOWS.read(self._database, self._agent):
            rows = await self._rows(ROOMS_OF_ENTITY, window, self._entity)
            await self._write_each(_leave_rooms, [row[0] for row in rows], self._entity)
        async for window in LOG_WINDOWS.read(self._database, self._agent):
            await self._database.write(partial(_delete_logs, self._agent, self._entity, window))
        await self._delete(CACHE_WINDOWS, DELETE_CACHED, str(self._entity_id))
        cost_count = await self._anonymize_costs()
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

    async def _rows(self, statement: Statement, window: tuple[Any, Any], *values: Any) -> Sequence[Row]:
        return await self._database.search(lambda db: statement.rows(db, self._agent, *window, *values))

    async def _delete(self, windows: Windows, statement: Statement, *values: Any) -> int:
        count = 0
        async for window in windows.read(self._database, self._agent):
            row = (self._agent, *window, *values)
            count += await self._database.write(partial(_run, statement, row))
        return count

    async def _write_each(self, work: Callable[..., Any], items: Sequence[Any], *values: Any) -> list[Any]:
        """Run work on some of the items at a time; return the results."""
        return [
            await self._database.write(partial(work, self._agent, *values, items[start : start + ITEMS_PER_BATCH]))
            for start in range(0, len(items), ITEMS_PER_BATCH)
        ]

    async def _erase_receipts(self, ids: Sequence[bytes]) -> DeletionResult:
        closed: list[DeletionResult] = []
        for cancelled, answers, counts in await self._write_each(_erase_receipts, ids, self._entity, self._now):
            closed.append(cancelled)
            self._add(counts)
            for room_id, external_id in answers:
                self._answers[room_id].add(external_id)
        return DeletionResult(
            receipts=tuple(receipt for result in closed for receipt in result.receipts),
            deliveries=tuple(delivery for result in closed for delivery in result.deliveries),
        )

    async def _erase_memories(self, window: tuple[Any, Any]) -> None:
        own = await self._rows(OWN_MEMORIES, window, self._entity, forward_mark(self._entity_id))
        for _, text in own:
            self._words.add(_content_of(text).text)
        if self._words:
            replies = await self._rows(OTHER_REPLIES, window, self._entity)
            repeating = await asyncio.to_thread(_find_repeating, self._words, replies)
            await self._write_each(_redact_replies, repeating, self._words)
        quoting = await self._rows(QUOTING_MEMORIES, window, quotation_mark())
        quoting_ids = [row[0] for row in quoting if self._is_quoted(row[1], _content_of(row[2]).quotation)]
        await self._write_each(_remove_quotations_of, quoting_ids)
        for counts in await self._write_each(_delete_memories, [row[0] for row in own]):
            self._add(counts)

    def _is_quoted(self, room_id: bytes, quotation: Quotation | None) -> bool:
        if quotation is None:
            return False
        return quotation.author_id == self._entity_id or quotation.message_id in self._answers.get(room_id, ())

    def _add(self, counts: _Counts) -> None:
        self._counts.messages += counts.messages
        self._counts.replies += counts.replies
        self._counts.total += counts.total

    async def _anonymize_costs(self) -> int:
        key, today = (self._agent, self._entity), self._now.date()
        days = await self._database.search(lambda db: DAYS_OF_PERSON.rows(db, *key))
        return sum([await self._database.write(partial(anonymize_costs, *key, day, today)) for [day] in days])


def _first(statement: Statement, values: Row, connection: Connection) -> Row | None:
    return statement.first(connection, *values)


def _run(statement: Statement, values: Row, connection: Connection) -> int:
    return statement.run(connection, *values)


def _content_of(text: str) -> Content:
    """Return a stored content; an empty one if it cannot be read."""
    try:
        return content_of(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        return Content()


def _begin(agent: int, entity_id: UUID, now: datetime, connection: Connection) -> tuple[list[bytes], int, int]:
    """Mark the person, and remove their names; return their open receipts, and the last receipt and memory."""
    if (entity := find_entities(connection, agent, [entity_id]).get(entity_id)) is not None:
        _delete_unreadable(connection, agent, entity.platform, entity.external_id)
        UPSERT_ENTITY.run(connection, *entity_values(agent, anonymize_entity(entity)))
    UPSERT_COMPONENT.run(connection, *component_values(agent, opt_out_component(entity_id, now)))
    DELETE_ACTIVITY.run(connection, agent, entity_id.bytes)
    invalidate(connection)
    opened_ids = [bytes(row[0]) for row in OPEN_RECEIPTS.rows(connection, agent, entity_id.bytes)]
    return opened_ids, RECEIPT_WINDOWS.find_last(connection, agent), MEMORY_WINDOWS.find_last(connection, agent)


def _erase_receipts(
    agent: int, entity: bytes, now: datetime, ids: Sequence[bytes], connection: Connection
) -> tuple[DeletionResult, Sequence[Row], _Counts]:
    """Redact receipts, and delete what their turns have made; return what was cancelled, and the answers' ids."""
    found = list(RECEIPT.read_all(FIND_RECEIPTS.rows(connection, agent, ids=ids)))
    turn_ids = [receipt.turn_id.bytes for receipt in found if receipt.turn_id is not None]
    of_turns = {bytes(row[0]): row for row in MEMORIES_OF_TURNS.rows(connection, agent, ids=turn_ids)}
    messages = [author for _, kind, author in of_turns.values() if kind == MemoryKind.MESSAGE.value]
    own_count = sum(bytes(author) == entity for author in messages)
    answers = DELIVERED_OF_TURNS.rows(connection, agent, ids=turn_ids)
    cancelled = _redact_receipts(connection, agent, now, found)
    CLEAR_CONTENT.count(connection, content_text(Content()), agent, ids=turn_ids)
    DELETE_STEPS.count(connection, agent, ids=turn_ids)
    total = delete_with_derived(connection, agent, [*of_turns])
    return cancelled, answers, _Counts(own_count, len(messages) - own_count, total)


def _delete_memories(agent: int, ids: Sequence[bytes], connection: Connection) -> _Counts:
    kinds = dict(tuple(row) for row in KINDS.rows(connection, agent, ids=ids))
    message_count = sum(kind == MemoryKind.MESSAGE.value for kind in kinds.values())
    return _Counts(message_count, 0, delete_with_derived(connection, agent, [*kinds]))


def _find_repeating(words: ErasedWords, rows: Sequence[Row]) -> list[bytes]:
    """Return the ids of the replies that repeat some of the words."""
    return [reply.id.bytes for reply in MEMORY.read_all(rows) if words.remove_from_reply(reply) is not reply]


def _redact_replies(agent: int, words: ErasedWords, ids: Sequence[bytes], connection: Connection) -> None:
    """Remove the words from replies, and from what was sent of them; delete the steps of their turns."""
    for reply in MEMORY.read_all(FIND_MEMORIES.rows(connection, agent, ids=ids)):
        redacted = words.remove_from_reply(reply)
        SET_REPLY.run(connection, content_text(redacted.content), dumps(redacted.metadata), agent, reply.id.bytes)
        search.delete_embeddings(connection, agent, [reply.id])
        search.delete_words(connection, agent, [reply.id])
        search.store_words(connection, agent, [redacted])
        if reply.turn_id is None:
            continue
        for part in DELIVERY.read_all(DELIVERIES_OF_TURN.rows(connection, agent, reply.turn_id.bytes)):
            content = replace(part.content, text=words.remove_from(part.content.text))
            if content != part.content:
                kept = Content() if part.state.value in FINISHED_STATES else content
                SET_PART.run(connection, content_text(kept), agent, part.id)
        DELETE_STEPS.count(connection, agent, ids=[reply.turn_id.bytes])


def _remove_quotations_of(agent: int, ids: Sequence[bytes], connection: Connection) -> None:
    rows = [(row[0], row[1]) for row in CONTENTS.rows(connection, agent, ids=ids)]
    _remove_quotations(connection, agent, rows, lambda _: True)


def _leave_rooms(agent: int, entity: bytes, room_ids: Sequence[bytes], connection: Connection) -> None:
    erase_names(connection, agent, room_ids)
    DELETE_PARTICIPATION.count(connection, agent, entity, ids=room_ids)
    invalidate(connection)


def _delete_logs(agent: int, entity: bytes, window: tuple[int, int], connection: Connection) -> None:
    EMPTY_LOG.run_many(connection, build_tombstones(connection, agent, entity, *window))
    DELETE_LOGS.run(connection, agent, *window, entity)


def delete_traces(connection: Connection, agent: int, marks: Collection[UUID], since: datetime | None = None) -> None:
    """Delete what turns noted that read words of these people, or in these rooms, since an hour before `since`."""
    first_turn = first_id(microseconds_of(since - MAX_TURN_AGE)) if since else bytes(16)
    for mark in marks:
        DELETE_TRACES.run(connection, agent, first_turn, mark.hex)


def remove_quotations_in_room(
    connection: Connection, agent: int, room_id: UUID, message_ids: Collection[str], stored_ids: Sequence[UUID] = ()
) -> bool:
    """Remove the words of these messages from the replies to them, in their room; return whether there were any.

    Where all of them are stored, under `stored_ids`, only what came after the first of them is read.
    """
    first = 0
    if len(stored_ids) == len(message_ids):
        positions = FIRST_POSITION.rows(connection, agent, ids=[memory_id.bytes for memory_id in stored_ids])
        first = next((row[0] for row in positions if row[0] is not None), 0)
    mark = quotation_mark(message_id=next(iter(message_ids)) if len(message_ids) == 1 else "")
    rows = MARKED_IN_ROOM.rows(connection, agent, room_id.bytes, MemoryKind.MESSAGE.value, first, mark)
    return _remove_quotations(connection, agent, rows, lambda quotation: quotation.message_id in message_ids)


def _remove_quotations(
    connection: Connection, agent: int, rows: Sequence[Row], is_removed: Callable[[Quotation], bool]
) -> bool:
    contents = ((key, _content_of(text)) for key, text in rows)
    changed = [
        (content_text(replace(content, quotation=None)), agent, key)
        for key, content in contents
        if content.quotation is not None and is_removed(content.quotation)
    ]
    SET_CONTENT.run_many(connection, changed)
    return bool(changed)


def _delete_unreadable(connection: Connection, agent: int, platform: str, external_id: str) -> None:
    """Delete the unreadable events that name a person by their id on the platform, if that is still known."""
    rows = UNREADABLE_OF_PLATFORM.rows(connection, agent, platform) if external_id else ()
    DELETE_UNREADABLE.run_many(connection, [(position,) for position, raw in rows if external_id in raw])


def _redact_receipts(
    connection: Connection, agent: int, now: datetime, entity_receipts: list[Receipt]
) -> DeletionResult:
    """Redact receipts; cancel open receipts and deliveries."""
    turn_ids = {receipt.turn_id for receipt in entity_receipts if receipt.turn_id is not None}
    deliveries_of_turns = (item for item in list_unsent(agent, connection) if item.turn_id in turn_ids)
    unsent = cancel_unsent(deliveries_of_turns, "it was forgotten")
    cancelled = tuple(map(redact_delivery, unsent))
    for delivery in cancelled:
        save_delivery(agent, delivery, connection)
    redactions = [(receipt, redact_receipt(receipt, now)) for receipt in entity_receipts]
    REDACT_RECEIPT.run_many(connection, [(*state_values(after), agent, after.id.bytes) for _, after in redactions])
    return DeletionResult(
        receipts=tuple(after for before, after in redactions if not before.outcome.is_final), deliveries=cancelled
    )
