"""Room leases: which process owns a room, if several share one PostgreSQL database."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection

from bot.store import LeaseLost, StoredEvent, TurnCommit
from plugins.sql.core.base import AgentRow
from plugins.sql.core.statements import RawStatement
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.ledger_statements import LeaseClaim, without_claim

TAKE_LEASES = RawStatement(
    """
INSERT INTO lanes (agent_id, room_id, owner)
SELECT CAST(? AS integer), room_id, CAST(? AS bigint) FROM unnest(CAST(? AS bytea[])) AS room_id
ORDER BY room_id
ON CONFLICT (agent_id, room_id) DO UPDATE SET owner = coalesce(lanes.owner, excluded.owner)
RETURNING room_id, owner
"""
)
UNCLAIM_RECEIPTS = RawStatement(
    """
UPDATE receipts SET outcome = 'received', turn_id = NULL, attempts = 0, claimed_at = NULL
WHERE agent_id = ? AND id = ANY(CAST(? AS bytea[]))
"""
)


class RoomLeases:
    """The rooms that this process owns, to its knowledge; the database checks ownership at every write.

    `worker` is the number of this process, None while it does not share the work. `notify_requested` is
    set when other processes should look for new work.
    """

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        self._database = database
        self._agent = agent_row.number
        self._rooms: set[UUID] = set()
        self._is_declared_dead = False
        self.worker: int | None = None
        self.notify_requested = asyncio.Event()

    def holds(self, room_id: UUID) -> bool:
        """Return whether this process works on a room."""
        return self.worker is None or room_id in self._rooms

    def note_received(self, received: Sequence[StoredEvent]) -> None:
        """Record which rooms of new events this process owns; none if it was declared dead."""
        if self._is_declared_dead:
            return
        actionable = [event for event in received if _is_actionable(event)]
        self._rooms |= {event.receipt.room_id for event in actionable if event.is_room_owned}
        if not all(event.is_room_owned for event in actionable):
            self.request_notify()

    def add(self, rooms: Iterable[UUID]) -> None:
        """Add rooms whose lease was taken."""
        self._rooms.update(rooms)

    def start(self, worker: int) -> None:
        """Start to share the work under this number."""
        self.worker, self._is_declared_dead = worker, False

    def lose_all(self) -> None:
        """Drop all rooms: this process was declared dead."""
        self._rooms.clear()
        self._is_declared_dead = True

    def remove(self, rooms: Iterable[UUID]) -> None:
        """Drop rooms that another process owns."""
        self._rooms.difference_update(rooms)

    def request_notify(self) -> None:
        """Ask for a notification of the other processes."""
        self.notify_requested.set()

    def claim_for_room(self, room_id: UUID) -> LeaseClaim:
        """Return the claim for a write to a room; it checks nothing for another process's room."""
        if self.worker is None or room_id not in self._rooms:
            return LeaseClaim()
        return LeaseClaim(self.worker, frozenset({room_id}))

    async def claim_for_commit(self, turn_commit: TurnCommit) -> LeaseClaim:
        """Return the claim for a commit; raise LeaseLost if another process owns one of its rooms.

        Deliveries without a message, such as reminders, may go to any room: the owner of the room sends them.
        """
        if self.worker is None:
            return LeaseClaim()
        receipt_rooms = frozenset(receipt.room_id for receipt in turn_commit.receipts)
        if self._is_declared_dead or not receipt_rooms <= self._rooms:
            raise LeaseLost
        delivery_rooms = {delivery.room_id for delivery in turn_commit.deliveries}
        if missing := delivery_rooms - self._rooms:
            await self._take_leases(missing)
        return LeaseClaim(self.worker, receipt_rooms or frozenset(delivery_rooms & self._rooms))

    async def _take_leases(self, rooms: Iterable[UUID]) -> None:
        key = (self._agent, self.worker, [room_id.bytes for room_id in rooms])
        rows = await self._database.main_queries.run(lambda db: TAKE_LEASES.rows(db, *key))
        self.add(UUID(bytes=room_id) for room_id, owner in rows if owner == self.worker)


def assign_rooms(connection: Connection, agent: int, worker: int, received: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Lease the free rooms of new events; leave events of other rooms to their owners."""
    rooms = {event.receipt.room_id.bytes for event in received if _is_actionable(event)}
    owners: dict[bytes, int] = dict(map(tuple, TAKE_LEASES.rows(connection, agent, worker, list(rooms))))
    are_local = [not _is_actionable(event) or owners[event.receipt.room_id.bytes] == worker for event in received]
    remote_ids = [event.receipt.id.bytes for event, is_local in zip(received, are_local, strict=True) if not is_local]
    if remote_ids:
        UNCLAIM_RECEIPTS.rows(connection, agent, remote_ids)
    return [
        event if is_local else replace(event, receipt=without_claim(event.receipt), is_room_owned=False)
        for event, is_local in zip(received, are_local, strict=True)
    ]


def _is_actionable(received: StoredEvent) -> bool:
    return received.is_new and not received.receipt.outcome.is_final
