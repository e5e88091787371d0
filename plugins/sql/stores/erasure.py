"""Forgetting somebody, in SQL. It looks through whole tables: no index on the road is kept for it."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table, delete, literal_column, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from bot import Content, MemoryKind, Receipt
from bot.platform import DeliveryState
from bot.store import Forgotten, Removed, blotted, nobody, opted_out, withheld
from plugins.sql.core.row_cache import forget as forget_what_is_known
from plugins.sql.core.schema import (
    components,
    deliveries,
    logs,
    memories,
    participants,
    receipts,
    relationships,
    steps,
    tasks,
)
from plugins.sql.core.statements import Listing, Statement, same, value
from plugins.sql.core.values import content_text
from plugins.sql.stores.audit_log import emptied
from plugins.sql.stores.deliveries import list_deliveries, save_delivery
from plugins.sql.stores.entities import (
    UPSERT_COMPONENT,
    UPSERT_ENTITY,
    component_values,
    entity_values,
    find_entities,
)
from plugins.sql.stores.memories import REMOVE
from plugins.sql.stores.receipts import LATER_NAMES, RECEIPT, later_values, receipt_of

SETTLED = tuple(one.value for one in (DeliveryState.SENT, DeliveryState.CANCELLED, DeliveryState.FAILED))


def _without(table: Table, *columns: ColumnElement[Any]) -> Statement:
    """Delete the rows of a table in which one of these columns names somebody."""
    is_theirs = or_(*(same(column, "entity") for column in columns))
    of_agent = same(table.c.agent_id, "agent")
    return Statement(lambda _: delete(table).where(of_agent, is_theirs), "agent", "entity")


SAID = Statement(
    lambda _: select(memories.c.id, memories.c.kind).where(
        same(memories.c.agent_id, "agent"), same(memories.c.entity_id, "entity")
    ),
    "agent",
    "entity",
)
RECEIVED = Statement(
    lambda _: select(*RECEIPT).where(
        same(receipts.c.agent_id, "agent"), same(receipts.c.author_id, "entity")
    ),
    "agent",
    "entity",
)
BLOT = Statement(
    lambda _: (
        update(receipts)
        .where(same(receipts.c.agent_id, "agent"), same(receipts.c.id, "of_id"))
        .values({name: value(receipts.c[name], name) for name in LATER_NAMES})
    ),
    *LATER_NAMES,
    "agent",
    "of_id",
)
MADE = Listing(
    lambda ids: select(memories.c.id).where(same(memories.c.agent_id, "agent"), memories.c.turn_id.in_(ids)),
    "agent",
)
DRAWN = Listing(
    lambda ids: select(memories.c.id).where(
        same(memories.c.agent_id, "agent"), memories.c.source_id.in_(ids)
    ),
    "agent",
)
SILENCE = Listing(
    lambda ids: (
        update(deliveries)
        .where(
            same(deliveries.c.agent_id, "agent"),
            deliveries.c.turn_id.in_(ids),
            deliveries.c.state.in_([literal_column(f"'{one}'") for one in SETTLED]),
        )
        .values(content=value(deliveries.c.content, "content"))
    ),
    "content",
    "agent",
)
DROP_STEPS = Listing(
    lambda ids: delete(steps).where(same(steps.c.agent_id, "agent"), steps.c.turn_id.in_(ids)), "agent"
)
DETAILS = _without(components, components.c.entity_id, components.c.source_entity_id)
TIES = _without(relationships, relationships.c.source_id, relationships.c.target_id)
TASKS = _without(tasks, tasks.c.entity_id)
PRESENCE = _without(participants, participants.c.entity_id)
ENTRIES = _without(logs, logs.c.entity_id)
EMPTY = Statement(
    lambda _: (
        update(logs)
        .where(same(logs.c.position, "position"))
        .values(body=value(logs.c.body, "body"), entity_id=None)
    ),
    "position",
    "body",
)


def forget(agent: int, entity_id: UUID, at: datetime, connection: Connection) -> Forgotten:
    """Delete what is kept of somebody, answers to them and what was drawn from either."""
    key = (agent, entity_id.bytes)
    said = {row[0]: row[1] for row in SAID.rows(connection, *key)}
    known = [receipt_of(row) for row in RECEIVED.rows(connection, *key)]
    turns = [one.turn_id.bytes for one in known if one.turn_id is not None]
    answers = {row[0] for row in MADE.rows(connection, agent, ids=turns)} - said.keys()
    removed = _take_back(connection, agent, at, known)
    SILENCE.count(connection, content_text(Content()), agent, ids=turns)
    DROP_STEPS.count(connection, agent, ids=turns)
    drawn = _remove(connection, agent, said.keys() | answers) - len(said.keys() | answers)
    details = DETAILS.run(connection, *key)
    ties, work = TIES.run(connection, *key), TASKS.run(connection, *key)
    PRESENCE.run(connection, *key)
    EMPTY.run_many(connection, emptied(connection, *key))
    ENTRIES.run(connection, *key)
    if (person := find_entities(connection, agent, [entity_id]).get(entity_id)) is not None:
        UPSERT_ENTITY.run(connection, *entity_values(agent, nobody(person)))
    UPSERT_COMPONENT.run(connection, *component_values(agent, opted_out(entity_id, at)))
    forget_what_is_known(connection)
    messages = sum(kind == MemoryKind.MESSAGE.value for kind in said.values())
    return Forgotten(messages, len(answers), drawn + len(said) - messages, details, ties, work, removed)


def _take_back(connection: Connection, agent: int, at: datetime, known: list[Receipt]) -> Removed:
    """Take the words out of receipts, and cancel what is open."""
    turns = {one.turn_id for one in known if one.turn_id is not None}
    parts = (one for one in list_deliveries(agent, True, None, None, connection) if one.turn_id in turns)
    waiting = tuple(replace(one, content=Content()) for one in withheld(parts, "it was forgotten"))
    for part in waiting:
        save_delivery(agent, part, connection)
    blots = [(one, blotted(one, at)) for one in known]
    BLOT.run_many(connection, [(*later_values(after), agent, after.id.bytes) for _, after in blots])
    return Removed(
        receipts=tuple(after for before, after in blots if not before.outcome.is_final), deliveries=waiting
    )


def _remove(connection: Connection, agent: int, ids: set[bytes]) -> int:
    """Remove memories, and what was drawn from them, and from that; vectors go with them. Counts them."""
    count, keys = 0, list(ids)
    while keys:
        count += REMOVE.count(connection, agent, ids=keys)
        keys = [row[0] for row in DRAWN.rows(connection, agent, ids=keys)]
    return count
