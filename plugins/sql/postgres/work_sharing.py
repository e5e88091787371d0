"""Work sharing of several processes over one PostgreSQL database.

Each process has a row that it renews, and an advisory lock that ends with its connection: a killed process is
detected within a second, a frozen one when its row expires. A process that was declared dead has lost its
rooms: its writes to them are refused until it has joined again under a new number.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from bot import ConfigError, Receipt
from bot.platform import TaskSet
from bot.store import NewWork, OpenWork, ProcessRole, StoreUnavailable, account_name
from plugins.sql.core.base import AgentRow
from plugins.sql.core.schema import IS_UNCLAIMED
from plugins.sql.core.statements import RawStatement, Row, column_list
from plugins.sql.postgres.connection import Address, connect
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.errors import explain_error
from plugins.sql.postgres.leases import RoomLeases
from plugins.sql.postgres.members import (
    DESCRIBE,
    FORGET,
    IS_DRAINING,
    LEASE_SECONDS,
    OTHER_ROLES,
    PostgresMembers,
    describe_process,
)
from plugins.sql.postgres.shared_limits import PostgresLimits
from plugins.sql.stores.receipts import RECEIPT

MAX_SILENCE_SECONDS, RECONNECT_GRACE_SECONDS = 0.75, 2.0
ROLE_CHECKS, ROLE_CHECK_SECONDS = 10, 0.5
NOTIFY_INTERVAL_SECONDS = 0.01
LOCK_CLASS = 0x67726E72  # any number that no other program takes
CHANNEL = "greenroom"

NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
OPEN_ROOMS = """
  SELECT room_id FROM receipts WHERE agent_id = $1 AND is_open = 1
  UNION SELECT room_id FROM deliveries WHERE agent_id = $1 AND is_open = 1
"""
FREE_LEASES = "UPDATE lanes SET owner = NULL WHERE agent_id = $1 AND owner = $2"
DELETE_WORKER = "DELETE FROM workers WHERE position = $1"
INSERT_WORKER = f"INSERT INTO workers (agent_id, alive_until) VALUES ($1, {NOW} + $2) RETURNING position"
RENEW_WORKER = (
    f"UPDATE workers SET alive_until = {NOW} + $2 WHERE position = $1 RETURNING position, {IS_DRAINING} AS is_draining"
)
FREE_IDLE_LEASES = """
UPDATE lanes l SET owner = NULL WHERE l.agent_id = $1 AND l.owner = $2
  AND NOT EXISTS (SELECT FROM receipts r WHERE r.agent_id = $1 AND r.room_id = l.room_id AND r.is_open = 1)
  AND NOT EXISTS (SELECT FROM deliveries d WHERE d.agent_id = $1 AND d.room_id = l.room_id AND d.is_open = 1)
RETURNING l.room_id
"""
TAKE_LOCK = f"SELECT pg_try_advisory_lock({LOCK_CLASS}, CAST($1 % 2147483647 AS integer))"
# A worker that is silent or without its lock is dead. Its rooms, and those without an owner, become ours if
# work is open there and this process takes rooms, else free. A worker that joins at the same time may lose a room
# by this: no harm.
TAKE_OVER_ROOMS = f"""
WITH buried AS (
  DELETE FROM workers w WHERE w.agent_id = $1 AND w.position <> $2 AND (
    w.alive_until < {NOW} OR w.alive_until < {NOW} + $3 AND NOT EXISTS (
      SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = {LOCK_CLASS} AND l.objsubid = 2
        AND CAST(l.objid AS bigint) = w.position % 2147483647
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())))
  RETURNING w.position
),
alive AS MATERIALIZED (
  SELECT position FROM workers WHERE agent_id = $1 AND position NOT IN (SELECT position FROM buried)
),
open AS MATERIALIZED ({OPEN_ROOMS}),
wanted AS MATERIALIZED (
  SELECT room_id FROM lanes WHERE agent_id = $1 AND owner = ANY(ARRAY(SELECT position FROM buried))
  UNION SELECT room_id FROM open WHERE CAST($4 AS boolean)
),
left_alone AS (
  SELECT l.room_id, l.room_id IN (SELECT room_id FROM open) AS is_open
  FROM wanted JOIN lanes l ON l.agent_id = $1 AND l.room_id = wanted.room_id
  WHERE l.owner IS NULL OR l.owner NOT IN (SELECT position FROM alive)
  FOR UPDATE OF l SKIP LOCKED
),
inherited AS (
  UPDATE lanes l SET owner = CASE WHEN o.is_open AND $4 THEN CAST($2 AS bigint) END FROM left_alone o
  WHERE l.agent_id = $1 AND l.room_id = o.room_id RETURNING l.room_id, l.owner
),
found AS (
  INSERT INTO lanes (agent_id, room_id, owner)
  SELECT CAST($1 AS integer), room_id, CAST($2 AS bigint) FROM open
  WHERE $4 AND NOT EXISTS (SELECT FROM lanes l WHERE l.agent_id = $1 AND l.room_id = open.room_id)
  ON CONFLICT DO NOTHING RETURNING room_id, owner
)
SELECT room_id FROM inherited WHERE owner = $2 UNION ALL SELECT room_id FROM found
"""
# The unclaimed messages of a room, and what is open of those right before them.
OPEN_IN_ROOMS_WITH_UNCLAIMED = RawStatement(
    f"""
SELECT {column_list(RECEIPT.names, "r")} FROM (
  SELECT k.agent_id, k.room_id, min(k.position) AS first
  FROM receipts k JOIN lanes l ON l.agent_id = k.agent_id AND l.room_id = k.room_id
  WHERE k.agent_id = ? AND l.owner = ? AND k.{IS_UNCLAIMED} GROUP BY k.agent_id, k.room_id
) waiting CROSS JOIN LATERAL (
  (SELECT b.* FROM receipts b WHERE b.agent_id = waiting.agent_id AND b.room_id = waiting.room_id
   AND b.position < waiting.first ORDER BY b.position DESC LIMIT 4)
  UNION ALL
  SELECT k.* FROM receipts k WHERE k.agent_id = waiting.agent_id AND k.room_id = waiting.room_id AND k.{IS_UNCLAIMED}
) r WHERE r.is_open = 1 ORDER BY r.position
"""
)
ROOMS_WITH_OPEN_RECEIPTS = RawStatement(
    "SELECT r.room_id FROM receipts r JOIN lanes l ON l.agent_id = r.agent_id AND l.room_id = r.room_id "
    "WHERE r.agent_id = ? AND r.is_open = 1 AND l.owner = ?"
)
ROOMS_WITH_OPEN_DELIVERIES = RawStatement(
    "SELECT d.room_id FROM deliveries d JOIN lanes l ON l.agent_id = d.agent_id AND l.room_id = d.room_id "
    "WHERE d.agent_id = ? AND d.is_open = 1 AND l.owner = ?"
)
OPEN_ACCOUNTS = RawStatement(
    "SELECT DISTINCT room_id, platform, account FROM deliveries "
    "WHERE agent_id = ? AND is_open = 1 AND platform = ANY(CAST(? AS text[]))"
)
NOTIFY = RawStatement(f"SELECT pg_notify('{CHANNEL}', ?)")


class PostgresSharing:
    """Shares the work with the other processes that have this agent's store open; see `WorkSharing`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow, leases: RoomLeases) -> None:
        self._database = database
        self._agent = agent_row.number
        self._leases = leases
        self.limits = PostgresLimits(database, agent_row, leases)
        self.members = PostgresMembers(database, agent_row)
        self._heartbeat = _HeartbeatConnection(database.direct, self._on_notify)
        self._must_look = False  # a notification told every process to look for work
        self._notifiers = TaskSet("notifying other processes")

    def owns_room(self, room_id: UUID) -> bool:
        """Return whether this process works on a room."""
        return self._leases.holds(room_id)

    @property
    def role(self) -> ProcessRole:
        """What this process does; set before it joins."""
        return self._leases.role

    @role.setter
    def role(self, role: ProcessRole) -> None:
        self._leases.role = role

    @property
    def is_draining(self) -> bool:
        """Whether an operator has told this process to release its work."""
        return self._leases.is_draining

    @property
    def unsettled_rooms(self) -> AbstractSet[UUID]:
        """The rooms in which an earlier owner may have left work that has not been resumed yet."""
        return self._leases.unsettled

    def settle(self, rooms: Collection[UUID]) -> None:
        """Record that the open work of these rooms has been resumed."""
        self._leases.unsettled.difference_update(rooms)

    def sends_room(self, room_id: UUID) -> bool:
        """Return whether this process sends the deliveries of a room."""
        return self._leases.sends(room_id)

    async def join(self) -> None:
        """Start to share the work under a new number; raise ConfigError if the others have unsuitable roles."""
        await self._wait_for_suitable_roles()
        async with self._heartbeat.connected() as connection:
            worker = await connection.fetchval(INSERT_WORKER, self._agent, _microseconds(LEASE_SECONDS))
            await connection.execute(FORGET, self._agent)
            await connection.execute(DESCRIBE, self._agent, worker, describe_process(self.role, datetime.now(UTC)))
            self._leases.start(worker)
        if not self._notifiers:
            self._notifiers.start(self._send_notifications())
        await self.heartbeat()

    async def heartbeat(self) -> bool:
        """Renew this process's row, and take over the rooms of dead processes.

        Return False if this process was declared dead.
        """
        worker = self._leases.worker
        async with self._heartbeat.connected() as connection:
            renewed = await connection.fetchrow(RENEW_WORKER, worker, _microseconds(LEASE_SECONDS))
            if renewed is None:
                self._leases.lose_all()
                self._heartbeat.disconnect()  # this releases its lock
                return False
            self._leases.is_draining = renewed["is_draining"]
            await self._heartbeat.hold_lock(worker)
            if not self._heartbeat.is_recovering:
                rows = await connection.fetch(
                    TAKE_OVER_ROOMS,
                    self._agent,
                    worker,
                    _microseconds(LEASE_SECONDS - MAX_SILENCE_SECONDS),
                    self._leases.takes_rooms,
                )
                self._leases.take_over(UUID(bytes=row[0]) for row in rows)
        return True

    async def hold_lease(self, name: str) -> bool:
        """Return whether this process has the lease of an account or a duty; it is taken if it is free."""
        return await self._leases.hold_lease(name)

    async def share_leases(self, name: str, count: int) -> frozenset[int]:
        """Return the numbers of the parts whose leases this process has; free ones are taken up to its share."""
        processes = await self.members.count_sharing(name, count, self.role)
        return await self._leases.share_leases(name, count, processes)

    async def release_lease(self, name: str) -> None:
        """Release a lease, so that another process can take it at once."""
        await self._leases.release_lease(name)

    async def open_work(self, platforms: Collection[str] = ()) -> OpenWork:
        """Return our rooms with open messages, and those with open deliveries."""
        if not self.role.answers:
            return await self._open_deliveries(platforms)
        await self._leases.take_free_rooms()
        key = (self._agent, self._leases.worker)
        receipt_rows = await self._database.main_queries.run(lambda db: ROOMS_WITH_OPEN_RECEIPTS.rows(db, *key))
        delivery_rows = await self._database.main_queries.run(lambda db: ROOMS_WITH_OPEN_DELIVERIES.rows(db, *key))
        if self.role is ProcessRole.WORKER:
            delivery_rows = []
        return OpenWork(_room_ids(receipt_rows), _room_ids(delivery_rows))

    async def receipts_to_claim(self) -> list[Receipt]:
        """Return the open receipts of our rooms in which some are unclaimed, in the order of their arrival."""
        await self._leases.take_free_rooms()
        key = (self._agent, self._leases.worker)
        rows = await self._database.main_queries.run(lambda db: OPEN_IN_ROOMS_WITH_UNCLAIMED.rows(db, *key))
        return [RECEIPT.read(row) for row in rows]

    async def _open_deliveries(self, platforms: Collection[str]) -> OpenWork:
        if not platforms or self.is_draining:
            return OpenWork()
        rows = await self._database.main_queries.run(lambda db: OPEN_ACCOUNTS.rows(db, self._agent, list(platforms)))
        accounts = {UUID(bytes=room_id): account_name(platform, account) for room_id, platform, account in rows}
        return OpenWork(delivery_rooms=await self._leases.assign_deliveries(accounts))

    async def release_idle(self) -> None:
        """Release the rooms in which nothing is open, and all accounts."""
        with suppress(StoreUnavailable):
            async with self._heartbeat.connected() as connection:
                rows = await connection.fetch(FREE_IDLE_LEASES, self._agent, self._leases.worker)
                self._leases.remove(UUID(bytes=row[0]) for row in rows)
                if rows:
                    await connection.execute(f"NOTIFY {CHANNEL}")

    async def wait_for_work(self, timeout: float) -> NewWork:
        """Wait for a notification, at most for this many seconds; return what it said."""
        try:
            async with asyncio.timeout(timeout):
                await self._leases.notified.wait()
        except TimeoutError:
            self._must_look = True
        must_look, self._must_look = self._must_look, False
        self._leases.notified.clear()
        new_work = self._leases.take_new_work()
        return NewWork() if must_look or self._leases.unsettled else new_work

    async def leave(self) -> None:
        """Release all rooms; an unreachable server frees them when the row expires."""
        await self._notifiers.cancel()
        with suppress(StoreUnavailable):
            async with self._heartbeat.connected() as connection:
                await connection.execute(FREE_LEASES, self._agent, self._leases.worker)
                await connection.execute(DELETE_WORKER, self._leases.worker)
                await connection.execute(f"NOTIFY {CHANNEL}")
        self._leases.lose_all()
        self._heartbeat.disconnect()

    async def _wait_for_suitable_roles(self) -> None:
        """Wait until processes that have died count as dead; raise ConfigError if the others do not end."""
        is_divided = self.role is not ProcessRole.ALL
        for _ in range(ROLE_CHECKS):
            async with self._heartbeat.connected() as connection:
                roles = {row[0] for row in await connection.fetch(OTHER_ROLES, self._agent)}
            if not roles or is_divided is (ProcessRole.ALL.value not in roles):
                return
            await asyncio.sleep(ROLE_CHECK_SECONDS)
        self._heartbeat.disconnect()
        raise ConfigError(
            f"BOT_ROLE is {self.role}, and other processes run this character as {', '.join(sorted(roles))}: either "
            "all of them have the role all, or each is a gateway, a worker or a sender; stop them (`bot cluster` "
            "lists them), or change the role"
        )

    def _on_notify(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        notices = self._leases.notices.parse(payload)
        if notices is None:
            self._must_look = True
            self._leases.notified.set()
        for notice, item_id in notices or ():
            self._leases.note_notice(notice, item_id)

    async def _send_notifications(self) -> None:
        """Send requested notifications, at intervals: each takes a lock that all commits wait for."""
        while True:
            await self._leases.notices.requested.wait()
            send = partial(_send_notification, self._leases.notices.take_payload())
            with suppress(StoreUnavailable):  # the others also check regularly
                await self._database.main_queries.run(send)
            await asyncio.sleep(NOTIFY_INTERVAL_SECONDS)


class _HeartbeatConnection:
    """The connection that keeps this process alive and receives notifications; opened on demand."""

    def __init__(self, address: Address, on_notify: Callable[..., None]) -> None:
        self._address = address
        self._on_notify = on_notify
        self._connection: Any = None
        self._is_locked = False
        self._recovering_until = 0.0

    @property
    def is_recovering(self) -> bool:
        """Whether it was cut off recently: other processes may have been too, and need time to return."""
        return time.monotonic() < self._recovering_until

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        """Yield the connection; an error drops it and is raised as StoreUnavailable."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._is_locked = False
                self._connection = await connect(self._address)
                await self._connection.add_listener(CHANNEL, self._on_notify)
            yield self._connection
        except Exception as error:  # after any error the state of the connection is unknown
            self._recovering_until = time.monotonic() + RECONNECT_GRACE_SECONDS
            self.disconnect()
            raise explain_error(error, self._address.label) from error

    async def hold_lock(self, number: int | None) -> None:
        """Take this worker's lock if this connection does not hold it; an earlier connection still may."""
        if not self._is_locked:
            self._is_locked = await self._connection.fetchval(TAKE_LOCK, number)

    def disconnect(self) -> None:
        """Drop the connection, and with it the lock."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _send_notification(payload: str, connection: Connection) -> None:
    NOTIFY.rows(connection, payload)


def _room_ids(rows: Iterable[Row]) -> frozenset[UUID]:
    return frozenset(UUID(bytes=row[0]) for row in rows)


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)
