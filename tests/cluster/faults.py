"""What may happen to a cluster while people write: each fault takes its time, and says how long the take-over took."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it brings no types

from tests.cluster.members import Cluster, Worker
from tests.cluster.server import ServerControl, Standby
from tests.store.sql.postgres.proxy import Proxy

FROZEN_SECONDS, READ_ONLY_SECONDS, STALL_SECONDS = 7.0, 3.0, 2.0
CALM_SECONDS = 1.5
TAKE_OVER_TIMEOUT = 15.0
OWNED = "SELECT count(*) FROM room_leases WHERE owner = $1"
ALIVE_UNTIL = "SELECT alive_until / 1000000.0 - extract(epoch FROM clock_timestamp()) FROM workers WHERE position = $1"


@dataclass
class Scene:
    """A running cluster, its server, the way there, and an observer's address that bypasses that way."""

    cluster: Cluster
    control: ServerControl
    proxy: Proxy
    observer_url: str
    snapshot_seconds: float
    standby: Standby | None = None


async def kill(scene: Scene) -> float:
    """Kill a worker, start another; return the seconds until its rooms had another owner."""
    victim = _choose(scene.cluster)
    async with _observer(scene) as observer:
        victim.is_usable = False
        victim.signal(signal.SIGKILL)
        taken = await _until_taken(observer, victim, time.monotonic())
    await scene.cluster.start_worker()
    return taken


async def freeze(scene: Scene) -> float:
    """Freeze a worker for longer than its lease; return the seconds from the end of its lease to the take-over."""
    victim = _choose(scene.cluster)
    async with _observer(scene) as observer:
        victim.signal(signal.SIGSTOP)
        began = time.monotonic()
        left = float(await observer.fetchval(ALIVE_UNTIL, victim.number) or 0.0)
        taken = await _until_taken(observer, victim, began + left)
    await asyncio.sleep(max(0.0, FROZEN_SECONDS - (time.monotonic() - began)))
    victim.signal(signal.SIGCONT)
    return taken


async def restart(scene: Scene) -> float:
    """Restart the server as after a crash."""
    await scene.control.restart()
    return 0.0


async def make_read_only(scene: Scene) -> float:
    """Make the server refuse writes for some seconds."""
    await asyncio.to_thread(scene.control.set_read_only, True)
    await asyncio.sleep(READ_ONLY_SECONDS)
    await asyncio.to_thread(scene.control.set_read_only, False)
    return 0.0


async def cut(scene: Scene) -> float:
    """Cut all connections, and refuse new ones for some seconds."""
    scene.proxy.is_down = True
    scene.proxy.hang_up()
    await asyncio.sleep(STALL_SECONDS)
    scene.proxy.is_down = False
    return 0.0


async def hold_snapshot(scene: Scene) -> float:
    """Hold the oldest snapshot in a transaction for some seconds."""
    async with _observer(scene) as observer, observer.transaction(isolation="repeatable_read"):
        await observer.fetchval("SELECT count(*) FROM receipts")
        await asyncio.sleep(scene.snapshot_seconds)
    return 0.0


async def fail_over(scene: Scene) -> float:
    """Stop the server as a power cut would, and let its standby take over."""
    assert scene.standby is not None
    await scene.standby.take_over(scene.proxy)
    return 0.0


FAULTS: Mapping[str, Callable[[Scene], Awaitable[float]]] = {
    "SIGKILL": kill,
    "SIGSTOP beyond a lease": freeze,
    "restart of the server": restart,
    "read-only server": make_read_only,
    "cut connections": cut,
    "oldest snapshot held": hold_snapshot,
    "fail-over": fail_over,
}


def _choose(cluster: Cluster) -> Worker:
    return next(worker for worker in cluster.workers if worker.is_usable)


@asynccontextmanager
async def _observer(scene: Scene) -> AsyncIterator[Any]:
    """Yield a connection that bypasses the proxy."""
    connection = await asyncpg.connect(scene.observer_url)
    try:
        yield connection
    finally:
        await connection.close()


async def _until_taken(observer: Any, victim: Worker, since: float) -> float:
    """Return the seconds from a time until a worker owns no room."""
    while await observer.fetchval(OWNED, victim.number):
        assert time.monotonic() - since < TAKE_OVER_TIMEOUT, "no other worker took the rooms over"
        await asyncio.sleep(0.02)
    return max(0.0, time.monotonic() - since)
