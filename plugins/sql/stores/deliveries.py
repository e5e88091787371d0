"""What goes out, in SQL: parts in the order of their room, and their states."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection, func, select, update
from sqlalchemy.sql.expression import Executable

from bot.platform import Delivery, DeliveryState
from plugins.sql.core.schema import deliveries
from plugins.sql.core.statements import Insert, Listing, Row, Statement, flag, insert_into, same, value
from plugins.sql.core.values import (
    content_of,
    content_text,
    id_of,
    moment,
    moment_of,
    moment_of_or_none,
    moment_or_none,
    storable_text,
)

OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
NAMES = (
    "agent_id",
    "id",
    "turn_id",
    "room_id",
    "memory_id",
    "platform",
    "account",
    "target",
    "part",
    "content",
    "created_at",
    "reply_to",
    "state",
    "attempts",
    "first_attempt_at",
    "external_id",
    "cause",
    "is_open",
)
LATER_NAMES = NAMES[11:]
DELIVERY = (*(deliveries.c[name] for name in NAMES[1:-1]), deliveries.c.seq)
OF_AGENT = same(deliveries.c.agent_id, "agent")
IN_ROOM = same(deliveries.c.room_id, "room")
OF_TURN = same(deliveries.c.turn_id, "turn")
IS_OPEN = flag(deliveries.c.is_open)
IN_ORDER = deliveries.c.position


def _place(insert: Insert) -> Executable:
    """Give a part the next place in its room; one that is there already stays as it is."""
    last = select(func.coalesce(func.max(deliveries.c.seq), 0) + 1).where(
        same(deliveries.c.agent_id, "agent_id"), same(deliveries.c.room_id, "room_id")
    )
    statement = insert_into(deliveries, NAMES, seq=last.scalar_subquery())(insert)
    statement = statement.on_conflict_do_nothing(index_elements=["agent_id", "id"])
    return statement.returning(deliveries.c.seq)  # type: ignore[no-any-return]


PLACE = Statement(_place, *NAMES)
FIND = Listing(lambda ids: select(*DELIVERY).where(OF_AGENT, deliveries.c.id.in_(ids)), "agent")
SAVE = Statement(
    lambda _: (
        update(deliveries)
        .where(OF_AGENT, same(deliveries.c.id, "of_id"))
        .values({name: value(deliveries.c[name], name) for name in LATER_NAMES})
    ),
    *LATER_NAMES,
    "agent",
    "of_id",
)
ALL = Statement(lambda _: select(*DELIVERY).where(OF_AGENT).order_by(IN_ORDER), "agent")
ALL_OPEN = Statement(lambda _: select(*DELIVERY).where(OF_AGENT, IS_OPEN).order_by(IN_ORDER), "agent")
OF_ONE_ROOM = Statement(
    lambda _: select(*DELIVERY).where(OF_AGENT, IN_ROOM).order_by(deliveries.c.seq), "agent", "room"
)
OF_ONE_TURN = Statement(
    lambda _: select(*DELIVERY).where(OF_AGENT, OF_TURN).order_by(IN_ORDER), "agent", "turn"
)


def place(connection: Connection, agent: int, parts: Sequence[Delivery]) -> list[Delivery]:
    """Put parts into the outbox; they come back as they stand there."""
    if not parts:
        return []
    placed = [(part, PLACE.first(connection, *part_values(agent, part))) for part in parts]
    known = find_deliveries(connection, agent, [part.id for part, row in placed if row is None])
    before = {part.id: part for part in known}
    return [replace(part, seq=row[0]) if row else before[part.id] for part, row in placed]


def find_deliveries(connection: Connection, agent: int, ids: Sequence[str]) -> list[Delivery]:
    """Find parts by id, in that order."""
    found = {one.id: one for one in map(delivery_of, FIND.rows(connection, agent, ids=ids))}
    return [found[one] for one in ids if one in found]


def save_delivery(agent: int, part: Delivery, connection: Connection) -> None:
    """Write a part's new state; one that is not in the outbox yet is put there."""
    if not SAVE.run(connection, *_later_values(part), agent, part.id):
        PLACE.rows(connection, *part_values(agent, part))


def list_deliveries(
    agent: int, is_open: bool | None, room_id: UUID | None, turn_id: UUID | None, connection: Connection
) -> list[Delivery]:
    """List parts that match, in the order in which they leave."""
    if turn_id is not None:
        rows = OF_ONE_TURN.rows(connection, agent, turn_id.bytes)
    elif is_open:
        rows = ALL_OPEN.rows(connection, agent)
    elif room_id is not None:
        rows = OF_ONE_ROOM.rows(connection, agent, room_id.bytes)
    else:
        rows = ALL.rows(connection, agent)
    return [
        part
        for part in map(delivery_of, rows)
        if is_open in (None, part.state in OPEN_STATES) and room_id in (None, part.room_id)
    ]


def delivery_of(row: Row) -> Delivery:
    """Read a part from its columns."""
    (part_id, turn_id, room_id, memory_id, platform, account, target, part, content) = row[:9]
    (created_at, reply_to, state, attempts, first_attempt_at, external_id, cause, seq) = row[9:]
    return Delivery(
        id=part_id,
        turn_id=id_of(turn_id),
        room_id=id_of(room_id),
        memory_id=id_of(memory_id),
        platform=platform,
        account=account,
        target=target,
        part=part,
        content=content_of(content),
        created_at=moment_of(created_at),
        seq=seq,
        state=DeliveryState(state),
        attempts=attempts,
        first_attempt_at=moment_of_or_none(first_attempt_at),
        external_id=external_id,
        reply_to=reply_to,
        cause=cause,
    )


def part_values(agent: int, part: Delivery) -> Row:
    """Write a part."""
    return (
        agent,
        part.id,
        part.turn_id.bytes,
        part.room_id.bytes,
        part.memory_id.bytes,
        storable_text(part.platform),
        storable_text(part.account),
        storable_text(part.target),
        part.part,
        content_text(part.content),
        moment(part.created_at),
        *_later_values(part),
    )


def _later_values(part: Delivery) -> Row:
    """Write what of a part may change."""
    return (
        storable_text(part.reply_to),
        part.state.value,
        part.attempts,
        moment_or_none(part.first_attempt_at),
        storable_text(part.external_id),
        storable_text(part.cause),
        int(part.state in OPEN_STATES),
    )
