"""Ledger façade, steps, operator queries."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, literal_column, select, text

from bot import Receipt
from bot.platform import Arrival, Cursor, Delivery, DeliveryState
from bot.store import Commitment, Health, Received, Step, StepState
from plugins.sql.core.base import Book
from plugins.sql.core.schema import UNFINISHED, deliveries, receipts, rooms, steps
from plugins.sql.core.statements import Listing, Row, Statement, limit, same, upsert
from plugins.sql.core.values import dumps, id_of, loads, moment_of_or_none, moment_or_none, storable_text
from plugins.sql.stores.deliveries import (
    DELIVERY,
    FIND,
    delivery_of,
    find_deliveries,
    list_deliveries,
    place,
    save_delivery,
)
from plugins.sql.stores.memories import put_memories
from plugins.sql.stores.receipts import (
    MARK_LEARNT,
    RECEIPT,
    UNLEARNT,
    find_arrival,
    find_cursor,
    find_receipt,
    list_receipts,
    receipt_of,
    receive,
    save_receipts,
)

# Room by room, so that it is an index that finds them.
CALLED = Statement(
    lambda _: select(*RECEIPT, receipts.c.position).where(
        same(receipts.c.agent_id, "agent"),
        receipts.c.room_id.in_(select(rooms.c.id).where(same(rooms.c.agent_id, "of_agent"))),
        same(receipts.c.message_id, "message"),
    ),
    "agent",
    "of_agent",
    "message",
)
# Room by room likewise: each is one step to the end of an index.
LAST_SEEN = Listing(
    lambda ids: select(
        rooms.c.id,
        select(receipts.c.message_id)
        .where(
            receipts.c.agent_id == rooms.c.agent_id,
            receipts.c.room_id == rooms.c.id,
            receipts.c.revision == literal_column("0"),
        )
        .order_by(receipts.c.position.desc())
        .limit(literal_column("1"))
        .correlate(rooms)
        .scalar_subquery(),
    ).where(same(rooms.c.agent_id, "agent"), rooms.c.id.in_(ids)),
    "agent",
)
UNSENT = Statement(
    lambda _: (
        select(*DELIVERY)
        .where(same(deliveries.c.agent_id, "agent"), text(UNFINISHED))
        .order_by(deliveries.c.position.desc())
        .limit(limit())
    ),
    "agent",
    "limit",
)


def _called(agent: int, message_id: str, connection: Connection) -> list[Receipt]:
    rows = CALLED.rows(connection, agent, agent, storable_text(message_id))
    newest_first = sorted(rows, key=lambda row: int(row[-1]), reverse=True)
    return [receipt_of(row[:-1]) for row in newest_first]


def _last_seen(agent: int, room_ids: Collection[UUID], connection: Connection) -> dict[UUID, str]:
    rows = LAST_SEEN.rows(connection, agent, ids=[one.bytes for one in room_ids])
    return {id_of(room_id): message_id for room_id, message_id in rows if message_id is not None}


def _delivery(agent: int, delivery_id: str, connection: Connection) -> Delivery | None:
    rows = FIND.rows(connection, agent, ids=[storable_text(delivery_id)])
    return delivery_of(rows[0]) if rows else None


def _unsent(agent: int, most: int, connection: Connection) -> list[Delivery]:
    return [delivery_of(row) for row in reversed(UNSENT.rows(connection, agent, most))]


class SqlEnquiries(Book):
    """Answers people; see `EnquiryStore`."""

    async def called(self, message_id: str) -> list[Receipt]:
        return await self._database.search(partial(_called, self._agent, message_id))

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        return await self._database.search(partial(_last_seen, self._agent, room_ids))

    async def delivery(self, delivery_id: str) -> Delivery | None:
        return await self._database.read(partial(_delivery, self._agent, delivery_id))

    async def unsent(self, limit: int = 100) -> list[Delivery]:
        return await self._database.search(partial(_unsent, self._agent, limit))


STEP_NAMES = ("agent_id", "turn_id", "key", "kind", "state", "effect", "result", "at")
STEP = tuple(steps.c[name] for name in STEP_NAMES[1:])

SAVE_STEP = upsert(steps, ("agent_id", "turn_id", "key"), STEP_NAMES)
STEPS = Statement(
    lambda _: select(*STEP).where(same(steps.c.agent_id, "agent"), same(steps.c.turn_id, "turn")),
    "agent",
    "turn",
)


def _commit(agent: int, commitment: Commitment, connection: Connection) -> list[Delivery]:
    if commitment.receipts and not save_receipts(connection, agent, commitment.receipts):
        return find_deliveries(connection, agent, [part.id for part in commitment.deliveries])
    put_memories(connection, agent, commitment.replies)
    return place(connection, agent, commitment.deliveries)


def _save_step(agent: int, step: Step, receipts: Sequence[Receipt], connection: Connection) -> None:
    SAVE_STEP.run(connection, *step_values(agent, step))
    save_receipts(connection, agent, receipts)


def step_values(agent: int, step: Step) -> Row:
    """Write a step."""
    return (
        agent,
        step.turn_id.bytes,
        storable_text(step.key),
        storable_text(step.kind),
        step.state.value,
        storable_text(step.effect),
        dumps(step.result),
        moment_or_none(step.at),
    )


def _step_of(row: Row) -> Step:
    turn_id, key, kind, state, effect, result, at = row
    return Step(id_of(turn_id), key, kind, StepState(state), effect, loads(result), moment_of_or_none(at))


class SqlLedger(SqlEnquiries):
    """Keeps receipts, steps and deliveries; see `Ledger`."""

    @property
    def health(self) -> Health:
        return self._database.health

    async def receive(
        self, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None = None
    ) -> list[Received]:
        return await self._database.write(partial(receive, self._owner, arrivals, at, cursor))

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        return await self._database.read(partial(find_cursor, self._agent, platform, account, name))

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self._database.write(lambda db: save_receipts(db, self._agent, receipts))

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return await self._database.read(partial(find_receipt, self._agent, receipt_id))

    async def arrival(self, receipt: Receipt) -> Arrival | None:
        return await self._database.read(partial(find_arrival, self._agent, receipt))

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        return await self._database.read(partial(list_receipts, self._agent, room_id, is_open, limit))

    async def unlearnt(self, limit: int = 1000) -> list[Receipt]:
        rows = await self._database.read(lambda db: UNLEARNT.rows(db, self._agent, limit))
        return [receipt_of(row) for row in rows]

    async def mark_learnt(self, receipt_ids: Sequence[UUID]) -> None:
        ids = [one.bytes for one in receipt_ids]
        await self._database.write(lambda db: MARK_LEARNT.count(db, self._agent, ids=ids), lasting=False)

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        return await self._database.write(partial(_commit, self._agent, commitment))

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        is_lasting = step.kind != "model"  # an answer that a power cut takes is asked for again
        await self._database.write(partial(_save_step, self._agent, step, receipts), lasting=is_lasting)

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        rows = await self._database.read(lambda db: STEPS.rows(db, self._agent, turn_id.bytes))
        return {step.key: step for step in map(_step_of, rows)}

    async def save_delivery(self, delivery: Delivery) -> None:
        is_lasting = delivery.state is not DeliveryState.SENT  # lasting with the next write or checkpoint
        await self._database.write(partial(save_delivery, self._agent, delivery), lasting=is_lasting)

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return await self._database.read(partial(list_deliveries, self._agent, is_open, room_id, turn_id))
