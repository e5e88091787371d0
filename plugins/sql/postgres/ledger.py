"""The books on PostgreSQL: what stands on a message's road takes one round trip each.

Anything else, such as the first message of a new person, goes the way that both databases go.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from bot import Receipt
from bot.platform import Arrival, Cursor, Delivery
from bot.store import Commitment, LaneLost, Received, Step, first_claim
from plugins.sql.core.base import Owner
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.leases import Lanes, share
from plugins.sql.postgres.ledger_statements import Hold, commit_at_once, receive_at_once, save_part_at_once
from plugins.sql.stores import search
from plugins.sql.stores.ledger import SAVE_STEP, SqlLedger, step_values
from plugins.sql.stores.receipts import receive


class PostgresLedger(SqlLedger):
    """Keeps receipts, steps and deliveries; see `Ledger`.

    What is written of a room, on behalf of a message in it, is written only by who holds its lane.
    """

    def __init__(self, database: PostgresDatabase, owner: Owner, lanes: Lanes) -> None:
        super().__init__(database, owner)
        self._road, self._intake = database.road, database.intake
        self._lanes = lanes

    async def receive(
        self, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None = None
    ) -> list[Received]:
        received: list[Received] = []
        if len(arrivals) == 1 and arrivals[0].message.embedding is None and not arrivals[0].is_backfill:
            received += await self._receive_one(arrivals[0], at, cursor)
        if not received:
            work = partial(_receive, self._owner, self._lanes.worker, arrivals, at, cursor)
            received += await self._intake.whole(work)
        self._lanes.note(received)
        return received

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self.commit(Commitment(receipts=tuple(receipts)))

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        hold = await self._lanes.hold_for(commitment)
        has_vectors = any(one.embedding is not None for one in commitment.replies)
        run, carry_out = (
            (self._road.whole, _commit_with_vectors) if has_vectors else (self._road.once, commit_at_once)
        )
        with self._losing(hold):
            placed = await run(partial(carry_out, self._agent, hold, commitment))
        ours = [part for part in placed if self._lanes.holds(part.room_id)]
        if len(ours) < len(placed):
            self._lanes.ring()
        return ours

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        values = step_values(self._agent, step)
        if not receipts:
            await self._road.once(lambda db: SAVE_STEP.run(db, *values))
            return
        closing = Commitment(receipts=tuple(receipts))
        hold = await self._lanes.hold_for(closing)

        def save(connection: Connection) -> None:
            commit_at_once(self._agent, hold, closing, connection)
            SAVE_STEP.run(connection, *values)

        with self._losing(hold):
            await self._road.whole(save)

    async def save_delivery(self, delivery: Delivery) -> None:
        hold = self._lanes.hold_of(delivery.room_id)
        with self._losing(hold):
            is_known = await self._road.once(partial(save_part_at_once, self._agent, hold, delivery))
        if not is_known:
            await super().save_delivery(delivery)

    @contextmanager
    def _losing(self, hold: Hold) -> Iterator[None]:
        try:
            yield
        except LaneLost:
            self._lanes.drop(hold.rooms)
            raise

    async def _receive_one(self, arrival: Arrival, at: datetime, cursor: Cursor | None) -> list[Received]:
        claim, own_id = first_claim(arrival, at), self._owner.id
        found = await self._intake.once(
            partial(receive_at_once, self._agent, own_id, self._lanes.worker, arrival, claim, cursor)
        )
        return [found] if found is not None else []


def _receive(
    owner: Owner,
    worker: int | None,
    arrivals: Sequence[Arrival],
    at: datetime,
    cursor: Cursor | None,
    connection: Connection,
) -> list[Received]:
    received = receive(owner, arrivals, at, cursor, connection)
    return received if worker is None else share(connection, owner.number, worker, received)


def _commit_with_vectors(
    agent: int, hold: Hold, commitment: Commitment, connection: Connection
) -> list[Delivery]:
    placed = commit_at_once(agent, hold, commitment, connection)
    kept = [
        search.Kept(one.id, one.embedding, one.embedding_model)
        for one in commitment.replies
        if one.embedding is not None
    ]
    search.replace(connection, agent, kept)
    return placed
