"""Measure what open tabs of the web page cost the bot: CPU time of a message with and without them."""

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, ClientWebSocketResponse

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from benchmarks.doubles import DiscardingAdapter, StatelessModel
from benchmarks.exchange import AGENT
from benchmarks.figures import Row, check_answered, find_interval, format_milliseconds, measure, report_progress
from bot.cli.process.shutdown import reduce_gc_frequency
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, make_message, running_agent

TABS = int(os.environ.get("TABS", "50"))
PAIRS = int(os.environ.get("PAIRS", "10"))
MESSAGES = int(os.environ.get("MESSAGES", "400"))
ROOMS = 20
LIMITS = Limits(resume_seconds=0.0)  # so that nothing is collected once the tabs are closed
TOKEN = "a-token-for-the-benchmark"
OVERVIEW = ["receipt", "delivery", "account", "model", "spending", "task"]


def measure_tabs() -> list[Row]:
    """Measure pairs of runs, with and without tabs, in alternating order."""
    return asyncio.run(_measure_tabs())


async def _measure_tabs() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            OpenFiles().open_store(Path(folder, "a.db"), AGENT) as store,
            running_agent(store=store, model=StatelessModel(), adapter=DiscardingAdapter()) as harness,
        ):
            handle = harness.agent_runtime.handle
            settings = {"SERVER_PORT": "0", "SERVER_TOKEN": TOKEN}
            async with WebAdapter([handle], WebSettings.model_validate(settings), TOKEN, limits=LIMITS) as web:
                await _exchange(harness)
                reduce_gc_frequency()
                rooms = [str(room.id) for room in await store.worlds.rooms()]
                pairs = [await _measure_pair(harness, web.port, rooms, number) for number in range(PAIRS)]
    ratios = [with_tabs / without for without, with_tabs in pairs]
    low, high = find_interval(ratios)
    middle, low, high = (100 * (ratio - 1) for ratio in (statistics.median(ratios), low, high))
    text = f"{middle:+.1f} % CPU (95 % interval {low:+.1f} to {high:+.1f})"
    alone = format_milliseconds(statistics.median(without for without, _ in pairs))
    return [(f"{TABS} open tabs, {PAIRS} pairs of {MESSAGES} messages", f"{text}, {alone} CPU a message without tabs")]


async def _measure_pair(harness: AgentHarness, port: int, rooms: Sequence[str], number: int) -> tuple[float, float]:
    """Return the CPU seconds of a message without tabs and with them; which is first alternates."""
    report_progress(f"pair {number + 1} of {PAIRS}")
    if number % 2:
        with_tabs = await _measure_with_tabs(harness, port, rooms)
        return await _exchange(harness), with_tabs
    without = await _exchange(harness)
    return without, await _measure_with_tabs(harness, port, rooms)


async def _measure_with_tabs(harness: AgentHarness, port: int, rooms: Sequence[str]) -> float:
    async with _open_tabs(port, rooms):
        return await _exchange(harness)


@asynccontextmanager
async def _open_tabs(port: int, rooms: Sequence[str]) -> AsyncIterator[None]:
    """Hold tabs open in a process of their own, so that its time is not counted."""
    command = [sys.executable, "-m", "benchmarks.tabs", str(port), *rooms]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"open\n":
            raise SystemExit("the measurement is invalid, the tabs could not be opened")
        yield
    finally:
        received, _ = await process.communicate(b"")
        if process.returncode or not int(received or 0):
            raise SystemExit("the measurement is invalid, the tabs have received nothing")


async def _exchange(harness: AgentHarness) -> float:
    """Send messages in several rooms at once; return the CPU seconds of each, until its reply is sent."""
    with measure() as usage:
        await asyncio.gather(*(_exchange_in_room(harness, room) for room in range(ROOMS)))
        await asyncio.sleep(0.5)  # for what is sent to the tabs last
    return usage.cpu / (MESSAGES // ROOMS * ROOMS)


async def _exchange_in_room(harness: AgentHarness, room: int) -> None:
    inbox = harness.agent_runtime.inbox
    for _ in range(MESSAGES // ROOMS):
        message = make_message("Hello", sent_at=harness.agent.clock(), room=f"room {room}", author=f"person {room}")
        check_answered(await inbox.wait_outcome((await inbox.submit(message)).id))


def topics_of(tab: int, rooms: Sequence[str]) -> list[Mapping[str, str | bool]]:
    """Return the topics of a tab, as its page subscribes: the overview, a room, the log, or a conversation."""
    room = rooms[tab % len(rooms)]
    pages: Sequence[Sequence[Mapping[str, str | bool]]] = (
        [{"kind": kind, "is_summary": True} for kind in OVERVIEW],
        [
            {"kind": "message", "is_summary": True},
            {"kind": "message", "room": room, "is_summary": True},
            {"kind": "receipt", "room": room},
        ],
        [{"kind": "log", "level": "info"}],
        [{"kind": "conversation"}],
    )
    return list(pages[tab % len(pages)])


async def _run_tabs(port: int, rooms: Sequence[str]) -> None:
    counts: Counter[int] = Counter()
    async with ClientSession() as session, asyncio.TaskGroup() as group:
        url, headers = f"http://127.0.0.1:{port}/api/ws", {"Authorization": f"Bearer {TOKEN}"}
        sockets = [await session.ws_connect(url, headers=headers) for _ in range(TABS)]
        for number, socket in enumerate(sockets):
            frame = {"type": "subscribe", "topics": topics_of(number, rooms), "is_batched": True}
            await socket.send_str(json.dumps(frame))
            await socket.receive()
        tasks = [group.create_task(_count_frames(socket, counts, number)) for number, socket in enumerate(sockets)]
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
    print(counts.total(), flush=True)


async def _count_frames(socket: ClientWebSocketResponse, counts: Counter[int], number: int) -> None:
    async for _ in socket:
        counts[number] += 1


if __name__ == "__main__":
    asyncio.run(_run_tabs(int(sys.argv[1]), sys.argv[2:]))
