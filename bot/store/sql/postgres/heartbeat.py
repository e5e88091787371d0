"""`Heartbeat`: the connection on which a process says that it is alive, for all its agents at once.

Each agent of a process has a row that is renewed, and an advisory lock that ends with the connection: a killed process
is detected within a second, a frozen one when its rows expire.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bot.concurrency.tasks import TaskSet
from bot.store.sql.postgres.connection import Address, connect, explain_error

LEASE_SECONDS, MAX_TAKE_OVER_SECONDS = 4.0, 0.25
LEASE_MICROSECONDS = int(LEASE_SECONDS * 1_000_000)
MIN_INTERVAL_SECONDS, TIMEOUT_SECONDS = 0.4, 5.0
MAX_SILENCE_MICROSECONDS, RECONNECT_GRACE_SECONDS = 750_000, 2.0
LOCK_CLASS = 0x67726E72  # any number that no other program takes
CHANNEL = "greenroom"
MEMBER_KEY = "member:"  # in the table `cache`, followed by the number of a worker: what its process is

NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
LOCK_NUMBER = "CAST(position % 2147483647 AS integer)"
IS_DRAINING = f"""EXISTS (
  SELECT FROM cache c WHERE c.agent_id = workers.agent_id AND c.key = '{MEMBER_KEY}' || workers.position
    AND CAST(c.value AS jsonb) @> '{{"is_draining": true}}')"""
RENEW_WORKERS = (
    f"UPDATE workers SET alive_until = {NOW} + {LEASE_MICROSECONDS} WHERE position = ANY($1) "
    f"RETURNING position, {IS_DRAINING} AS is_draining"
)
TAKE_LOCKS = (
    f"SELECT position FROM unnest(CAST($1 AS bigint[])) AS position WHERE pg_try_advisory_lock({LOCK_CLASS}, "
    f"{LOCK_NUMBER})"
)
RELEASE_LOCKS = f"SELECT pg_advisory_unlock({LOCK_CLASS}, {LOCK_NUMBER}) FROM unnest(CAST($1 AS bigint[])) AS position"
# A worker that is silent or without its lock is dead.
LOCKED = f"""locked AS MATERIALIZED (
  SELECT CAST(l.objid AS bigint) AS number FROM pg_locks l
  WHERE l.locktype = 'advisory' AND l.classid = {LOCK_CLASS} AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)"""
IS_DEAD = f"""(
  w.alive_until < {NOW} OR w.alive_until < {NOW} + {LEASE_MICROSECONDS - MAX_SILENCE_MICROSECONDS}
    AND w.position % 2147483647 NOT IN (SELECT number FROM locked))"""
# Those of the agents $1, with the workers $2, that have dead workers, or work in a room without a living one.
FIND_AGENTS_TO_LOOK_AFTER = f"""
WITH {LOCKED}
SELECT w.agent_id FROM workers w WHERE w.agent_id = ANY($1) AND w.position <> ALL($2) AND {IS_DEAD}
UNION
SELECT open.agent_id FROM (
  SELECT agent_id, room_id FROM receipts WHERE is_open = 1
  UNION ALL SELECT agent_id, room_id FROM deliveries WHERE is_open = 1
) open LEFT JOIN room_leases l ON l.agent_id = open.agent_id AND l.room_id = open.room_id
WHERE open.agent_id = ANY($1) AND NOT EXISTS (SELECT FROM workers w WHERE w.position = l.owner)
"""
# The rooms of dead workers, and those without an owner, become ours if work is open there and this process takes
# rooms, else free. A worker that joins at the same time may lose a room by this: no harm.
TAKE_OVER_ROOMS = f"""
WITH {LOCKED},
buried AS (
  DELETE FROM workers w WHERE w.agent_id = $1 AND w.position <> $2 AND {IS_DEAD} RETURNING w.position
),
alive AS MATERIALIZED (
  SELECT position FROM workers WHERE agent_id = $1 AND position NOT IN (SELECT position FROM buried)
),
open AS MATERIALIZED (
  SELECT room_id FROM receipts WHERE agent_id = $1 AND is_open = 1
  UNION SELECT room_id FROM deliveries WHERE agent_id = $1 AND is_open = 1
),
wanted AS MATERIALIZED (
  SELECT room_id FROM room_leases WHERE agent_id = $1 AND owner = ANY(ARRAY(SELECT position FROM buried))
  UNION SELECT room_id FROM open WHERE CAST($3 AS boolean)
),
left_alone AS (
  SELECT l.room_id, l.room_id IN (SELECT room_id FROM open) AS is_open
  FROM wanted JOIN room_leases l ON l.agent_id = $1 AND l.room_id = wanted.room_id
  WHERE l.owner IS NULL OR l.owner NOT IN (SELECT position FROM alive)
  FOR UPDATE OF l SKIP LOCKED
),
inherited AS (
  UPDATE room_leases l SET owner = CASE WHEN o.is_open AND $3 THEN CAST($2 AS bigint) END FROM left_alone o
  WHERE l.agent_id = $1 AND l.room_id = o.room_id RETURNING l.room_id, l.owner
),
found AS (
  INSERT INTO room_leases (agent_id, room_id, owner)
  SELECT CAST($1 AS integer), room_id, CAST($2 AS bigint) FROM open
  WHERE $3 AND NOT EXISTS (SELECT FROM room_leases l WHERE l.agent_id = $1 AND l.room_id = open.room_id)
  ON CONFLICT DO NOTHING RETURNING room_id, owner
)
SELECT room_id FROM inherited WHERE owner = $2 UNION ALL SELECT room_id FROM found
"""


@dataclass(slots=True, eq=False)
class Worker:
    """An agent of this process among the processes that share its work; it gets a new one each time that it joins.

    `is_lost` is set once another process has declared it dead. `on_taken_over` receives the rooms of dead workers that
    are this one's now, `on_notify` what other processes tell this agent, "" after a time of which that is not known.
    """

    agent: int
    number: int
    takes_rooms: Callable[[], bool]
    on_taken_over: Callable[[Sequence[UUID]], None]
    on_notify: Callable[[str], None]
    renewed_at: float = -math.inf
    is_draining: bool = False
    is_lost: bool = False


class Heartbeat:
    """Renews the workers of this process together, and takes over the rooms of dead ones."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._workers: dict[int, Worker] = {}
        self._locked: set[int] = set()
        self._recovering_until = 0.0
        self._running = TaskSet("renewing this process's workers", logs_failures=False)
        self._renewal: asyncio.Task[None] | None = None

    @property
    def worker_count(self) -> int:
        """The number of this process's workers."""
        return len(self._workers)

    def add(self, worker: Worker) -> None:
        """Renew this worker too from now on."""
        self._workers[worker.number] = worker

    def remove(self, worker: Worker) -> None:
        """Stop renewing a worker."""
        self._workers.pop(worker.number, None)

    async def renew(self, worker: Worker) -> None:
        """Renew all workers unless this one has been just now, or is lost; raise StoreUnavailable if that fails.

        Calls at the same time share one renewal.
        """
        due = time.monotonic() - MIN_INTERVAL_SECONDS
        while worker.number in self._workers and worker.renewed_at < due:
            if self._renewal is None or self._renewal.done():
                self._renewal = self._running.start(self._renew_all())
            await asyncio.shield(self._renewal)

    async def close(self) -> None:
        """Close the connection; this releases the locks."""
        await self._running.cancel()
        self._disconnect()

    async def _renew_all(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                connection = await self._connect()
                await self._renew_rows(connection)
                await self._hold_locks(connection)
                if time.monotonic() >= self._recovering_until:
                    await self._take_over(connection)
        except Exception as error:  # after any error the state of the connection is unknown
            # Other processes may have been cut off too, and need time to return.
            self._recovering_until = time.monotonic() + RECONNECT_GRACE_SECONDS
            self._disconnect()
            raise explain_error(error, self._address.label) from error

    async def _connect(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._locked.clear()
            self._connection = await connect(self._address)
            await self._connection.add_listener(CHANNEL, self._on_notify)
            for worker in self._workers.values():
                worker.on_notify("")
        return self._connection

    async def _renew_rows(self, connection: Any) -> None:
        workers, now = list(self._workers.values()), time.monotonic()
        rows = await connection.fetch(RENEW_WORKERS, list(self._workers))
        are_draining = {row["position"]: row["is_draining"] for row in rows}
        for worker in workers:
            if worker.number in are_draining:
                worker.renewed_at, worker.is_draining = now, are_draining[worker.number]
            else:
                worker.is_lost = True
                self.remove(worker)

    async def _hold_locks(self, connection: Any) -> None:
        """Take the locks that this connection does not hold; an earlier connection still may."""
        workers = set(self._workers)
        if missing := workers - self._locked:
            self._locked.update(row[0] for row in await connection.fetch(TAKE_LOCKS, list(missing)))
        if surplus := self._locked - workers:
            await connection.fetch(RELEASE_LOCKS, list(surplus))
            self._locked -= surplus

    async def _take_over(self, connection: Any) -> None:
        workers = list(self._workers.values())
        if len(workers) > 1:  # most agents have nothing that is to be taken over
            agents = [worker.agent for worker in workers]
            numbers = [worker.number for worker in workers]
            rows = await connection.fetch(FIND_AGENTS_TO_LOOK_AFTER, agents, numbers)
            concerned = {row[0] for row in rows}
            workers = [worker for worker in workers if worker.agent in concerned]
            random.shuffle(workers)  # so that other processes begin with other agents
        end = time.monotonic() + MAX_TAKE_OVER_SECONDS
        for worker in workers:
            if time.monotonic() > end:  # what is left follows after the next renewal
                return
            key = (worker.agent, worker.number)
            rows = await connection.fetch(TAKE_OVER_ROOMS, *key, worker.takes_rooms())
            worker.on_taken_over([UUID(bytes=row[0]) for row in rows])

    def _on_notify(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        agent = payload.partition(" ")[0]
        for worker in list(self._workers.values()):
            if agent in ("", str(worker.agent)):
                worker.on_notify(payload)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
