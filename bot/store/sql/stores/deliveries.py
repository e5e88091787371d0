"""Deliveries: their order within a room, and their states."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, func, select, text, update
from sqlalchemy.sql.expression import Executable

from bot.domain.content import Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.store.lists import Page
from bot.store.sql.core.mapping import (
    InsertStatement,
    RowMapping,
    is_flag,
    items_parameter,
    limit_parameter,
    matches,
    parameter,
    position_key,
    rows_of,
    take_page,
    text_literal,
)
from bot.store.sql.core.schema import UNDECIDED, UNFINISHED, deliveries

REFERENCE_KEYS = ("edits", "draft")
OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


def _build_delivery(*, content: Content, **values: Any) -> Delivery:
    """Return a delivery of whose stored content the metadata may name the message that it edits, and its draft."""
    if not content.metadata:
        return Delivery(content=content, **values)
    metadata = dict(content.metadata)
    replaces_external_id, draft_id = (str(metadata.pop(key, "")) for key in REFERENCE_KEYS)
    content = replace(content, metadata=metadata)
    return Delivery(content=content, replaces_external_id=replaces_external_id, draft_id=draft_id, **values)


def _derive_columns(delivery: Delivery) -> dict[str, Any]:
    derived: dict[str, Any] = {"is_open": delivery.state in OPEN_STATES}
    values = (delivery.replaces_external_id, delivery.draft_id)
    if references := {key: value for key, value in zip(REFERENCE_KEYS, values, strict=True) if value}:
        derived["content"] = replace(delivery.content, metadata={**delivery.content.metadata, **references})
    return derived


DELIVERY = RowMapping(deliveries, Delivery, build=_build_delivery, derive=_derive_columns, unread=["is_open"])
INSERTED_NAMES = tuple(name for name in DELIVERY.stored_names if name != "seq")
STATE_NAMES = INSERTED_NAMES[INSERTED_NAMES.index("state") :]
BY_POSITION = deliveries.c.position


def _insert_if_new(insert: Any) -> Executable:
    statement = insert.on_conflict_do_nothing(index_elements=["agent_id", "id"])
    return statement.returning(deliveries.c.seq)  # type: ignore[no-any-return]


NEXT_NUMBER = select(func.coalesce(func.max(deliveries.c.seq), 0) + 1).where(
    deliveries.c.agent_id == bindparam("agent_id"), deliveries.c.room_id == parameter(deliveries.c.room_id, "room_id")
)
INSERT_DELIVERY = InsertStatement(deliveries, INSERTED_NAMES, _insert_if_new, seq=NEXT_NUMBER.scalar_subquery())
FIND_DELIVERIES = select(*DELIVERY).where(matches(deliveries), deliveries.c.id.in_(items_parameter(deliveries.c.id)))
UPDATE_DELIVERY = (
    update(deliveries)
    .where(matches(deliveries, "id"))
    .values({name: parameter(deliveries.c[name], name) for name in STATE_NAMES})
)
ALL_DELIVERIES = select(*DELIVERY).where(matches(deliveries)).order_by(BY_POSITION)
HELD_DELIVERIES = ALL_DELIVERIES.where(text(UNFINISHED), deliveries.c.state == text_literal(DeliveryState.UNKNOWN))
OPEN_DELIVERIES = ALL_DELIVERIES.where(is_flag(deliveries.c.is_open))
DELIVERIES_OF_ROOM = select(*DELIVERY).where(matches(deliveries, "room_id")).order_by(deliveries.c.seq)
DELIVERIES_OF_TURN = select(*DELIVERY).where(matches(deliveries, "turn_id")).order_by(BY_POSITION)


def insert_delivery(connection: Connection, agent: int, delivery: Delivery) -> int | None:
    """Insert a delivery with the next sequence number of its room; return that, None if the delivery exists."""
    values = DELIVERY.values(delivery, agent)
    del values["seq"]
    return INSERT_DELIVERY.execute(connection, values).scalar()


def insert_deliveries(connection: Connection, agent: int, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Insert deliveries unless they exist; return them as they are stored."""
    numbers = {delivery.id: insert_delivery(connection, agent, delivery) for delivery in deliveries}
    known_ids = [delivery_id for delivery_id, number in numbers.items() if number is None]
    existing = find_deliveries(connection, agent, known_ids) if known_ids else []
    existing_by_id = {delivery.id: delivery for delivery in existing}
    return [
        existing_by_id[delivery.id] if (number := numbers[delivery.id]) is None else replace(delivery, seq=number)
        for delivery in deliveries
    ]


def find_deliveries(connection: Connection, agent: int, ids: Iterable[str]) -> list[Delivery]:
    """Return deliveries by id, in that order."""
    ids = list(ids)
    found = DELIVERY.read_all(rows_of(connection, FIND_DELIVERIES, ids, agent=agent))
    by_id = {delivery.id: delivery for delivery in found}
    return [by_id[delivery_id] for delivery_id in ids if delivery_id in by_id]


def save_delivery(agent: int, delivery: Delivery, connection: Connection) -> None:
    """Store a delivery's new state; insert the delivery if it is missing."""
    values = DELIVERY.values(delivery, agent)
    state = {"agent": agent, "id_": delivery.id, **{name: values[name] for name in STATE_NAMES}}
    if not connection.execute(UPDATE_DELIVERY, state).rowcount:
        insert_delivery(connection, agent, delivery)


def list_deliveries(
    agent: int, is_open: bool | None, room_id: UUID | None, turn_id: UUID | None, connection: Connection
) -> list[Delivery]:
    """Return matching deliveries in the order in which they are sent."""
    if turn_id is not None:
        rows = connection.execute(DELIVERIES_OF_TURN, {"agent": agent, "turn_id_": turn_id})
    elif is_open:
        rows = connection.execute(OPEN_DELIVERIES, {"agent": agent})
    elif room_id is not None:
        rows = connection.execute(DELIVERIES_OF_ROOM, {"agent": agent, "room_id_": room_id})
    else:
        rows = connection.execute(ALL_DELIVERIES, {"agent": agent})
    return [
        delivery
        for delivery in DELIVERY.read_all(rows)
        if is_open in (None, delivery.state in OPEN_STATES) and room_id in (None, delivery.room_id)
    ]


def list_unsent(agent: int, connection: Connection) -> list[Delivery]:
    """Return what is open or held in all rooms together, which is little."""
    held = list(DELIVERY.read_all(connection.execute(HELD_DELIVERIES, {"agent": agent})))
    return [*list_deliveries(agent, True, None, None, connection), *held]


def _list_query(*conditions: Any) -> Select[Any]:
    return (
        select(*DELIVERY, BY_POSITION)
        .where(matches(deliveries), *conditions, parameter(BY_POSITION, "before") > BY_POSITION)
        .order_by(BY_POSITION.desc())
        .limit(limit_parameter())
    )


LIST_UNDELIVERED = _list_query(text(UNFINISHED))
LIST_OPEN = _list_query(is_flag(deliveries.c.is_open))
LIST_UNDECIDED: dict[tuple[DeliveryState, ...], Select[Any]] = {
    (state,): _list_query(text(f"state = '{state}'")) for state in (DeliveryState.UNKNOWN, DeliveryState.FAILED)
}
COUNT_UNDECIDED = (
    select(deliveries.c.state, func.count())
    .where(matches(deliveries), text(f"({UNDECIDED})"), deliveries.c.cause != parameter(deliveries.c.cause, "cause"))
    .group_by(deliveries.c.state)
)
COUNT_OPEN = select(deliveries.c.state).where(matches(deliveries), is_flag(deliveries.c.is_open))


def list_undelivered(
    agent: int, states: frozenset[DeliveryState], before: int, limit: int, connection: Connection
) -> Page[Delivery]:
    """Return undelivered parts in some states before a position, the latest first."""
    is_open = states <= frozenset(OPEN_STATES)
    statement = LIST_OPEN if is_open else LIST_UNDECIDED.get(tuple(states), LIST_UNDELIVERED)
    state = DELIVERY.names.index("state")
    rows, following = take_page(
        lambda position, count: connection.execute(
            statement, {"agent": agent, "before": position, "limit": count}
        ).all(),
        lambda rows: [row[state] in states for row in rows],
        before,
        limit,
    )
    items = (((int(row[-1]),), delivery) for row in rows if (delivery := DELIVERY.read_or_report(row)) is not None)
    return Page(tuple(items), position_key(following))


def count_undelivered(agent: int, without_cause: str, connection: Connection) -> Mapping[DeliveryState, int]:
    """Return the number of undelivered parts by state; those with a cause can be left out."""
    counts = dict.fromkeys((*OPEN_STATES, DeliveryState.UNKNOWN, DeliveryState.FAILED), 0)
    for state, count in connection.execute(COUNT_UNDECIDED, {"agent": agent, "cause": without_cause or "\uffff"}):
        counts[state] = int(count)
    for state in connection.execute(COUNT_OPEN, {"agent": agent}).scalars():
        counts[state] += 1
    return counts
