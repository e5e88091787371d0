"""The ledger on PostgreSQL: each write of the message pipeline takes one round trip.

Other writes, such as the first message of a new person, use the code for both databases.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor, new_receipt
from bot.domain.ledger import Delivery, Receipt, Step
from bot.domain.proposal import Proposal
from bot.errors import LeaseLost, StoreUnavailable
from bot.store.ledger import TurnCommit
from bot.store.sql.core.base import AgentRow, writes
from bot.store.sql.core.mapping import Row
from bot.store.sql.core.schema import steps
from bot.store.sql.postgres.database import PostgresDatabase
from bot.store.sql.postgres.leases import RoomLeases, assign_rooms
from bot.store.sql.postgres.ledger_statements import (
    COMMIT_TURN,
    RECEIVE,
    SAVE_DELIVERY,
    CallBatcher,
    LeaseClaim,
    RawStatement,
    assignments,
    column_list,
    commit_in_single_statement,
    commit_values,
    is_delivery_stored,
    read_committed,
    read_received,
    receive_values,
    save_delivery_values,
    values_row,
)
from bot.store.sql.stores import search
from bot.store.sql.stores.ledger import (
    STEP,
    Arrival,
    SqlLedger,
    count_referrals,
    receive,
    save_disclosures,
    save_proposal,
    save_steps,
)

SAVE_STEP = RawStatement(
    f"INSERT INTO steps ({column_list(STEP.stored_names)}) {values_row(steps, STEP.stored_names)} "
    f"ON CONFLICT (agent_id, turn_id, key) DO UPDATE SET {assignments(STEP.stored_names[3:], 'excluded')}"
)


class PostgresLedger(SqlLedger):
    """Stores receipts, steps and deliveries; see `Ledger`.

    Only the process that has the lease of a room writes on behalf of its messages.
    """

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow, leases: RoomLeases) -> None:
        super().__init__(database, agent_row)
        self._main_queries, self._inbox_queries = database.main_queries, database.inbox_queries
        self._leases = leases
        run, tasks = self._main_queries.run_on_driver, database.batches
        self._receives = CallBatcher(self._inbox_queries.run_on_driver, RECEIVE.fetch_each, tasks)
        self._commits = CallBatcher(run, COMMIT_TURN.fetch_each, tasks)
        self._delivery_saves = CallBatcher(run, SAVE_DELIVERY.fetch_each, tasks)
        self._step_saves = CallBatcher(run, self._save_steps, tasks)

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        try:
            received = await self._receive(messages, now, cursor)
        except StoreUnavailable:  # they may have been stored, without an answer
            self._leases.unsettle(message.room.id for message in messages)
            raise
        self._leases.note_received(received)
        return received

    async def _receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None
    ) -> list[StoredEvent]:
        received: list[StoredEvent] = []
        if len(messages) == 1 and messages[0].message.embedding is None and not messages[0].is_backfill:
            received += await self._receive_single(messages[0], now, cursor)
        if not received:
            worker = self._leases.receiver

            def receive_and_assign(connection: Connection) -> list[StoredEvent]:
                [events] = receive(connection, self._agent_row, [Arrival(messages, now, cursor)])
                return events if worker is None else assign_rooms(connection, self._agent, worker, events)

            received += await self._inbox_queries.run_in_transaction(receive_and_assign)
        return received

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self.commit(TurnCommit(receipts=tuple(receipts)))

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        claim = await self._leases.claim_for_commit(turn_commit)
        has_vectors = any(reply.embedding is not None for reply in turn_commit.replies)
        with self._drop_lost_rooms(claim):
            if has_vectors or turn_commit.disclosures or turn_commit.proposal is not None:
                stored = await self._commit_in_transaction(claim, turn_commit)
            else:
                rows = await self._commits.call(commit_values(self._agent, claim, turn_commit))
                stored = read_committed(turn_commit, rows)
        self._leases.note_committed(turn_commit, stored)
        return [delivery for delivery in stored if self._leases.sends_room(delivery.room_id)]

    @writes
    def _commit_in_transaction(
        self, connection: Connection, claim: LeaseClaim, turn_commit: TurnCommit
    ) -> list[Delivery]:
        stored = commit_in_single_statement(connection, self._agent, claim, turn_commit)
        search.store_embeddings(connection, self._agent, search.vectors_of(turn_commit.replies))
        count_referrals(connection, self._agent, turn_commit)
        save_disclosures(connection, self._agent, turn_commit.disclosures, stored)
        save_proposal(connection, self._agent, turn_commit)
        return stored

    async def close_command(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> list[Delivery]:
        stored = await super().close_command(receipt, deliveries, response)
        self._leases.note_committed(TurnCommit(receipts=(receipt,)), stored)
        return [delivery for delivery in stored if self._leases.sends_room(delivery.room_id)]

    async def decide_proposal(
        self, decided: Proposal, revision: int, turn_commit: TurnCommit | None = None, *, editor: str | None = None
    ) -> list[Delivery] | None:
        stored = await super().decide_proposal(decided, revision, turn_commit, editor=editor)
        if stored is None:
            return None
        self._leases.note_committed(TurnCommit(), stored)
        return [delivery for delivery in stored if self._leases.sends_room(delivery.room_id)]

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        if not receipts:
            await self._step_saves.call(STEP.encode(step, self._agent))
            return
        turn_commit = TurnCommit(receipts=tuple(receipts))
        claim = await self._leases.claim_for_commit(turn_commit)

        def save(connection: Connection) -> None:
            commit_in_single_statement(connection, self._agent, claim, turn_commit)
            save_steps(connection, self._agent, [step])

        with self._drop_lost_rooms(claim):
            await self._main_queries.run_in_transaction(save)

    async def save_delivery(self, delivery: Delivery) -> None:
        claim = self._leases.claim_for_room(delivery.room_id)
        with self._drop_lost_rooms(claim):
            rows = await self._delivery_saves.call(save_delivery_values(self._agent, claim, delivery))
            is_stored = is_delivery_stored(rows)
        if not is_stored:
            await super().save_delivery(delivery)

    async def _save_steps(self, driver: Any, rows: Sequence[Row]) -> list[None]:
        await driver.executemany(SAVE_STEP.text, rows)
        return [None] * len(rows)

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
        """Store an event; return nothing, with nothing written, if one statement is not enough."""
        receipt = new_receipt(inbound, now)
        values = receive_values(self._agent_row, self._leases.receiver, inbound, receipt, cursor)
        return [read_received(inbound, receipt, row) for row in await self._receives.call(values)]
