"""The books in SQL: receipts, steps and deliveries."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, select

from bot import Arrival, Commitment, Delivery, Receipt, Step, StepState
from plugins.sql.book import Book
from plugins.sql.deliveries import list_deliveries, place, save_delivery
from plugins.sql.memories import put_memories
from plugins.sql.receipts import find_arrival, find_receipt, list_receipts, receive, save_receipts
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
    put_memories(connection, agent, commitment.replies)
    placed = place(connection, agent, commitment.deliveries)
    save_receipts(connection, agent, commitment.receipts)
    return placed


def _step_values(agent: int, step: Step) -> Row:
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


class SqlLedger(Book):
    """Keeps receipts, steps and deliveries; see `Ledger`."""

    async def receive(self, arrivals: Sequence[Arrival], at: datetime) -> list[tuple[Receipt, bool]]:
        return await self._database.write(partial(receive, self._agent, arrivals, at))

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

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        return await self._database.write(partial(_commit, self._agent, commitment))

    async def save_step(self, step: Step) -> None:
        values = _step_values(self._agent, step)
        await self._database.write(lambda db: SAVE_STEP.run(db, *values))

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        rows = await self._database.read(lambda db: STEPS.rows(db, self._agent, turn_id.bytes))
        return {step.key: step for step in map(_step_of, rows)}

    async def save_delivery(self, delivery: Delivery) -> None:
        await self._database.write(partial(save_delivery, self._agent, delivery))

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return await self._database.read(partial(list_deliveries, self._agent, is_open, room_id, turn_id))
