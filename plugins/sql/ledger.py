"""The books in SQL: receipts, steps and deliveries."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, select

from bot import (
    Arrival,
    Commitment,
    Cursor,
    Delivery,
    DeliveryState,
    Health,
    Receipt,
    Received,
    Step,
    StepState,
)
from plugins.sql.cursors import find_cursor
from plugins.sql.deliveries import find_deliveries, list_deliveries, place, save_delivery
from plugins.sql.enquiries import SqlEnquiries
from plugins.sql.memories import put_memories
from plugins.sql.receipts import (
    MARK_LEARNT,
    UNLEARNT,
    find_arrival,
    find_receipt,
    list_receipts,
    receipt_of,
    receive,
    save_receipts,
)
from plugins.sql.schema import steps
from plugins.sql.statements import Row, Statement, same, upsert
from plugins.sql.values import dumps, id_of, loads, moment_of_or_none, moment_or_none, words

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
        words(step.key),
        words(step.kind),
        step.state.value,
        words(step.effect),
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
