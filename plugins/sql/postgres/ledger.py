"""The ledger on PostgreSQL: each write of the message pipeline takes one round trip.

Other writes, such as the first message of a new person, use the code for both databases.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from bot import Receipt
from bot.platform import Delivery, InboundMessage, StreamCursor
from bot.store import LeaseLost, Step, StoredEvent, TurnCommit, new_receipt
from plugins.sql.core.base import AgentRow
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.leases import RoomLeases, assign_rooms
from plugins.sql.postgres.ledger_statements import (
    LeaseClaim,
    commit_in_single_statement,
    receive_in_single_statement,
    save_delivery_in_single_statement,
)
from plugins.sql.stores import search
from plugins.sql.stores.ledger import SAVE_STEP, SqlLedger, step_values
from plugins.sql.stores.receiving import receive


class PostgresLedger(SqlLedger):
    """Stores receipts, steps and deliveries; see `Ledger`.

    Only the process that has the lease of a room writes on behalf of its messages.
    """

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow, leases: RoomLeases) -> None:
        super().__init__(database, agent_row)
        self._main_queries, self._inbox_queries = database.main_queries, database.inbox_queries
        self._leases = leases

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        received: list[StoredEvent] = []
        if len(messages) == 1 and messages[0].message.embedding is None and not messages[0].is_backfill:
            received += await self._receive_single(messages[0], now, cursor)
        if not received:
            work = partial(_receive_in_transaction, self._agent_row, self._leases.worker, messages, now, cursor)
            received += await self._inbox_queries.run_in_transaction(work)
        self._leases.note_received(received)
        return received

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self.commit(TurnCommit(receipts=tuple(receipts)))

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        claim = await self._leases.claim_for_commit(turn_commit)
        has_vectors = any(reply.embedding is not None for reply in turn_commit.replies)
        run, execute = (
            (self._main_queries.run_in_transaction, _commit_with_vectors)
            if has_vectors
            else (self._main_queries.run, commit_in_single_statement)
        )
        with self._drop_lost_rooms(claim):
            stored = await run(partial(execute, self._agent, claim, turn_commit))
        self._leases.note_committed(turn_commit, stored)
        return [delivery for delivery in stored if self._leases.holds(delivery.room_id)]

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        values = step_values(self._agent, step)
        if not receipts:
            await self._main_queries.run(lambda db: SAVE_STEP.run(db, *values))
            return
        turn_commit = TurnCommit(receipts=tuple(receipts))
        claim = await self._leases.claim_for_commit(turn_commit)

        def save(connection: Connection) -> None:
            commit_in_single_statement(self._agent, claim, turn_commit, connection)
            SAVE_STEP.run(connection, *values)

        with self._drop_lost_rooms(claim):
            await self._main_queries.run_in_transaction(save)

    async def save_delivery(self, delivery: Delivery) -> None:
        claim = self._leases.claim_for_room(delivery.room_id)
        with self._drop_lost_rooms(claim):
            is_stored = await self._main_queries.run(
                partial(save_delivery_in_single_statement, self._agent, claim, delivery)
            )
        if not is_stored:
            await super().save_delivery(delivery)

    @contextmanager
    def _drop_lost_rooms(self, claim: LeaseClaim) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self._leases.remove(claim.rooms)
            raise

    async def _receive_single(
        self, inbound: InboundMessage, now: datetime, cursor: StreamCursor | None
    ) -> list[StoredEvent]:
        receipt, agent_id = new_receipt(inbound, now), self._agent_row.id
        event = await self._inbox_queries.run(
            partial(receive_in_single_statement, self._agent, agent_id, self._leases.worker, inbound, receipt, cursor)
        )
        return [event] if event is not None else []


def _receive_in_transaction(
    agent_row: AgentRow,
    worker: int | None,
    inbound_messages: Sequence[InboundMessage],
    now: datetime,
    cursor: StreamCursor | None,
    connection: Connection,
) -> list[StoredEvent]:
    received = receive(agent_row, inbound_messages, now, cursor, connection)
    return received if worker is None else assign_rooms(connection, agent_row.number, worker, received)


def _commit_with_vectors(
    agent: int, claim: LeaseClaim, turn_commit: TurnCommit, connection: Connection
) -> list[Delivery]:
    stored = commit_in_single_statement(agent, claim, turn_commit, connection)
    search.replace_embeddings(connection, agent, search.vectors_of(turn_commit.replies))
    return stored
