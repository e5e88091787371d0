"""Measure the real program: `bot run` with the web adapter, a file of SQLite, and a model server on the loopback.

`python -m benchmarks.program` is the model server. With REFERENCE, the folder of another checkout, that version is run
in alternating pairs with this one, and the ratio of CPU time is reported.
"""

import asyncio
import compileall
import json
import os
import re
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientConnectionError, ClientSession, TCPConnector, web

from benchmarks.figures import Row, find_interval, format_milliseconds, report_progress

ROOMS = 100
WARM_UP_MESSAGES = ROOMS * 2  # nothing is measured while the first statements are prepared
MESSAGES = int(os.environ.get("MESSAGES", "2000"))
PAIRS = int(os.environ.get("PAIRS", "3"))
REFERENCE = os.environ.get("REFERENCE", "")
PACKAGES = ("bot", "adapters", "plugins")
MAX_DISCONNECTS = 5
TOKEN = "a-token-for-the-benchmark"
ANSWER_TEXT = "<response><thought>t</thought><actions>REPLY</actions><text>Hello from the model.</text></response>"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "model",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER_TEXT}}],
    "usage": {"prompt_tokens": 1500, "completion_tokens": 20, "total_tokens": 1520},
}
TICKS = os.sysconf("SC_CLK_TCK")
Run = tuple[float, ...]


def measure_program() -> list[Row]:
    """Run the program, in pairs with the reference if there is one."""
    return asyncio.run(_measure_program())


async def _measure_program() -> list[Row]:
    runs, reference_runs = await run_pairs(_run_program)
    ready, cpu, rate, calls = (statistics.median(run[index] for run in runs) for index in range(4))
    ratios = [run[1] / run[3] for run in runs]
    rows = [
        ("real program: CPU time until it is ready", f"{ready:.2f} s"),
        (f"real program: {MESSAGES} messages in {ROOMS} rooms", f"{format_milliseconds(cpu)} CPU each, {rate:.0f}/s"),
        (
            "its model calls alone, a bare HTTP client",
            f"{format_milliseconds(calls)} CPU a message; the program takes {statistics.median(ratios):.1f} times as "
            f"much ({min(ratios):.1f} to {max(ratios):.1f}, {len(ratios)} runs)",
        ),
    ]
    if reference_runs:
        rows.append(("real program: CPU time of the reference", describe_ratios(runs, reference_runs, 1)))
    return rows


async def run_pairs(run: Callable[[str], Awaitable[Run]]) -> tuple[list[Run], list[Run]]:
    """Return the figures of PAIRS runs of this folder, and those of the reference, in alternating order."""
    here = str(Path(__file__).parents[1])
    runs: dict[str, list[Run]] = {here: [], REFERENCE: []}
    for folder in filter(None, runs):  # as an installed program has it, also where Python may not write it
        for package in PACKAGES:
            compileall.compile_dir(Path(folder, package), quiet=1)
    for number in range(PAIRS):
        report_progress(f"run {number + 1} of {PAIRS}")
        folders = [here, REFERENCE] if REFERENCE else [here]
        for folder in folders[::-1] if number % 2 else folders:
            runs[folder].append(await run(folder))
    return runs[here], runs[REFERENCE]


def describe_ratios(runs: Sequence[Run], reference_runs: Sequence[Run], index: int) -> str:
    """Return one figure of the reference relative to this version: the median of the pairs and its interval."""
    ratios = [reference[index] / run[index] for run, reference in zip(runs, reference_runs, strict=True)]
    low, high = find_interval(ratios)
    return f"{statistics.median(ratios):.2f} times (95 % interval {low:.2f} to {high:.2f}, {len(ratios)} pairs)"


async def _run_program(folder: str) -> tuple[float, float, float, float]:
    """Return the CPU seconds until it is ready, those of a message, messages a second, and those of its model calls."""
    async with model_server() as server, running_program(folder, server) as program:
        ready = program.cpu_seconds()
        await program.exchange(WARM_UP_MESSAGES)
        before, started = program.cpu_seconds(), asyncio.get_running_loop().time()
        await program.exchange(MESSAGES)
        seconds = asyncio.get_running_loop().time() - started
        cpu = (program.cpu_seconds() - before) / MESSAGES
        return ready, cpu, MESSAGES / seconds, await _call_models(server)


async def _call_models(server: str) -> float:
    """Make as many and as long model calls as the program with a bare HTTP client; return the CPU seconds a message."""
    async with ClientSession(connector=TCPConnector(limit=ROOMS)) as session:
        async with session.get(f"{server}/received") as response:
            received = await response.json()
        count = received["completions"] * MESSAGES // (WARM_UP_MESSAGES + MESSAGES)
        content = "x" * (received["completion_bytes"] // received["completions"])

        async def call_in_turn(calls: int) -> None:
            for _ in range(calls):
                body = {"model": "model", "messages": [{"role": "user", "content": content}]}
                async with session.post(f"{server}/v1/chat/completions", json=body) as answer:
                    await answer.json()

        await asyncio.gather(*(call_in_turn(2) for _ in range(ROOMS)))
        started = time.process_time()
        await asyncio.gather(*(call_in_turn(count // ROOMS) for _ in range(ROOMS)))
        return (time.process_time() - started) / MESSAGES


@dataclass(frozen=True, slots=True)
class Program:
    """A running `bot run`; `session` keeps its connections, since few new ones may be open at once."""

    pid: int
    url: str
    session: ClientSession

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its children until now."""
        return cpu_seconds(self.pid)

    async def exchange(self, count: int) -> None:
        """Send `count` messages in all rooms at once, and wait for their answers."""
        async with asyncio.TaskGroup() as group:
            for room in range(ROOMS):
                group.create_task(_exchange_in_room(self.session, self.url, room, count // ROOMS))


@asynccontextmanager
async def running_program(
    folder: str, server: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Run the program of a checkout with a character and a model of its own; `server` is the address of the models."""
    with tempfile.TemporaryDirectory() as data:
        _write_character(Path(data, "ada.json"))
        model = {f"OPENAI_{size}_MODEL": "model" for size in ("LARGE", "SMALL")}
        layer = {"OPENAI_BASE_URL": f"{server}/v1", "OPENAI_API_KEY": "a-key", **model, **(settings or {})}
        layer |= {"SERVER_PORT": "0", "SERVER_TOKEN": TOKEN, "BOT_DATA_DIR": data, "LOG_LEVEL": "info"}
        session = ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}, connector=TCPConnector(limit=0))
        async with session, _running_bot(folder, data, layer) as (process, url):
            yield Program(process.pid, url, session)


def _write_character(path: Path) -> None:
    path.write_text(json.dumps({"name": "Ada", "bio": ["Ada answers briefly."]}), encoding="utf-8")


@asynccontextmanager
async def _running_bot(folder: str, data: str, settings: Mapping[str, str]) -> AsyncIterator[tuple[Process, str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": data, "PYTHONPATH": folder, **settings}
    command = [sys.executable, "-m", "bot", "run", "-c", "ada.json"]
    process = await asyncio.create_subprocess_exec(*command, cwd=data, env=environment, stdout=PIPE, stderr=PIPE)
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    readers = [asyncio.create_task(_find_address(stream, found)) for stream in (process.stdout, process.stderr)]
    try:
        url = await asyncio.wait_for(found, 60)
        await _until_ready(url)
        yield process, url
    finally:
        process.terminate()
        await process.wait()
        await asyncio.gather(*readers)


async def _find_address(stream: asyncio.StreamReader | None, found: asyncio.Future[str]) -> None:
    """Read the output of the bot to its end; the first address in it is that of its page."""
    assert stream is not None
    async for line in stream:
        address = re.search(rb"http://127\.0\.0\.1:\d+", line)
        if address and not found.done():
            found.set_result(address[0].decode())


async def _until_ready(url: str) -> None:
    async with ClientSession() as session:
        while True:
            async with session.get(f"{url}/healthz") as response:
                if response.ok:
                    return
            await asyncio.sleep(0.02)


async def _exchange_in_room(session: ClientSession, url: str, room: int, count: int) -> None:
    for number in range(count):
        body = {"text": f"Message number {number}", "room": f"room {room}", "user": f"person {room}"}
        answer = await _post(session, f"{url}/api/agents/ada/messages", body)
        if answer.get("outcome") != "answered":
            raise SystemExit(f"the measurement is invalid, a message was not answered: {answer}")


async def _post(session: ClientSession, url: str, body: Mapping[str, str]) -> Any:
    """Post a message, again where the server has closed the connection: it does with those that were silent."""
    for _ in range(MAX_DISCONNECTS):
        with suppress(ClientConnectionError):
            async with session.post(url, json=body) as response:
                return await response.json()
    raise SystemExit("the measurement is invalid, the server closes all connections")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children, of which the ended ones are in its own figures."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(value) for value in fields[11:15]) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


@asynccontextmanager
async def model_server() -> AsyncIterator[str]:
    """Run the model server, which takes the data of OpenTelemetry too, in a process of its own; yield its address."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.program", stdout=PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()


async def _serve_model() -> None:
    body = json.dumps(ANSWER).encode()

    received: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.Response:
        received.update(completions=1, completion_bytes=len(await request.read()))
        return web.Response(body=body, content_type="application/json")

    async def list_models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "model", "object": "model"}]})

    async def receive(request: web.Request) -> web.Response:
        received[request.match_info["signal"]] += len(await request.read())
        return web.Response(content_type="application/x-protobuf")

    async def list_received(request: web.Request) -> web.Response:
        return web.json_response(received)

    app = web.Application(client_max_size=0)
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_post("/v1/{signal:traces|metrics|logs}", receive)
    app.router.add_get("/received", list_received)
    app.router.add_get("/v1/models", list_models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_model())
