"""Deliveries: their order within a room, and their states."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, literal_column, select, text, update
from sqlalchemy.sql.expression import Executable

from bot import Content
from bot.platform import Delivery, DeliveryState
from bot.store import Page
from plugins.sql.core.inserts import insert_into
from plugins.sql.core.schema import UNDECIDED, UNFINISHED, deliveries
from plugins.sql.core.statements import (
    Columns,
    Insert,
    ListStatement,
    Row,
    Statement,
    column_names,
    flag_equals,
    limit_parameter,
    matches,
    position_key,
    take_page,
    typed_parameter,
)
from plugins.sql.core.values import (
    content_of,
    content_text,
    datetime_of,
    datetime_or_none,
    id_of,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)

REFERENCE_KEYS = ("edits", "draft")
OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
DELIVERY_NAMES = tuple(name for name in column_names(deliveries) if name != "seq")
DELIVERY_STATE_NAMES = DELIVERY_NAMES[DELIVERY_NAMES.index("state") :]


def _read_delivery(row: Row) -> Delivery:
    delivery_id, turn_id, room_id, memory_id, platform, account, target, part, content, created_at, *rest = row
    state, attempts, first_attempt_at, external_id, reply_to, cause, seq = rest
    stored, replaces_external_id, draft_id = _split_references(content_of(content))
    return Delivery(
        id=delivery_id,
        turn_id=id_of(turn_id),
        room_id=id_of(room_id),
        memory_id=id_of(memory_id),
        platform=platform,
        account=account,
        target=target,
        part=part,
        content=stored,
        created_at=datetime_of(created_at),
        seq=seq,
        state=DeliveryState(state),
        attempts=attempts,
        first_attempt_at=datetime_or_none(first_attempt_at),
        external_id=external_id,
        reply_to=reply_to,
        cause=cause,
        replaces_external_id=replaces_external_id,
        draft_id=draft_id,
    )


def _split_references(stored: Content) -> tuple[Content, str, str]:
    """Return a stored content without the references in its metadata, what it replaces, and its draft's id."""
    if not stored.metadata:
        return stored, "", ""
    metadata = dict(stored.metadata)
    replaces_external_id, draft_id = (str(metadata.pop(key, "")) for key in REFERENCE_KEYS)
    return replace(stored, metadata=metadata), replaces_external_id, draft_id


DELIVERY = Columns(deliveries, (*DELIVERY_NAMES[1:-1], "seq"), _read_delivery)
OF_AGENT = matches(deliveries, "agent_id")
IN_ROOM = matches(deliveries, "room_id")
OF_TURN = matches(deliveries, "turn_id")
IS_OPEN = flag_equals(deliveries.c.is_open)
BY_POSITION = deliveries.c.position


def _insert_delivery(insert: Insert) -> Executable:
    """Insert a delivery with the next sequence number of its room, unless it exists."""
    last = select(func.coalesce(func.max(deliveries.c.seq), 0) + 1).where(matches(deliveries, "agent_id", "room_id"))
    statement = insert_into(deliveries, DELIVERY_NAMES, seq=last.scalar_subquery())(insert)
    statement = statement.on_conflict_do_nothing(index_elements=["agent_id", "id"])
    return statement.returning(deliveries.c.seq)  # type: ignore[no-any-return]


INSERT_DELIVERY = Statement(_insert_delivery)
FIND_DELIVERIES = ListStatement(lambda ids: select(*DELIVERY).where(OF_AGENT, deliveries.c.id.in_(ids)))
UPDATE_DELIVERY = Statement(
    lambda _: (
        update(deliveries)
        .where(OF_AGENT, matches(deliveries, "id"))
        .values({name: typed_parameter(deliveries.c[name], name) for name in DELIVERY_STATE_NAMES})
    )
)
HELD_DELIVERIES = Statement(
    lambda _: (
        select(*DELIVERY)
        .where(OF_AGENT, text(UNFINISHED), deliveries.c.state == literal_column(f"'{DeliveryState.UNKNOWN}'"))
        .order_by(BY_POSITION)
    )
)
ALL_DELIVERIES = Statement(lambda _: select(*DELIVERY).where(OF_AGENT).order_by(BY_POSITION))
OPEN_DELIVERIES = Statement(lambda _: select(*DELIVERY).where(OF_AGENT, IS_OPEN).order_by(BY_POSITION))
DELIVERIES_OF_ROOM = Statement(lambda _: select(*DELIVERY).where(OF_AGENT, IN_ROOM).order_by(deliveries.c.seq))
DELIVERIES_OF_TURN = Statement(lambda _: select(*DELIVERY).where(OF_AGENT, OF_TURN).order_by(BY_POSITION))


def insert_deliveries(connection: Connection, agent: int, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Insert deliveries unless they exist; return them as they are stored."""
    if not deliveries:
        return []
    inserted = [
        (delivery, INSERT_DELIVERY.first(connection, *delivery_values(agent, delivery))) for delivery in deliveries
    ]
    existing = find_deliveries(connection, agent, [delivery.id for delivery, row in inserted if row is None])
    existing_by_id = {delivery.id: delivery for delivery in existing}
    return [replace(delivery, seq=row[0]) if row else existing_by_id[delivery.id] for delivery, row in inserted]


def find_deliveries(connection: Connection, agent: int, ids: Sequence[str]) -> list[Delivery]:
    """Return deliveries by id, in that order."""
    by_id = {delivery.id: delivery for delivery in DELIVERY.read_all(FIND_DELIVERIES.rows(connection, agent, ids=ids))}
    return [by_id[delivery_id] for delivery_id in ids if delivery_id in by_id]


def save_delivery(agent: int, delivery: Delivery, connection: Connection) -> None:
    """Store a delivery's new state; insert the delivery if it is missing."""
    if not UPDATE_DELIVERY.run(connection, *_state_values(delivery), agent, delivery.id):
        INSERT_DELIVERY.rows(connection, *delivery_values(agent, delivery))


def list_deliveries(
    agent: int, is_open: bool | None, room_id: UUID | None, turn_id: UUID | None, connection: Connection
) -> list[Delivery]:
    """Return matching deliveries in the order in which they are sent."""
    if turn_id is not None:
        rows = DELIVERIES_OF_TURN.rows(connection, agent, turn_id.bytes)
    elif is_open:
        rows = OPEN_DELIVERIES.rows(connection, agent)
    elif room_id is not None:
        rows = DELIVERIES_OF_ROOM.rows(connection, agent, room_id.bytes)
    else:
        rows = ALL_DELIVERIES.rows(connection, agent)
    return [
        delivery
        for delivery in DELIVERY.read_all(rows)
        if is_open in (None, delivery.state in OPEN_STATES) and room_id in (None, delivery.room_id)
    ]


def list_unsent(agent: int, connection: Connection) -> list[Delivery]:
    """Return what is open or held in all rooms together, which is little."""
    held = list(DELIVERY.read_all(HELD_DELIVERIES.rows(connection, agent)))
    return [*list_deliveries(agent, True, None, None, connection), *held]


def delivery_values(agent: int, delivery: Delivery) -> Row:
    """Return the column values of a delivery."""
    return (
        agent,
        delivery.id,
        delivery.turn_id.bytes,
        delivery.room_id.bytes,
        delivery.memory_id.bytes,
        storable_text(delivery.platform),
        storable_text(delivery.account),
        storable_text(delivery.target),
        delivery.part,
        content_text(_content_with_references(delivery)),
        microseconds_of(delivery.created_at),
        *_state_values(delivery),
    )


def _content_with_references(delivery: Delivery) -> Content:
    """Return the content as it is stored: references to other messages are part of its metadata."""
    values = (delivery.replaces_external_id, delivery.draft_id)
    references = {key: value for key, value in zip(REFERENCE_KEYS, values, strict=True) if value}
    content = delivery.content
    return replace(content, metadata={**content.metadata, **references}) if references else content


def _state_values(delivery: Delivery) -> Row:
    """Return the column values of a delivery that may change."""
    return (
        delivery.state.value,
        delivery.attempts,
        microseconds_or_none(delivery.first_attempt_at),
        storable_text(delivery.external_id),
        storable_text(delivery.reply_to),
        storable_text(delivery.cause),
        int(delivery.state in OPEN_STATES),
    )


def _deliveries_query(*conditions: Any) -> Statement:
    return Statement(
        lambda _: (
            select(deliveries.c.position, *DELIVERY)
            .where(
                matches(deliveries, "agent_id"),
                *conditions,
                deliveries.c.position < typed_parameter(deliveries.c.position, "before"),
            )
            .order_by(deliveries.c.position.desc())
            .limit(limit_parameter())
        )
    )


LIST_UNDELIVERED = _deliveries_query(text(UNFINISHED))
LIST_OPEN = _deliveries_query(flag_equals(deliveries.c.is_open))
LIST_UNDECIDED: dict[tuple[DeliveryState, ...], Statement] = {
    (state,): _deliveries_query(text(f"state = '{state}'")) for state in (DeliveryState.UNKNOWN, DeliveryState.FAILED)
}
COUNT_UNDECIDED = Statement(
    lambda _: (
        select(deliveries.c.state, func.count())
        .where(
            matches(deliveries, "agent_id"),
            text(f"({UNDECIDED})"),
            deliveries.c.cause != typed_parameter(deliveries.c.cause, "cause"),
        )
        .group_by(deliveries.c.state)
    )
)
COUNT_OPEN = Statement(
    lambda _: select(deliveries.c.state).where(matches(deliveries, "agent_id"), flag_equals(deliveries.c.is_open))
)


def list_undelivered(
    agent: int, states: frozenset[DeliveryState], before: int, limit: int, connection: Connection
) -> Page[Delivery]:
    """Return undelivered parts in some states before a position, the latest first."""
    is_open = states <= frozenset(OPEN_STATES)
    statement = LIST_OPEN if is_open else LIST_UNDECIDED.get(tuple(states), LIST_UNDELIVERED)
    state = 1 + DELIVERY.names.index("state")
    rows, following = take_page(
        lambda position, count: statement.rows(connection, agent, position, count),
        lambda rows: [row[state] in states for row in rows],
        before,
        limit,
    )
    items = (((int(row[0]),), delivery) for row in rows if (delivery := DELIVERY.read_or_report(row[1:])) is not None)
    return Page(tuple(items), position_key(following))


def count_undelivered(agent: int, without_cause: str, connection: Connection) -> Mapping[DeliveryState, int]:
    """Return the number of undelivered parts by state; those with a cause can be left out."""
    counts = dict.fromkeys((*OPEN_STATES, DeliveryState.UNKNOWN, DeliveryState.FAILED), 0)
    for state, count in COUNT_UNDECIDED.rows(connection, agent, without_cause or "\uffff"):
        counts[DeliveryState(state)] = int(count)
    for [state] in COUNT_OPEN.rows(connection, agent):
        counts[DeliveryState(state)] += 1
    return counts
