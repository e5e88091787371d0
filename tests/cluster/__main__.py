"""Run a cluster of real processes on one PostgreSQL, measure it, disturb it, and print tables: `make cluster`."""

import argparse
import asyncio
import os
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.server import running_durable_server
from tests.cluster.faults import CALM_SECONDS, FAULTS, Scene
from tests.cluster.members import Cluster, Platform, cpu_seconds
from tests.cluster.server import ServerControl, measure_reference, standby_folder
from tests.cluster.shards import SHARD_FAULTS, SHARDS, disturb_shards
from tests.cluster.tokens import disturb_tokens
from tests.postgres import PostgresServer
from tests.store.sql.postgres.proxy import Proxy

STATEMENTS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{name}'"
MAX_CONNECTIONS = 300  # a worker has up to 15
SETTLE_SECONDS = 1.2  # the server reports its statistics once a second


def main() -> int:
    """Measure and disturb; return 1 if anything was lost, doubled or reordered."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--workers", default="1,2,4,8", help="numbers of workers that are measured")
    parser.add_argument("--messages", type=int, default=1000, help="messages of each measurement")
    parser.add_argument("--rooms", type=int, default=100)
    parser.add_argument("--hot", type=int, default=10, help="times as many messages in the first room, under faults")
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="names of the faults, in their order; empty for none"
    )
    parser.add_argument(
        "--shard-faults",
        default=",".join(SHARD_FAULTS),
        help="names of the faults of a bot with shards; empty for none",
    )
    parser.add_argument("--tokens", type=int, default=1000, help="characters with a Telegram token each; 0 for none")
    parser.add_argument("--snapshot", type=float, default=5.0, help="seconds for which the oldest snapshot is held")
    parser.add_argument("--members", type=int, default=3, help="workers under faults")
    given = parser.parse_args()
    with running_durable_server() as server, standby_folder() as folder:
        is_clean = asyncio.run(run(given, server, folder))
    return 0 if is_clean else 1


async def run(given: argparse.Namespace, server: PostgresServer, folder: Path) -> bool:
    """Print both tables; return whether nothing was lost, doubled or reordered."""
    now = datetime.now(UTC)
    await ServerControl(server).allow_connections(MAX_CONNECTIONS)
    write(f"{now:%Y-%m-%d}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {given.rooms} rooms\n")
    write("| workers | messages/s | p50 | p99 | CPU workers | CPU server | commits | CPU bare driver | ratio |")
    write("|---|---|---|---|---|---|---|---|---|")
    costs = [await measure(server, int(count), given) for count in given.workers.split(",") if count]
    if costs:
        worker, database = (statistics.median(cost[index] for cost in costs) for index in range(2))
        write(f"\n{describe_model(worker, database)}")
    is_clean = await disturb_sharded(server, [name for name in given.shard_faults.split(",") if name])
    is_clean &= await disturb_many(server, given.tokens)
    names = [name for name in given.faults.split(",") if name]
    return (not names or await disturb(server, names, given, folder)) and is_clean


async def measure(server: PostgresServer, count: int, given: argparse.Namespace) -> tuple[float, float]:
    """Print a line for this many workers; return the CPU seconds of a message, those of the workers and the server."""
    control = ServerControl(server)
    with server.database() as name:
        rate, reference = await measure_reference(server.url(name), control, given.messages)
    with server.database() as name:
        async with Platform().running() as platform, Cluster(server.url(name), platform).running(count) as cluster:
            await cluster.write(given.rooms, messages=given.rooms)  # statements are prepared, rooms have owners
            await cluster.wait_answered()
            cluster.sent_at.clear()
            platform.arrived_at.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            commits, before = commits_of(server, name), (cluster.cpu_seconds(), cpu_of(control))
            started = time.monotonic()
            await cluster.write(given.rooms, messages=given.messages)
            lost = await cluster.wait_answered()
            seconds = time.monotonic() - started
            after = (cluster.cpu_seconds(), cpu_of(control))
            await asyncio.sleep(SETTLE_SECONDS)
            number = len(cluster.sent_at)
            worker, database = ((late - early) / number for early, late in zip(before, after, strict=True))
            times = cluster.latencies()
            made = (commits_of(server, name) - commits) / number
    figures = (
        f"{number / seconds:.0f}",
        f"{milliseconds(times[len(times) // 2])}",
        f"{milliseconds(times[len(times) * 99 // 100])}",
        milliseconds(worker),
        milliseconds(database),
        f"{made:.1f}",
        f"{milliseconds(reference)} ({rate:.0f}/s)",
        f"{(worker + database) / reference:.1f}",
    )
    write(f"| {count} | {' | '.join(figures)} |{f' {len(lost)} lost' if lost else ''}")
    return worker, database


def describe_model(worker: float, database: float) -> str:
    """Return where PostgreSQL becomes the limit, from the CPU seconds of a message."""
    cores = 16
    limit = cores / database if database else 0.0
    return (
        f"Beyond this machine: a worker's core answers {1 / worker:.0f} messages a second, a core of the server takes "
        f"{1 / database:.0f}. A server with {cores} cores is the limit at {limit:.0f} messages a second, with "
        f"{limit * worker:.0f} cores of workers; beyond that, each character gets a database of its own."
    )


async def disturb_sharded(server: PostgresServer, names: list[str]) -> bool:
    """Print what each fault did to a bot with shards; return whether nothing was lost, doubled or reordered."""
    is_clean = True
    if names:
        write(f"\n| fault, {SHARDS} Discord shards | answered | lost | doubled | inversions | take-over |")
        write("|---|---|---|---|---|---|")
    for name in names:
        with server.database() as database:
            verdict, taken = await disturb_shards(server.url(database), name)
        write(f"| {name} | {' | '.join(map(str, verdict))} | {taken:.2f} s |")
        is_clean &= not any(verdict[1:])
    return is_clean


async def disturb_many(server: PostgresServer, tokens: int) -> bool:
    """Print what a killed gateway did to many characters; return whether nothing was lost, doubled or reordered."""
    if not tokens:
        return True
    write(f"\n| {tokens} Telegram tokens | answered | lost | doubled | inversions | ready | take-over |")
    write("|---|---|---|---|---|---|---|")
    with server.database() as database:
        verdict, ready, taken = await disturb_tokens(server.url(database), tokens)
    write(f"| SIGKILL of one of 2 gateways | {' | '.join(map(str, verdict))} | {ready:.0f} s | {taken:.2f} s |")
    return not any(verdict[1:])


async def disturb(server: PostgresServer, names: list[str], given: argparse.Namespace, folder: Path) -> bool:
    """Print what each fault did to a cluster in which people write; return whether nothing was lost or doubled."""
    write(
        f"\n| fault, {given.members} workers | answered | lost | doubled | inversions | refused repeats | take-over |"
    )
    write("|---|---|---|---|---|---|---|")
    is_clean = True
    control = ServerControl(server)
    for name in names:
        with server.database() as database:
            is_clean &= await disturb_once(server, control, database, name, given, folder)
        if name == "fail-over":
            break  # the server that is left has other data
    return is_clean


async def disturb_once(
    server: PostgresServer, control: ServerControl, database: str, name: str, given: argparse.Namespace, folder: Path
) -> bool:
    """Print what one fault did."""
    proxy = Proxy(server.url(database))
    async with proxy.running(), Platform().running() as platform:
        standby = control.standby(folder) if name == "fail-over" else None
        cluster = Cluster(proxy.url, platform)
        async with cluster.running(given.members):
            writing = asyncio.create_task(cluster.write(given.rooms, hot=given.hot))
            await asyncio.sleep(CALM_SECONDS)
            scene = Scene(cluster, control, proxy, server.url(database), given.snapshot)
            if standby is not None:
                with standby as scene.standby:
                    taken, lost = await _disturb(scene, name, writing)
                control.start()  # its database is dropped at the end
            else:
                taken, lost = await _disturb(scene, name, writing)
    cells = (len(platform.arrived_at), len(lost), len(platform.doubles), platform.inversions, platform.repeats)
    write(f"| {name} | {' | '.join(map(str, cells))} | {f'{taken:.2f} s' if taken else ''} |")
    for complaint in (*[f"lost: {room}-{number}" for room, number in lost[:5]], *platform.doubles[:5]):
        write(f"    {complaint}")
    for room, texts in platform.posts.items():
        if texts != sorted(texts):
            write(f"    inverted: {room} {texts}")
    return not (lost or platform.doubles or platform.inversions)


async def _disturb(scene: Scene, name: str, writing: asyncio.Task[None]) -> tuple[float, list[tuple[str, int]]]:
    taken = await FAULTS[name](scene)
    await asyncio.sleep(CALM_SECONDS)
    scene.cluster.is_over = True
    await writing
    return taken, await scene.cluster.wait_answered()


def commits_of(server: PostgresServer, name: str) -> int:
    """Return the number of transactions of a database."""
    return int(server.run(STATEMENTS.format(name=name)))


def cpu_of(control: ServerControl) -> float:
    """Return the CPU time of the server."""
    return cpu_seconds(control.pid)


def milliseconds(seconds: float) -> str:
    """Return a time to print."""
    return f"{seconds * 1000:.1f} ms"


def write(line: str) -> None:
    """Write a line without delay."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
