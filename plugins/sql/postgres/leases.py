"""Room leases: which process owns a room, if several share one PostgreSQL database."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection

from bot.platform import BoundedSet, Delivery
from bot.store import LeaseLost, NewWork, StoredEvent, TurnCommit
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


MAX_REMOTE_RECEIPTS = 10_000
MAX_PAYLOAD = 7_900  # bytes; PostgreSQL allows 7,999


class Notice(StrEnum):
    """What other processes are told, by the id of a room or of a receipt."""

    MESSAGE = "m"  # the owner of this room has a new message
    DELIVERY = "d"  # the owner of this room has a new delivery
    CLOSED = "c"  # this receipt, of a message that another process received, is closed


class NoticeQueue:
    """Notices of one agent that are to be sent; `requested` is set while there are any."""

    def __init__(self, agent: int) -> None:
        self._prefix = f"{agent}"
        self._waiting: dict[str, None] = {}
        self.requested = asyncio.Event()

    def add(self, notice: Notice, ids: Iterable[UUID]) -> None:
        """Add notices; one that waits already is sent once."""
        for item_id in ids:
            self._waiting[f" {notice}{item_id.hex}"] = None
            self.requested.set()

    def take_payload(self) -> str:
        """Remove as many notices as one notification carries, and return its text."""
        payload = self._prefix
        for item in list(self._waiting):
            if len(payload) + len(item) > MAX_PAYLOAD:
                return payload
            del self._waiting[item]
            payload += item
        self.requested.clear()
        return payload

    def parse(self, payload: str) -> list[tuple[Notice, UUID]] | None:
        """Return the notices in a payload; None if it tells every process to look for work."""
        prefix, *items = payload.split(" ")
        if not items:
            return None
        return [(Notice(item[0]), UUID(item[1:])) for item in items] if prefix == self._prefix else []


class RoomLeases:
    """The rooms that this process owns, to its knowledge; the database checks ownership at every write.

    `worker` is the number of this process, None while it does not share the work. `notices` are those that
    other processes should receive.
    """

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        self._database = database
        self._agent = agent_row.number
        self._rooms: set[UUID] = set()
        self._received_elsewhere: set[UUID] = set()  # rooms owned here in which other processes receive too
        self._remote_receipts = BoundedSet[UUID](MAX_REMOTE_RECEIPTS)  # received here, for the owner of the room
        self._closed: set[UUID] = set()
        self._has_open_work = False
        self._is_declared_dead = False
        self.worker: int | None = None
        self.notices = NoticeQueue(self._agent)

    def holds(self, room_id: UUID) -> bool:
        """Return whether this process works on a room."""
        return self.worker is None or room_id in self._rooms

    def note_received(self, received: Sequence[StoredEvent]) -> None:
        """Record which rooms of new events this process owns; none if it was declared dead."""
        if self._is_declared_dead:
            return
        actionable = [event for event in received if _is_actionable(event)]
        self.add(event.receipt.room_id for event in actionable if event.is_room_owned)
        for receipt in (event.receipt for event in actionable if not event.is_room_owned):
            self._remote_receipts.add(receipt.id)
            self.notices.add(Notice.MESSAGE, [receipt.room_id])

    def note_notice(self, notice: Notice, item_id: UUID) -> bool:
        """Record the notice of another process; return whether it concerns this one."""
        if notice is Notice.CLOSED:
            is_remote = item_id in self._remote_receipts
            if is_remote:
                self._remote_receipts.discard(item_id)
                self._closed.add(item_id)
            return is_remote
        if item_id not in self._rooms:
            return False
        if notice is Notice.MESSAGE:
            self._received_elsewhere.add(item_id)
        self._has_open_work = True
        return True

    def take_new_work(self) -> NewWork:
        """Return what the notices since the last call said."""
        new_work = NewWork(self._has_open_work, frozenset(self._closed))
        self._has_open_work = False
        self._closed.clear()
        return new_work

    def note_committed(self, turn_commit: TurnCommit, stored: Iterable[Delivery]) -> None:
        """Notify other processes of what concerns them in a commit: their deliveries, and messages that they received."""
        self.notices.add(Notice.DELIVERY, (item.room_id for item in stored if not self.holds(item.room_id)))
        if self._received_elsewhere:
            closed = (receipt for receipt in turn_commit.receipts if receipt.outcome.is_final)
            in_shared_rooms = (receipt.id for receipt in closed if receipt.room_id in self._received_elsewhere)
            self.notices.add(Notice.CLOSED, in_shared_rooms)

    def add(self, rooms: Iterable[UUID]) -> None:
        """Add rooms whose lease was taken."""
        self._rooms.update(rooms)

    def start(self, worker: int) -> None:
        """Start to share the work under this number."""
        self.worker, self._is_declared_dead = worker, False

    def lose_all(self) -> None:
        """Drop all rooms: this process was declared dead."""
        self._rooms.clear()
        self._received_elsewhere.clear()
        self._is_declared_dead = True

    def remove(self, rooms: Iterable[UUID]) -> None:
        """Drop rooms that another process owns."""
        self._rooms.difference_update(rooms)
        self._received_elsewhere &= self._rooms

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
