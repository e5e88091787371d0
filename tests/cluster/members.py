"""The worker processes, the platform that they answer on, and people who write in many rooms."""

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEARD = re.compile(r"I heard (room\d+)-(\d+)")
TICKS = os.sysconf("SC_CLK_TCK")
OPEN_MESSAGES = 2  # unanswered messages of a room, at most
STORE_TIMEOUT, DRAIN_TIMEOUT, START_TIMEOUT = 8.0, 60.0, 60.0


@dataclass
class Platform:
    """Records posts; refuses duplicates by their nonce."""

    port: int = 0
    posts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    arrived_at: dict[tuple[str, int], float] = field(default_factory=dict)
    repeats: int = 0
    doubles: list[str] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)
    _news: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Platform"]:
        """Serve on the loopback."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            server.close()

    async def wait_posts(self, room: str, count: int) -> None:
        """Wait until a room has this many posts, for a minute at most."""
        while len(self.posts[room]) < count:
            self._news[room].clear()
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT):
                    await self._news[room].wait()
            except TimeoutError:
                return

    @property
    def inversions(self) -> int:
        """The number of posts that came after a later one of their room."""
        return sum(later < earlier for texts in self.posts.values() for earlier, later in pairwise(texts))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                post = json.loads(line)
                await self._record(post["nonce"], post["text"])
                writer.write(self._seen[post["nonce"]].encode() + b"\n")
        writer.close()

    async def _record(self, nonce: str, text: str) -> None:
        if nonce in self._seen:
            self.repeats += 1
            return
        self._seen[nonce] = f"sent-{len(self._seen)}"
        found = HEARD.search(text)
        if found is None:
            self.doubles.append(text)
            return
        room, number = found[1], int(found[2])
        if (room, number) in self.arrived_at:
            self.doubles.append(text)
        self.posts[room].append(number)
        self.arrived_at.setdefault((room, number), time.monotonic())
        self._news[room].set()


class Worker:
    """One worker process; `number` is that of its leases."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.number = 0
        self.is_usable = False
        self.stored: set[str] = set()
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    async def wait_ready(self) -> None:
        """Wait until it takes messages."""
        async with asyncio.timeout(START_TIMEOUT), self._news:
            await self._news.wait_for(lambda: self.number or self._process.returncode is not None)
        assert self.number, "a worker ended while it started"
        self.is_usable = True

    async def store(self, room: str, text: str, author: str) -> bool:
        """Hand over a message; return whether it was stored."""
        try:
            self._process.stdin.write(json.dumps({"room": room, "text": text, "author": author}).encode() + b"\n")  # type: ignore[union-attr]
            async with asyncio.timeout(STORE_TIMEOUT), self._news:
                await self._news.wait_for(lambda: text in self.stored or self._process.returncode is not None)
        except (OSError, TimeoutError):
            await asyncio.sleep(0)
            return False
        return text in self.stored

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def stop(self) -> None:
        """End it by closing its input."""
        self.is_usable = False
        if self._process.returncode is None:
            self._process.stdin.close()  # type: ignore[union-attr]
            try:
                async with asyncio.timeout(20):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        while line := await self._process.stdout.readline():  # type: ignore[union-attr]
            what, _, about = line.decode().strip().partition(" ")
            if what == "ready":
                self.number = int(about)
            elif what == "stored":
                self.stored.add(about)
            async with self._news:
                self._news.notify_all()
        await self._process.wait()
        self.is_usable = False
        async with self._news:
            self._news.notify_all()


class Cluster:
    """Workers of one database, and rooms in which people write."""

    def __init__(self, url: str, platform: Platform, seed: int = 1) -> None:
        self._url = url
        self.platform = platform
        self.workers: list[Worker] = []
        self.sent_at: dict[tuple[str, int], float] = {}
        self.is_over = False
        self._random = random.Random(seed)

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator["Cluster"]:
        """Run this many workers, the first before the others so that it creates the tables."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            await self.start_worker()
            await asyncio.gather(*(self.start_worker() for _ in range(count - 1)))
            yield self

    async def start_worker(self, folder: Path = ROOT) -> Worker:
        """Start one more worker, with the code of a folder."""
        command = (sys.executable, str(ROOT / "tests" / "cluster" / "worker.py"), self._url, str(self.platform.port))
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        worker = Worker(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment))
        self.workers.append(worker)
        await worker.wait_ready()
        return worker

    async def write(self, rooms: int, *, hot: int = 0, messages: int = 0) -> None:
        """Write in all rooms, in the first `hot` times as much, until it is over or for so many messages in all."""
        async with asyncio.TaskGroup() as group:
            for number in range(rooms):
                most = messages // rooms if messages else 0
                open_messages = OPEN_MESSAGES * (hot if not number else 1) if hot else 1
                group.create_task(self._write_in(f"room{number}", most, open_messages))

    async def wait_answered(self) -> list[tuple[str, int]]:
        """Wait for all answers; return the messages that have none."""
        last: dict[str, int] = {}
        for room, number in self.sent_at:
            last[room] = max(number, last.get(room, 0))
        for room, number in last.items():
            await self.platform.wait_posts(room, number)
        return [key for key in self.sent_at if key not in self.platform.arrived_at]

    def latencies(self) -> list[float]:
        """Return the seconds from each message to its answer."""
        arrived = self.platform.arrived_at
        return sorted(arrived[key] - sent for key, sent in self.sent_at.items() if key in arrived)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the workers that run."""
        return sum(cpu_seconds(worker.pid) for worker in self.workers if worker.is_usable)

    async def _write_in(self, room: str, most: int, open_messages: int) -> None:
        before = number = len(self.platform.posts[room])
        while not self.is_over and (not most or number < before + most):
            number += 1
            self.sent_at[room, number] = time.monotonic()
            while not await self._choose_worker().store(
                room, f"{room}-{number}", room if open_messages == 1 else f"{room}-{number}"
            ):
                pass  # nothing was acknowledged: the platform hands it out again
            await self.platform.wait_posts(room, number - open_messages + 1)

    def _choose_worker(self) -> Worker:
        return self._random.choice([worker for worker in self.workers if worker.is_usable])

    async def _stop(self) -> None:
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.signal(signal.SIGCONT)
        await asyncio.gather(*(worker.stop() for worker in self.workers))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children, of which the ended ones are in its own figures."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(value) for value in fields[11:15]) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = own
    for child in children:
        with suppress(FileNotFoundError):
            total += cpu_seconds(int(child))
    return total
