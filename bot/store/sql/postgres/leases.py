"""Room leases: which process owns a room, if several share one PostgreSQL database.

The processes that share an agent's work: what each is, what it owns, and the request to release it.
"""

import asyncio
import json
import math
import os
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from bot.concurrency.tasks import BoundedSet
from bot.domain.ids import derived_id
from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Delivery
from bot.errors import LeaseLost
from bot.store.ledger import (
    Duty,
    Member,
    NewWork,
    ProcessRole,
    TurnCommit,
    WorkLag,
    account_name,
    connection_name,
    part_name,
)
from bot.store.sql.core.base import AgentRow, SqlStorePart, reads, writes
from bot.store.sql.core.mapping import Row, datetime_of
from bot.store.sql.core.schema import IS_UNCLAIMED
from bot.store.sql.postgres.database import PostgresDatabase
from bot.store.sql.postgres.heartbeat import LEASE_SECONDS, MEMBER_KEY
from bot.store.sql.postgres.ledger_statements import LeaseClaim, RawStatement, without_claim

TAKE_LEASES = RawStatement(
    """
INSERT INTO room_leases (agent_id, room_id, owner)
SELECT CAST(? AS integer), room_id, CAST(? AS bigint) FROM unnest(CAST(? AS bytea[])) AS room_id
ORDER BY room_id
ON CONFLICT (agent_id, room_id) DO UPDATE SET owner = CASE
  WHEN EXISTS (SELECT FROM workers w WHERE w.position = room_leases.owner)
    OR room_leases.owner > (SELECT max(position) FROM workers)  -- it joined after this statement began
  THEN room_leases.owner ELSE excluded.owner END
RETURNING room_id, owner, xmax = 0
"""
)
FIND_OWNERS = RawStatement(
    "SELECT l.room_id, l.owner, false FROM room_leases l JOIN workers w ON w.position = l.owner "
    "WHERE l.agent_id = ? AND l.room_id = ANY(CAST(? AS bytea[]))"
)
RELEASE_LEASE = RawStatement(
    "UPDATE room_leases SET owner = NULL WHERE agent_id = ? AND room_id = ? AND owner = ? RETURNING 1"
)
FIND_ROOMS_WITH_UNCLAIMED = RawStatement(
    f"SELECT DISTINCT room_id FROM receipts WHERE agent_id = ? AND room_id = ANY(CAST(? AS bytea[])) AND {IS_UNCLAIMED}"
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
    FREE = "f"  # this room has a new message and no owner
    CLOSED = "c"  # this receipt, of a message that another process received, is closed


class NoticeQueue:
    """Notices of one agent that are to be sent; `requested` is set while there are any."""

    def __init__(self, agent: int) -> None:
        self.all_work = f"{agent}"  # tells every process to look for work of this agent
        self._waiting: dict[str, None] = {}
        self.requested = asyncio.Event()

    def add(self, notice: Notice, ids: Iterable[UUID]) -> None:
        """Add notices; one that waits already is sent once."""
        for item_id in ids:
            self._waiting[f" {notice}{item_id.hex}"] = None
            self.requested.set()

    def take_payload(self) -> str:
        """Remove as many notices as one notification carries, and return its text."""
        payload = self.all_work
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
        return [(Notice(item[0]), UUID(item[1:])) for item in items] if prefix == self.all_work else []


class RoomLeases:
    """The rooms that this process owns, to its knowledge; the database checks ownership at every write.

    `worker` is the number of this process, None while it does not share the work. `notices` are those that
    other processes should receive, and `notified` is set when there is work to look for. `unsettled_rooms` are those in
    which an earlier owner may have left work that has not been resumed yet. A process whose `role` is to send leases
    accounts, under ids that no room has.
    """

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        self._database = database
        self._queries = database.main_queries
        self._agent = agent_row.number
        self.members = PostgresMembers(database, agent_row)
        self._rooms: set[UUID] = set()
        self.unsettled_rooms: set[UUID] = set()
        self._received_elsewhere: set[UUID] = set()  # rooms owned here in which other processes receive too
        self._remote_receipts = BoundedSet[UUID](MAX_REMOTE_RECEIPTS)  # received here, for the owner of the room
        self._closed: set[UUID] = set()
        self._has_open_work = self._has_open_deliveries = False
        self._is_declared_dead = False
        self._free_rooms: set[UUID] = set()
        self._account_of: dict[UUID, UUID] = {}  # the account lease under which a room's deliveries are sent
        self.role = ProcessRole.ALL
        self.is_draining = False
        self.worker: int | None = None
        self.notices = NoticeQueue(self._agent)
        self.notified = asyncio.Event()

    def owns_room(self, room_id: UUID) -> bool:
        """Return whether this process works on a room."""
        return self.worker is None or room_id in self._rooms

    def sends_room(self, room_id: UUID) -> bool:
        """Return whether this process sends the deliveries of a room."""
        if self.worker is None or self.role is ProcessRole.ALL:
            return self.owns_room(room_id)
        return self._account_of.get(room_id) in self._rooms

    @property
    def takes_rooms(self) -> bool:
        """Whether this process takes free rooms."""
        return self.role.answers and not self.is_draining

    @property
    def receiver(self) -> int | None:
        """The number under which events are received: 0 if this process takes no room by it."""
        return self.worker if self.worker is None or self.takes_rooms else 0

    async def hold_lease(self, name: str) -> bool:
        """Return whether this process has the lease of an account or a duty; it is taken if it is free."""
        lease_id = derived_id("account", name)
        if lease_id not in self._rooms and not (self.is_draining or self._is_declared_dead):
            await self._take_leases([lease_id])
        return lease_id in self._rooms

    async def share_leases(self, name: str, count: int) -> frozenset[int]:
        """Return the numbers of the parts whose leases this process has; free ones are taken up to its share."""
        processes = await self.members.count_sharing(name, count, self.role)
        ids = {number: derived_id("account", part_name(name, number, count)) for number in range(count)}
        share = 0 if self.is_draining else math.ceil(count / max(processes, 1))
        held = [number for number, lease_id in ids.items() if lease_id in self._rooms]
        if len(held) < share and not self._is_declared_dead:
            rows = await FIND_OWNERS.run(self._queries, self._agent, [lease_id.bytes for lease_id in ids.values()])
            taken = {row[0] for row in rows}
            free = [lease_id for lease_id in ids.values() if lease_id.bytes not in taken]
            if free:
                await self._take_leases(free[: share - len(held)])
            held = [number for number, lease_id in ids.items() if lease_id in self._rooms]
        return frozenset(held[:share])

    async def release_lease(self, name: str) -> None:
        """Release a lease if this process has it."""
        lease_id = derived_id("account", name)
        if lease_id in self._rooms:
            await RELEASE_LEASE.run(self._queries, self._agent, lease_id.bytes, self.worker)
            self.remove([lease_id])

    async def assign_deliveries(self, accounts: Mapping[UUID, str]) -> frozenset[UUID]:
        """Take the accounts of rooms with open deliveries where they are free; return the rooms to send in."""
        held = {name: await self.hold_lease(name) for name in set(accounts.values())}
        rooms = {room_id: derived_id("account", name) for room_id, name in accounts.items() if held[name]}
        self._account_of.update(rooms)
        return frozenset(rooms)

    async def take_free_rooms(self) -> None:
        """Take the free rooms of which other processes have told, as long as they are free."""
        rooms, self._free_rooms = self._free_rooms, set()
        if rooms and self.takes_rooms and not self._is_declared_dead:
            await self._take_leases(rooms)
            self._received_elsewhere |= rooms & self._rooms

    def note_received(self, received: Sequence[StoredEvent]) -> None:
        """Record which rooms of new events this process owns; none if it was declared dead."""
        if self._is_declared_dead:
            return
        for event in filter(_is_actionable, received):
            room_id = event.receipt.room_id
            if event.is_room_owned and event.is_room_free:
                self._rooms.add(room_id)
            elif event.is_room_owned:
                self.take_over([room_id])
            else:
                self._remote_receipts.add(event.receipt.id)
                notice = Notice.FREE if event.is_room_free else Notice.MESSAGE
                if not self.note_notice(notice, room_id):
                    self.notices.add(notice, [room_id])

    def note_notice(self, notice: Notice, item_id: UUID) -> bool:
        """Record the notice of another process; return whether it concerns this one."""
        if notice is Notice.CLOSED:
            if item_id not in self._remote_receipts:
                return False
            self._remote_receipts.discard(item_id)
            self._closed.add(item_id)
        elif notice is Notice.FREE and self.takes_rooms:
            self._free_rooms.add(item_id)
            self._has_open_work = True
        elif notice is Notice.DELIVERY and not self.role.answers:
            self._has_open_work = True
        elif item_id in self._rooms:
            if notice is Notice.DELIVERY:
                self._has_open_deliveries = True
            else:
                self._received_elsewhere.add(item_id)
            self._has_open_work = True
        else:
            return False
        self.notified.set()
        return True

    def take_new_work(self) -> NewWork:
        """Return what the notices since the last call said."""
        new_work = NewWork(self._has_open_work, None if self._has_open_deliveries else frozenset(self._closed))
        self._has_open_work = self._has_open_deliveries = False
        self._closed.clear()
        return new_work

    def note_committed(self, turn_commit: TurnCommit, stored: Iterable[Delivery]) -> None:
        """Notify other processes of what they have to send, and of the end of messages that they received."""
        self.notices.add(Notice.DELIVERY, (item.room_id for item in stored if not self.sends_room(item.room_id)))
        if self._received_elsewhere or self.role is ProcessRole.WORKER:
            closed = (receipt for receipt in turn_commit.receipts if receipt.outcome.is_final)
            is_worker, elsewhere = self.role is ProcessRole.WORKER, self._received_elsewhere
            self.notices.add(Notice.CLOSED, (item.id for item in closed if is_worker or item.room_id in elsewhere))

    def take_over(self, rooms: Iterable[UUID]) -> None:
        """Add rooms whose lease was taken, in which an earlier owner may have left work; none if declared dead."""
        if not self._is_declared_dead and (taken := set(rooms) - self._rooms):
            self._rooms |= taken
            self.unsettled_rooms |= taken
            self.notified.set()

    def unsettle(self, rooms: Iterable[UUID]) -> None:
        """Record that work may have been stored in rooms of this process that it does not know."""
        if concerned := self._rooms.intersection(rooms):
            self.unsettled_rooms |= concerned
            self.notified.set()

    def settle(self, rooms: Collection[UUID]) -> None:
        """Record that the open work of these rooms has been resumed."""
        self.unsettled_rooms.difference_update(rooms)

    def start(self, worker: int) -> None:
        """Start to share the work under this number."""
        self.worker, self._is_declared_dead = worker, False

    def lose_all(self) -> None:
        """Drop all rooms: this process was declared dead."""
        self._rooms.clear()
        self.unsettled_rooms.clear()
        self._account_of.clear()
        self._received_elsewhere.clear()
        self._is_declared_dead = True

    def remove(self, rooms: Iterable[UUID]) -> None:
        """Drop rooms that another process owns."""
        self._rooms.difference_update(rooms)
        self.unsettled_rooms &= self._rooms
        self._received_elsewhere &= self._rooms

    def claim_for_room(self, room_id: UUID) -> LeaseClaim:
        """Return the claim for the state of a delivery; it checks nothing for another process's room."""
        lease_id = self._account_of.get(room_id, room_id)
        if self.worker is None or lease_id not in self._rooms:
            return LeaseClaim()
        return LeaseClaim(self.worker, frozenset({lease_id}))

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
        if self.takes_rooms and (missing := delivery_rooms - self._rooms):
            await self._take_leases(missing)
        return LeaseClaim(self.worker, receipt_rooms or frozenset(delivery_rooms & self._rooms))

    async def _take_leases(self, rooms: Iterable[UUID]) -> None:
        room_ids = [room_id.bytes for room_id in rooms]
        rows = await TAKE_LEASES.run(self._queries, self._agent, self.worker, room_ids)
        taken = {UUID(bytes=row[0]): row[2] for row in rows if row[1] == self.worker}
        self._rooms.update(room_id for room_id, is_new in taken.items() if is_new)
        self.take_over(taken)


def assign_rooms(connection: Connection, agent: int, worker: int, received: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Lease the free rooms of new events; leave events of other rooms to their owners.

    Events behind one that has not been claimed wait too. With 0 as `worker` no room is leased.
    """
    rooms = list({event.receipt.room_id.bytes for event in received if _is_actionable(event)})
    rows = TAKE_LEASES.rows(connection, agent, worker, rooms) if worker else FIND_OWNERS.rows(connection, agent, rooms)
    owners: dict[bytes, int] = {row[0]: row[1] for row in rows}
    free = {room_id for room_id in rooms if room_id not in owners} | {row[0] for row in rows if row[2]}
    blocked = {row[0] for row in FIND_ROOMS_WITH_UNCLAIMED.rows(connection, agent, rooms)}
    ours = {room_id for room_id, owner in owners.items() if owner == worker and room_id not in blocked}
    are_local = [not _is_actionable(event) or event.receipt.room_id.bytes in ours for event in received]
    remote_ids = [event.receipt.id.bytes for event, is_local in zip(received, are_local, strict=True) if not is_local]
    if remote_ids:
        UNCLAIM_RECEIPTS.rows(connection, agent, remote_ids)
    return [
        replace(
            event,
            receipt=event.receipt if is_local else without_claim(event.receipt),
            is_room_owned=is_local,
            is_room_free=event.receipt.room_id.bytes in free,
        )
        for event, is_local in zip(received, are_local, strict=True)
    ]


def _is_actionable(received: StoredEvent) -> bool:
    return received.is_new and not received.receipt.outcome.is_final


SHARED_KEY = "shared lease:"  # likewise, followed by its name: the number of its parts

# Written when a process joins; those of processes that have ended are deleted then.
DESCRIBE = RawStatement(
    f"INSERT INTO cache (agent_id, key, value) VALUES (?, '{MEMBER_KEY}' || CAST(? AS bigint), ?) "
    "ON CONFLICT (agent_id, key) DO UPDATE SET value = excluded.value"
)
FORGET = RawStatement(
    f"DELETE FROM cache c WHERE c.agent_id = ? AND c.key LIKE '{MEMBER_KEY}%' AND NOT EXISTS ("
    f"SELECT FROM workers w WHERE w.agent_id = c.agent_id AND c.key = '{MEMBER_KEY}' || w.position)"
)
DRAIN = RawStatement(
    f"UPDATE cache SET value = CAST(CAST(value AS jsonb) || '{{\"is_draining\": true}}' AS text) "
    f"WHERE agent_id = ? AND key = '{MEMBER_KEY}' || CAST(? AS bigint) RETURNING 1"
)
OTHER_ROLES = RawStatement(
    f"SELECT DISTINCT coalesce(CAST(c.value AS jsonb) ->> 'role', '{ProcessRole.ALL}') FROM workers w "
    f"LEFT JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? AND w.alive_until > CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
)
LIST_MEMBERS = RawStatement(
    f"SELECT w.position, w.alive_until, c.value FROM workers w "
    f"LEFT JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? ORDER BY w.position"
)
COUNT_PROCESSES = RawStatement(
    f"SELECT count(*) FROM workers w JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? AND CAST(c.value AS jsonb) ->> 'role' = ? "
    "AND CAST(c.value AS jsonb) ->> 'is_draining' IS DISTINCT FROM 'true'"
)
STORE_PARTS = RawStatement(
    f"INSERT INTO cache (agent_id, key, value) VALUES (?, '{SHARED_KEY}' || CAST(? AS text), CAST(? AS text)) "
    "ON CONFLICT (agent_id, key) DO UPDATE SET value = excluded.value RETURNING 1"
)
LIST_PARTS = RawStatement(f"SELECT key, value FROM cache WHERE agent_id = ? AND key LIKE '{SHARED_KEY}%'")
LIST_LEASES = RawStatement("SELECT owner, room_id FROM room_leases WHERE agent_id = ? AND owner IS NOT NULL")
LIST_ACCOUNTS = RawStatement("SELECT DISTINCT platform, account FROM rooms WHERE agent_id = ?")
FIND_LAG = RawStatement(
    "SELECT (SELECT min(received_at) FROM receipts WHERE agent_id = ? AND is_open = 1), "
    "(SELECT min(created_at) FROM deliveries WHERE agent_id = ? AND is_open = 1)"
)


def describe_process(role: ProcessRole, now: datetime) -> str:
    """Return what is known about this process, as JSON."""
    return json.dumps(
        {
            "role": role,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "version": version("greenroom"),
            "since": now.isoformat(),
        }
    )


class PostgresMembers(SqlStorePart):
    """Lists and drains the processes of one agent; see `Members`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._stored_parts: dict[str, int] = {}

    @reads
    def find(self, connection: Connection) -> tuple[list[Member], WorkLag]:
        pairs = list(map(tuple, LIST_ACCOUNTS.rows(connection, self._agent)))
        names = {account_name(*pair) for pair in pairs} | {connection_name(platform) for platform, _ in pairs} | {*Duty}
        for key, count in LIST_PARTS.rows(connection, self._agent):
            name = key.removeprefix(SHARED_KEY)
            names |= {part_name(name, number, int(count)) for number in range(int(count))}
        accounts = {derived_id("account", name): name for name in names}
        leases: dict[int, list[UUID]] = {}
        for owner, room_id in LIST_LEASES.rows(connection, self._agent):
            leases.setdefault(owner, []).append(UUID(bytes=room_id))
        rows = LIST_MEMBERS.rows(connection, self._agent)
        [(unanswered, undelivered)] = FIND_LAG.rows(connection, self._agent, self._agent)
        lag = WorkLag(*(None if at is None else datetime_of(at) for at in (unanswered, undelivered)))
        return [_read_member(row, leases.get(row[0], ()), accounts) for row in rows], lag

    @writes
    def drain(self, connection: Connection, number: int) -> bool:
        return bool(DRAIN.rows(connection, self._agent, number))

    async def count_sharing(self, name: str, count: int, role: ProcessRole) -> int:
        """Return the number of processes that share the parts of a lease: those of a role that are not drained.

        How many parts there are is stored, so that `find` knows their names.
        """
        if self._stored_parts.get(name) != count:
            await self._database.write(lambda db: STORE_PARTS.rows(db, self._agent, name, str(count)))
            self._stored_parts[name] = count
        rows = await self._database.read(lambda db: COUNT_PROCESSES.rows(db, self._agent, role.value))
        return int(rows[0][0])


def _read_member(row: Row, leases: Sequence[UUID], accounts: Mapping[UUID, str]) -> Member:
    number, alive_until, text = row
    about: dict[str, Any] = json.loads(text) if text else {}
    held = sorted(accounts[lease_id] for lease_id in leases if lease_id in accounts)
    return Member(
        number=number,
        role=about.get("role", ProcessRole.ALL.value),
        host=about.get("host", ""),
        process=about.get("process", 0),
        version=about.get("version", ""),
        since=datetime.fromisoformat(about["since"]) if "since" in about else None,
        last_heartbeat=datetime_of(alive_until - int(LEASE_SECONDS * 1_000_000)),
        is_draining=about.get("is_draining", False),
        rooms=len(leases) - len(held),
        accounts=held,
    )
