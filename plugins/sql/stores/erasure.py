"""Erasure of a person's data. It scans whole tables, because no index is maintained for it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table, delete, func, literal_column, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from bot import Content, Entity, MemoryKind, Receipt
from bot.platform import DeliveryState, Quotation
from bot.prompts import ANYBODY
from bot.store import (
    TRACE_KEY,
    DeletionResult,
    ErasureResult,
    anonymize_entity,
    cancel_unsent,
    opt_out_component,
    redact_delivery,
    redact_receipt,
)
from plugins.sql.core.audit_log import build_tombstones
from plugins.sql.core.columns import text_position
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
from plugins.sql.core.statements import ListStatement, Row, Statement, equals, matches, typed_parameter
from plugins.sql.core.values import (
    content_of,
    content_text,
    first_id,
    forward_mark,
    id_of,
    microseconds_of,
    quotation_mark,
)
from plugins.sql.stores.cache_logs_costs import anonymize_costs
from plugins.sql.stores.deliveries import list_unsent, save_delivery
from plugins.sql.stores.entities import UPSERT_COMPONENT, UPSERT_ENTITY, component_values, entity_values, find_entities
from plugins.sql.stores.memories import delete_with_derived
from plugins.sql.stores.receipts import RECEIPT, RECEIPT_STATE_NAMES, state_values
from plugins.sql.stores.worlds import erase_names

MAX_TURN_AGE = timedelta(hours=1)  # a turn reads messages that came after it began
FINISHED_STATES = tuple(state.value for state in (DeliveryState.SENT, DeliveryState.CANCELLED, DeliveryState.FAILED))


def _delete_of_entity(table: Table, *columns: ColumnElement[Any]) -> Statement:
    """Return a statement that deletes the rows in which one of these columns names the entity."""
    is_of_entity = or_(*(equals(column, "entity") for column in columns))
    of_agent = matches(table, "agent_id")
    return Statement(lambda _: delete(table).where(of_agent, is_of_entity))


MEMORIES_OF_ENTITY = Statement(
    lambda _: select(memories.c.id, memories.c.kind).where(matches(memories, "agent_id", "entity_id"))
)
RECEIPTS_OF_ENTITY = Statement(lambda _: select(*RECEIPT).where(matches(receipts, "agent_id", "author_id")))
REDACT_RECEIPT = Statement(
    lambda _: (
        update(receipts)
        .where(matches(receipts, "agent_id", "id"))
        .values({name: typed_parameter(receipts.c[name], name) for name in RECEIPT_STATE_NAMES})
    )
)
MEMORIES_OF_TURNS = ListStatement(
    lambda ids: select(memories.c.id, memories.c.kind).where(matches(memories, "agent_id"), memories.c.turn_id.in_(ids))
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
        text_position(steps.c.effect, typed_parameter(steps.c.effect, "mark")) > literal_column("0"),
    )
)
DELIVERED_OF_TURNS = ListStatement(
    lambda ids: select(deliveries.c.room_id, deliveries.c.external_id).where(
        matches(deliveries, "agent_id"), deliveries.c.turn_id.in_(ids), deliveries.c.external_id != literal_column("''")
    )
)
CONTENT = typed_parameter(memories.c.content, "content")
MARKED = text_position(memories.c.content, typed_parameter(memories.c.content, "mark")) > literal_column("0")
MARKED_MEMORIES = Statement(
    lambda _: select(memories.c.id, memories.c.content).where(matches(memories, "agent_id"), MARKED)
)
MARKED_IN_ROOM = Statement(
    lambda _: select(memories.c.id, memories.c.content).where(
        matches(memories, "agent_id", "room_id", "kind"),
        memories.c.position >= typed_parameter(memories.c.position, "first"),
        MARKED,
    )
)
FIRST_POSITION = ListStatement(
    lambda ids: select(func.min(memories.c.position)).where(matches(memories, "agent_id"), memories.c.id.in_(ids))
)
SET_CONTENT = Statement(lambda _: update(memories).where(matches(memories, "agent_id", "id")).values(content=CONTENT))
DELETE_COMPONENTS = _delete_of_entity(components, components.c.entity_id, components.c.source_entity_id)
DELETE_RELATIONSHIPS = _delete_of_entity(relationships, relationships.c.source_id, relationships.c.target_id)
DELETE_TASKS = _delete_of_entity(tasks, tasks.c.entity_id)
DELETE_PARTICIPATION = _delete_of_entity(participants, participants.c.entity_id)
DELETE_ACTIVITY = _delete_of_entity(activity, activity.c.entity_id)
DELETE_CACHED = Statement(
    lambda _: delete(cache).where(
        matches(cache, "agent_id"),
        text_position(cache.c.key, typed_parameter(cache.c.key, "entity")) > literal_column("0"),
    )
)
DELETE_LOGS = _delete_of_entity(logs, logs.c.entity_id)
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


def erase_entity(agent: int, entity_id: UUID, now: datetime, connection: Connection) -> ErasureResult:
    """Delete a person's data, the replies to them, and what was derived from either."""
    key = (agent, entity_id.bytes)
    memory_kinds = {row[0]: row[1] for row in MEMORIES_OF_ENTITY.rows(connection, *key)}
    forwards = MARKED_MEMORIES.rows(connection, agent, forward_mark(entity_id))
    memory_kinds |= {row[0]: MemoryKind.MESSAGE.value for row in forwards}
    entity_receipts = list(RECEIPT.read_all(RECEIPTS_OF_ENTITY.rows(connection, *key)))
    turn_ids = [receipt.turn_id.bytes for receipt in entity_receipts if receipt.turn_id is not None]
    of_turns = dict(tuple(row) for row in MEMORIES_OF_TURNS.rows(connection, agent, ids=turn_ids))
    replies = [kind for key, kind in of_turns.items() if key not in memory_kinds and kind == MemoryKind.MESSAGE.value]
    cancelled = _redact_receipts(connection, agent, now, entity_receipts)
    _remove_quotations_of(connection, agent, entity_id, turn_ids)
    CLEAR_CONTENT.count(connection, content_text(Content()), agent, ids=turn_ids)
    DELETE_STEPS.count(connection, agent, ids=turn_ids)
    delete_traces(connection, agent, [entity_id, ANYBODY])
    derived_count = (
        delete_with_derived(connection, agent, [*(memory_kinds | of_turns)]) - len(memory_kinds) - len(replies)
    )
    component_count = DELETE_COMPONENTS.run(connection, *key)
    relationship_count = DELETE_RELATIONSHIPS.run(connection, *key)
    task_count = DELETE_TASKS.run(connection, *key)
    erase_names(connection, agent, entity_id)
    DELETE_PARTICIPATION.run(connection, *key)
    DELETE_ACTIVITY.run(connection, *key)
    EMPTY_LOG.run_many(connection, build_tombstones(connection, *key))
    DELETE_LOGS.run(connection, *key)
    DELETE_CACHED.run(connection, agent, str(entity_id))
    cost_count = anonymize_costs(connection, *key)
    if (entity := find_entities(connection, agent, [entity_id]).get(entity_id)) is not None:
        _delete_unreadable(connection, agent, entity)
        UPSERT_ENTITY.run(connection, *entity_values(agent, anonymize_entity(entity)))
    UPSERT_COMPONENT.run(connection, *component_values(agent, opt_out_component(entity_id, now)))
    invalidate(connection)
    message_count = sum(kind == MemoryKind.MESSAGE.value for kind in memory_kinds.values())
    return ErasureResult(
        message_count,
        len(replies),
        derived_count + len(memory_kinds) - message_count,
        component_count,
        relationship_count,
        task_count,
        cancelled,
        cost_count,
    )


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


def _remove_quotations_of(connection: Connection, agent: int, entity_id: UUID, turn_ids: Sequence[bytes]) -> None:
    """Remove a person's words, and those of the answers to them, from the replies of others."""
    rows = MARKED_MEMORIES.rows(connection, agent, quotation_mark(author_id=entity_id))
    _remove_quotations(connection, agent, rows, lambda quotation: quotation.author_id == entity_id)
    answers: dict[UUID, set[str]] = {}
    for room_id, external_id in DELIVERED_OF_TURNS.rows(connection, agent, ids=turn_ids):
        answers.setdefault(id_of(room_id), set()).add(external_id)
    for room_id, message_ids in answers.items():
        remove_quotations_in_room(connection, agent, room_id, message_ids)


def _remove_quotations(
    connection: Connection, agent: int, rows: Sequence[Row], is_removed: Callable[[Quotation], bool]
) -> bool:
    contents = ((key, content_of(text)) for key, text in rows)
    changed = [
        (content_text(replace(content, quotation=None)), agent, key)
        for key, content in contents
        if content.quotation is not None and is_removed(content.quotation)
    ]
    SET_CONTENT.run_many(connection, changed)
    return bool(changed)


def _delete_unreadable(connection: Connection, agent: int, entity: Entity) -> None:
    """Delete the unreadable events that name a person by their id on the platform."""
    rows = UNREADABLE_OF_PLATFORM.rows(connection, agent, entity.platform)
    DELETE_UNREADABLE.run_many(connection, [(position,) for position, raw in rows if entity.external_id in raw])


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
