"""Two processes share the work over one PostgreSQL: killed or frozen, nothing is lost and nothing doubled."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("sharing_process.py")
ROOT = SCRIPT.parents[4]
WAIT_TIMEOUT = 20.0


class Platform:
    """A chat platform that refuses duplicates by their nonce; while held, it does not answer."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.repeats = 0
        self.port = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self._seen: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Platform"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    def texts_in(self, room: str) -> list[str]:
        return [text for where, text in self.texts if where == room]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        post = json.loads(await reader.readline())
        if post["nonce"] in self._seen:
            self.repeats += 1
        else:
            self._seen[post["nonce"]] = f"sent-{len(self._seen)}"
            self.texts.append((post["room"], post["text"]))
        await self.answers.wait()
        writer.write(self._seen[post["nonce"]].encode() + b"\n")
        writer.close()


class Process:
    """One of the processes that share the work, with its output so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._news = asyncio.Condition()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def say(self, text: str, room: str = "lobby") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"text": text, "room": room}).encode() + b"\n")

    async def until(self, prefix: str) -> None:
        try:
            async with asyncio.timeout(WAIT_TIMEOUT), self._news:
                await self._news.wait_for(lambda: any(line.startswith(prefix) for line in self.lines))
        except TimeoutError:
            pytest.fail(f"it did not come to {prefix!r}, but to {self.lines}")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def stop(self) -> None:
        assert self._process.stdin is not None
        if self._process.returncode is None:
            self._process.stdin.close()
            async with asyncio.timeout(WAIT_TIMEOUT):
                await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            async with self._news:
                self.lines.append(line.decode().strip())
                self._news.notify_all()


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    """Run the platform."""
    async with Platform().running() as running:
        yield running


@asynccontextmanager
async def process(url: str, platform: Platform, name: str) -> AsyncIterator[Process]:
    """Start processes, and stop them afterwards."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        url,
        str(platform.port),
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    running = Process(started)
    try:
        await running.until(f"ready {name}")
        yield running
        await running.stop()
    finally:
        if started.returncode is None:
            started.kill()
            await running.stop()


@pytest.mark.parametrize("is_first", [True, False], ids=["the first", "the second"])
async def test_the_work_of_a_killed_process_is_taken_over(
    postgres_url: str, platform: Platform, is_first: bool
) -> None:
    async with process(postgres_url, platform, "a") as first, process(postgres_url, platform, "b") as second:
        killed_process, two = (first, second) if is_first else (second, first)
        await killed_process.say("slow-1")
        await killed_process.until("thinking slow-1")
        killed_process.signal(signal.SIGKILL)
        await two.until("thinking slow-1")
        await two.say("quick-2")
        await two.until("settled quick-2 answered")
    assert platform.texts_in("lobby")[-1] == "I heard quick-2"
    assert len(platform.texts) == len(set(platform.texts)) <= 2


async def test_a_process_frozen_during_an_answer_does_not_send_it_after_a_takeover(
    postgres_url: str, platform: Platform
) -> None:
    async with process(postgres_url, platform, "one") as first, process(postgres_url, platform, "two") as second:
        await first.say("slow-1")
        await first.until("thinking slow-1")
        first.signal(signal.SIGSTOP)
        await second.until("sending I heard slow-1")
        first.signal(signal.SIGCONT)
        await first.until("settled slow-1 answered")  # by the other one
        await first.say("quick-2")
        await first.until("settled quick-2 answered")
        await first.say("quick-3", room="attic")  # and in a room of its own it is as before
        await first.until("sending I heard quick-3")
    assert platform.texts_in("lobby") == ["I heard slow-1", "I heard quick-2"]
    assert platform.texts_in("attic") == ["I heard quick-3"]
    assert platform.repeats == 0
    assert "sending I heard quick-2" in second.lines  # whose the room is now


async def test_a_process_frozen_during_a_send_doubles_nothing(postgres_url: str, platform: Platform) -> None:
    async with process(postgres_url, platform, "one") as first, process(postgres_url, platform, "two") as second:
        platform.answers.clear()
        await first.say("quick-1")
        await first.until("sending I heard quick-1")
        first.signal(signal.SIGSTOP)
        await second.until("sending I heard quick-1")
        await second.say("quick-2")
        platform.answers.set()
        await second.until("settled quick-2 answered")
        first.signal(signal.SIGCONT)
        await first.say("quick-3")
        await first.until("settled quick-3 answered")
        await second.until("sending I heard quick-3")
    assert platform.texts_in("lobby") == ["I heard quick-1", "I heard quick-2", "I heard quick-3"]
    assert platform.repeats == 1


async def test_messages_received_by_both_are_answered_once_and_in_order(postgres_url: str, platform: Platform) -> None:
    async with process(postgres_url, platform, "one") as first, process(postgres_url, platform, "two") as second:
        await first.say("quick-0")
        await first.until("settled quick-0 answered")
        for number in range(1, 11):
            await (first, second)[number % 2].say(f"quick-{number}")
            await (first, second)[number % 2].until(f"kept quick-{number}")
        for number in range(1, 11):
            await (first, second)[number % 2].until(f"settled quick-{number}")
    outcomes = [line.split() for line in (*first.lines, *second.lines) if line.startswith("settled")]
    assert len(outcomes) == 11
    answered = [text for _, text, outcome in outcomes if outcome == "answered"]
    assert len(answered) == len(platform.texts_in("lobby"))
    assert {outcome for _, _, outcome in outcomes} <= {"answered", "superseded"}
    assert not [line for line in second.lines if line.startswith(("thinking", "sending"))]


async def test_a_process_that_stops_releases_its_rooms_at_once(postgres_url: str, platform: Platform) -> None:
    async with process(postgres_url, platform, "one") as first, process(postgres_url, platform, "two") as second:
        await first.say("quick-1")
        await first.until("settled quick-1 answered")
        await first.stop()
        await second.say("quick-2")
        await second.until("sending I heard quick-2")
    assert platform.texts_in("lobby") == ["I heard quick-1", "I heard quick-2"]
