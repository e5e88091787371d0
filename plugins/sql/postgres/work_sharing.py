"""Several processes over one PostgreSQL database: who lives, who works on which room, who should look.

Each holds a row that it renews, and a lock of the server's that goes with its connection: a killed process
is missed within a second, a frozen one when its row has run out. Who was taken for dead has lost its rooms:
whatever it still writes for them is refused, until it has joined again as somebody else.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from bot.store import OpenWork, StoreUnavailable
from plugins.sql.core.base import Owner
from plugins.sql.core.statements import Row, Spelled
from plugins.sql.postgres.connection import Address, connect
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.errors import explained
from plugins.sql.postgres.leases import Lanes

LEASE, SILENCE, GRACE = 4.0, 0.75, 2.0
RINGS_APART = 0.005
LOCK_CLASS = 0x67726E72  # any number that no other program takes
CHANNEL = "greenroom"

NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
OPEN = """
  SELECT room_id FROM receipts WHERE agent_id = $1 AND is_open = 1
  UNION SELECT room_id FROM deliveries WHERE agent_id = $1 AND is_open = 1
"""
FREE = "UPDATE lanes SET owner = NULL WHERE agent_id = $1 AND owner = $2"
LEAVE = "DELETE FROM workers WHERE position = $1"
JOIN = f"INSERT INTO workers (agent_id, alive_until) VALUES ($1, {NOW} + $2) RETURNING position"
RENEW = f"UPDATE workers SET alive_until = {NOW} + $2 WHERE position = $1 RETURNING position"
LOCK = f"SELECT pg_try_advisory_lock({LOCK_CLASS}, CAST($1 % 2147483647 AS integer))"
# Whoever is silent or has let go of its lock is dead. What it leaves, and what is nobody's, becomes ours
# where something is open there, else free. Who has joined this very moment may lose a room so: no harm.
INHERIT = f"""
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
open AS MATERIALIZED ({OPEN}),
wanted AS MATERIALIZED (
  SELECT room_id FROM lanes WHERE agent_id = $1 AND owner = ANY(ARRAY(SELECT position FROM buried))
  UNION SELECT room_id FROM open
),
left_alone AS (
  SELECT l.room_id, l.room_id IN (SELECT room_id FROM open) AS is_open
  FROM wanted JOIN lanes l ON l.agent_id = $1 AND l.room_id = wanted.room_id
  WHERE l.owner IS NULL OR l.owner NOT IN (SELECT position FROM alive)
  FOR UPDATE OF l SKIP LOCKED
),
inherited AS (
  UPDATE lanes l SET owner = CASE WHEN o.is_open THEN CAST($2 AS bigint) END FROM left_alone o
  WHERE l.agent_id = $1 AND l.room_id = o.room_id RETURNING l.room_id, l.owner
),
found AS (
  INSERT INTO lanes (agent_id, room_id, owner)
  SELECT CAST($1 AS integer), room_id, CAST($2 AS bigint) FROM open
  WHERE NOT EXISTS (SELECT FROM lanes l WHERE l.agent_id = $1 AND l.room_id = open.room_id)
  ON CONFLICT DO NOTHING RETURNING room_id, owner
)
SELECT room_id FROM inherited WHERE owner = $2 UNION ALL SELECT room_id FROM found
"""
OPEN_OF_OURS = Spelled(
    "SELECT r.room_id FROM receipts r JOIN lanes l ON l.agent_id = r.agent_id AND l.room_id = r.room_id "
    "WHERE r.agent_id = ? AND r.is_open = 1 AND l.owner = ?"
)
UNSENT_OF_OURS = Spelled(
    "SELECT d.room_id FROM deliveries d JOIN lanes l ON l.agent_id = d.agent_id AND l.room_id = d.room_id "
    "WHERE d.agent_id = ? AND d.is_open = 1 AND l.owner = ?"
)
RING = Spelled(f"SELECT pg_notify('{CHANNEL}', '')")


class PostgresSharing:
    """Shares the work with the other processes that have this agent's store open; see `Sharing`."""

    def __init__(self, database: PostgresDatabase, owner: Owner, lanes: Lanes) -> None:
        self._database = database
        self._agent = owner.number
        self._lanes = lanes
        self._line = _LifeLine(database.direct, self._bell_rings)
        self._bell = asyncio.Event()
        self._ringing: asyncio.Task[None] | None = None

    def holds(self, room_id: UUID) -> bool:
        """Tell whether a room is this process's work."""
        return self._lanes.holds(room_id)

    async def join(self) -> None:
        """Begin to share, as somebody new."""
        async with self._line.speaking() as call:
            self._lanes.begin(await call.fetchval(JOIN, self._agent, _micro(LEASE)))
        if self._ringing is None:
            self._ringing = asyncio.get_running_loop().create_task(self._ring())
        await self.keep_alive()

    async def keep_alive(self) -> bool:
        """Say that this process lives, and take over what the dead have left.

        False where it has itself been taken for dead.
        """
        worker = self._lanes.worker
        async with self._line.speaking() as call:
            if not await call.fetchval(RENEW, worker, _micro(LEASE)):
                self._lanes.lose()
                self._line.hang_up()  # and so give back its lock
                return False
            await self._line.lock(worker)
            if not self._line.is_fresh:
                rows = await call.fetch(INHERIT, self._agent, worker, _micro(LEASE - SILENCE))
                self._lanes.add(UUID(bytes=row[0]) for row in rows)
        return True

    async def open_work(self) -> OpenWork:
        """Tell in which of our rooms messages are open, and in which parts are."""
        key = (self._agent, self._lanes.worker)
        messages = await self._database.road.once(lambda db: OPEN_OF_OURS.rows(db, *key))
        parts = await self._database.road.once(lambda db: UNSENT_OF_OURS.rows(db, *key))
        return OpenWork(_rooms(messages), _rooms(parts))

    async def wait(self, seconds: float) -> None:
        """Wait until somebody rings, but no longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()

    async def leave(self) -> None:
        """Give all rooms back; where the server is away it finds out by itself."""
        if self._ringing is not None:
            self._ringing.cancel()
            await asyncio.wait({self._ringing})
        with suppress(StoreUnavailable):
            async with self._line.speaking() as call:
                await call.execute(FREE, self._agent, self._lanes.worker)
                await call.execute(LEAVE, self._lanes.worker)
                await call.execute(RING.text)
        self._lanes.lose()
        self._line.hang_up()

    def _bell_rings(self, *_: object) -> None:
        self._bell.set()

    async def _ring(self) -> None:
        """Pass rings on, not too many: each takes a lock that all commits of the server wait for."""
        while True:
            await self._lanes.rung.wait()
            self._lanes.rung.clear()
            with suppress(StoreUnavailable):  # they look by themselves too
                await self._database.road.once(RING.rows)
            await asyncio.sleep(RINGS_APART)


class _LifeLine:
    """The one connection that says that this process lives, and hears the bell; it is opened when needed."""

    def __init__(self, address: Address, on_bell: Callable[..., None]) -> None:
        self._address = address
        self._on_bell = on_bell
        self._connection: Any = None
        self._is_locked = False
        self._cut_off_until = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether it was cut off just now: then the others may have been too, and need a moment."""
        return time.monotonic() < self._cut_off_until

    @asynccontextmanager
    async def speaking(self) -> AsyncIterator[Any]:
        """Give the connection; it is dropped where that fails, which raises StoreUnavailable."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._is_locked = False
                self._connection = await connect(self._address)
                await self._connection.add_listener(CHANNEL, self._on_bell)
            yield self._connection
        except Exception as error:
            self._cut_off_until = time.monotonic() + GRACE
            self.hang_up()
            raise explained(error, self._address.place) from error

    async def lock(self, number: int | None) -> None:
        """Hold the lock that goes with this connection; an earlier one of ours may still have it."""
        if not self._is_locked:
            self._is_locked = await self._connection.fetchval(LOCK, number)

    def hang_up(self) -> None:
        """Drop the connection, and with it the lock."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _rooms(rows: Iterable[Row]) -> frozenset[UUID]:
    return frozenset(UUID(bytes=row[0]) for row in rows)


def _micro(seconds: float) -> int:
    return int(seconds * 1_000_000)
