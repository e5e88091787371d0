"""Shutdown at any time, and the next start, in real processes."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, web

from bot.cli.process.watchdog import FLUSH_TIMEOUT
from bot.runtime.runtime import STOP_TIMEOUT, TURNS_TIMEOUT
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import model_answer
from tests.chaos.program import inherited_variables
from tests.ports import free_port
from tests.trust import trust_code

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-tests"
DEADLINE = 30.0
WHOLE_STOP = 30.0  # ten seconds, and some for a busy machine
IN_FLIGHT = 50

# The program with smaller budgets: what it does at the end of ten seconds, it does after three, or one.
BRISK = """
import sys
from bot.runtime import runtime
runtime.TURNS_TIMEOUT = 2.0
from bot.cli.main import entry
sys.exit(entry())
"""
HASTY = """
import sys
from bot.runtime import runtime
from bot.cli.process import watchdog
runtime.STOP_TIMEOUT = watchdog.STOP_TIMEOUT = 0.6
watchdog.EXIT_GRACE_SECONDS, watchdog.RESPONSIVE_SECONDS, watchdog.POLL_SECONDS = 0.6, 0.3, 0.1
from bot.cli.main import entry
sys.exit(entry())
"""

FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from bot.cli.main import entry
sys.exit(entry())
"""

# A plugin that blocks for ever at the first message; and a shorter minute.
SPINNING = """
import pathlib
from bot import Plugin, provider
from bot.cli.process import watchdog

@provider("SPIN", "Spins once.")
def spin(turn):
    if not pathlib.Path("spun").exists():
        pathlib.Path("spun").touch()
        watchdog.POLL_SECONDS, watchdog.RESTART_SECONDS = 0.05, 0.2
        all(True for _ in iter(int, 1))

plugin = Plugin("spinning", providers=[spin])
"""

# A service that does on its way out what the test wants, and others that do worse than they should.
STUBBORN = """
import asyncio, threading, time
from bot import Plugin, Service

class Stubborn(Service):
    async def __aexit__(self, *cause):
        {statement}

class Endless(Service):
    async def __aexit__(self, *cause):
        await asyncio.Event().wait()

class LeavesThread(Service):
    async def __aexit__(self, *cause):
        threading.Thread(target=time.sleep, args=(3600,)).start()

class Raises(Service):
    async def __aexit__(self, *cause):
        raise SystemExit(3)

plugin = Plugin("stubborn", services=[Endless, LeavesThread, Raises, Stubborn])
"""

INIT = """
import asyncio, pathlib, sys
from bot import Plugin

async def init(agent):
    print("init", file=sys.stderr, flush=True)
    await asyncio.Event().wait()

plugin = Plugin("slow", init=init)
"""

IMPORT = """
import sys, time
print("import", file=sys.stderr, flush=True)
time.sleep(3600)
"""

# A platform that kills the process as soon as it is connected, as long as the file `deadly` is there.
PAGER = """
import os, pathlib, signal
from bot import SettingsModel
from bot.platform import Adapter, AdapterSpec

class Pager(Adapter):
    platform = "pager"

    async def __aenter__(self):
        if pathlib.Path("deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return self

    async def deliver(self, delivery):
        return delivery.id

adapter = AdapterSpec("pager", lambda doors: Pager(), SettingsModel)
"""

# A plugin whose import makes earlier starts almost five minutes old.
AGING = """
import pathlib, re, time
from bot import Plugin

book = pathlib.Path("data", "boots.json")
book.write_text(re.sub(r'"at": [0-9.]+', f'"at": {time.time() - 298.5}', book.read_text()))
plugin = Plugin("aging")
"""


@dataclass
class ModelServer:
    """Answers quick requests immediately and slow ones when released."""

    url: str = ""
    asked: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    all_asked: asyncio.Event = field(default_factory=asyncio.Event)
    expected: int = 1

    async def complete(self, request: web.Request) -> web.Response:
        """Serve `/v1/chat/completions`."""
        prompt = json.dumps(await request.json())
        self.asked += 1
        if self.asked >= self.expected:
            self.all_asked.set()
        if text_of("never") in prompt:
            await asyncio.Event().wait()
        if text_of("slow") in prompt:
            await self.go.wait()
        return web.json_response({"choices": [{"message": {"content": model_answer("At last.")}}]})


@asynccontextmanager
async def serving(model: ModelServer) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """Return a local model server."""
    server = ModelServer()
    async with serving(server):
        yield server


@dataclass
class Program:
    """A folder in which `bot run` is started repeatedly with one database."""

    folder: Path
    environment: Mapping[str, str]
    port: int
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    def write(self, name: str, content: object) -> None:
        """Write a file: text as it is, anything else as JSON."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_text(text, encoding="utf-8")
        if name.endswith(".py"):
            trust_code(self.folder, self.folder / "data")

    async def start(self, *, script: str = "", wait_for: str = "  web ", **variables: str) -> "Process":
        """Start it, and wait until it says that the page is there."""
        command = ["-c", script] if script else ["-m", "bot"]
        process = Process(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                *("run", "-c", "ada.json"),
                cwd=self.folder,
                env={**self.environment, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        )
        self.started.append(process.process)
        if wait_for:
            await process.says(wait_for)
        return process

    async def ask(self, client: ClientSession, text: str, key: str) -> tuple[int, dict[str, Any]]:
        """Send a message to a room of its own; again with the same key, and it is the same message."""
        asked = await client.post(
            f"http://127.0.0.1:{self.port}/api/agents/ada/messages",
            json={"text": text, "room": f"room {key}", "user": "kim", "idempotency_key": key},
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        return asked.status, await asked.json()

    async def receipt(self, client: ClientSession, message_id: str) -> dict[str, Any]:
        """Ask what became of a message."""
        found = await client.get(
            f"http://127.0.0.1:{self.port}/api/receipts/{message_id}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        body: dict[str, Any] = await found.json()
        return body


@dataclass
class Process:
    """One run of the process."""

    process: asyncio.subprocess.Process

    async def says(self, wanted: str, *, on_stderr: bool = False) -> str:
        """Read what it writes until a line holds these words; give that line."""
        stream = self.process.stderr if on_stderr else self.process.stdout
        assert stream is not None
        async with asyncio.timeout(DEADLINE):
            while line := (await stream.readline()).decode():
                if wanted in line:
                    return line
        _, rest = await self.process.communicate()
        raise AssertionError(f"the process ended without saying {wanted!r}: {rest.decode()}")

    async def stop(self, number: int = signal.SIGTERM, within: float = WHOLE_STOP) -> tuple[int | None, str]:
        """Send it a signal and wait for its end; gives the exit code and what is on stderr."""
        self.process.send_signal(number)
        return await self.ended(within)

    async def ended(self, within: float = DEADLINE) -> tuple[int | None, str]:
        """Wait for its end."""
        async with asyncio.timeout(within):
            _, err = await self.process.communicate()
        assert "Traceback" not in err.decode(), err.decode()
        return self.process.returncode, err.decode()


@pytest.fixture
async def program(tmp_path: Path, model: ModelServer) -> AsyncIterator[Program]:
    """Return an empty folder, a clean environment and the character Ada."""
    kept = inherited_variables("PATH", "HOME", "LANG", "SSL_CERT_FILE")
    port = free_port()
    own = {
        "BOT_DATA_DIR": str(tmp_path / "data"),
        "CRASH_LOOP_BOOTS": "0",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'bot.db'}",
        "OPENAI_BASE_URL": model.url,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "SERVER_PORT": str(port),
        "SERVER_TOKEN": TOKEN,
    }
    made = Program(tmp_path, kept | own, port)
    made.write("ada.json", {"name": "Ada"})
    yield made
    for process in made.started:
        if process.returncode is None:  # the test has failed before its end
            process.kill()
            await process.communicate()


async def answered(program: Program, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Ask again for messages that were sent before, and wait until each has its outcome."""
    async with ClientSession() as client, asyncio.timeout(DEADLINE):
        responses = await asyncio.gather(*(program.ask(client, text_of(key), key) for key in keys))
        assert [status for status, _ in responses] == [200] * len(keys)
        return [await program.receipt(client, body["message_id"]) for _, body in responses]


def text_of(key: str) -> str:
    return f"This one is {key.split()[0]}."


async def quietly(asking: Any) -> tuple[int, dict[str, Any]] | None:
    """Send a message whose answer the end of the process may cut off."""
    try:
        response: tuple[int, dict[str, Any]] = await asking
    except ClientError:
        return None
    return response


@pytest.mark.failure("K-08")
async def test_stopping_with_fifty_turns_in_progress_neither_loses_nor_doubles_messages(
    program: Program, model: ModelServer
) -> None:
    process = await program.start(script=BRISK)
    model.expected = IN_FLIGHT
    keys = [f"{'slow' if number % 2 else 'never'} {number}" for number in range(IN_FLIGHT)]
    async with ClientSession() as client:
        asking = [asyncio.ensure_future(quietly(program.ask(client, text_of(key), key))) for key in keys]
        async with asyncio.timeout(DEADLINE):
            await model.all_asked.wait()
        process.process.send_signal(signal.SIGTERM)
        await process.says("stopping: ", on_stderr=True)
        status, body = await program.ask(client, "Am I too late?", "late")
        assert (status, body["error"]["code"]) == (503, "stopping")
        model.go.set()
        code, err = await process.ended(WHOLE_STOP)
        responses = await asyncio.gather(*asking)

    assert code == 0
    assert f"stopped with {IN_FLIGHT // 2} messages" in err
    done = [entry[1]["outcome"] for key, entry in zip(keys, responses, strict=True) if entry and key.startswith("slow")]
    assert done == ["answered"] * (IN_FLIGHT // 2)  # those that could be finished were

    restarted = ModelServer()
    restarted.complete = _at_once  # type: ignore[method-assign]  # the same server, in a better mood
    async with serving(restarted):
        process = await program.start(OPENAI_BASE_URL=restarted.url)
        receipts = await answered(program, keys)
        assert [receipt["outcome"] for receipt in receipts] == ["answered"] * IN_FLIGHT
        assert [len(receipt["deliveries"]) for receipt in receipts] == [1] * IN_FLIGHT
        assert (await process.stop())[0] == 0


async def _at_once(request: web.Request) -> web.Response:
    return web.json_response({"choices": [{"message": {"content": model_answer("Here I am.")}}]})


@pytest.mark.failure("K-08")
def test_shutdown_takes_less_than_ten_seconds() -> None:
    assert TURNS_TIMEOUT < STOP_TIMEOUT
    assert STOP_TIMEOUT + FLUSH_TIMEOUT < 10


@pytest.mark.failure("K-09")
async def test_an_idle_process_ends_when_its_terminal_closes_and_logs_a_single_line(program: Program) -> None:
    process = await program.start()
    ended, err = await process.stop(signal.SIGHUP)
    assert ended == 0
    assert [line for line in err.splitlines() if line.startswith("stopping: ")]


@pytest.mark.failure("K-08")
async def test_a_second_signal_ends_the_process_immediately_and_the_next_start_answers(
    program: Program, model: ModelServer
) -> None:
    process = await program.start()
    async with ClientSession() as client:
        asking = asyncio.ensure_future(quietly(program.ask(client, text_of("slow"), "slow")))
        async with asyncio.timeout(DEADLINE):
            await model.all_asked.wait()
        process.process.send_signal(signal.SIGTERM)
        await process.says("stopping: ", on_stderr=True)
        code, _ = await process.stop(within=7)
        await asking
    assert code == 130

    model.go.set()
    process = await program.start()
    [receipt] = await answered(program, ["slow"])
    assert receipt["outcome"] == "answered"
    await process.stop()


@pytest.mark.failure("K-08")
@pytest.mark.parametrize(("plugin", "reached"), [(IMPORT, "import"), (INIT, "init")], ids=["import", "init"])
async def test_a_stop_during_startup_exits_with_0(program: Program, plugin: str, reached: str) -> None:
    program.write("slow.py", plugin)
    program.write("ada.json", {"name": "Ada", "plugins": ["./slow", "sql", "openai"]})
    process = await program.start(wait_for="")
    await process.says(reached, on_stderr=True)
    assert (await process.stop())[0] == 0


@pytest.mark.failure("K-08")
async def test_a_stop_while_a_database_thread_is_busy_exits_with_0(program: Program) -> None:
    async with OpenFiles().use(program.folder / "bot.db"):
        pass
    other = sqlite3.connect(program.folder / "bot.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # as a migration does: the start waits for what it cannot break off
    process = await program.start(script=HASTY, wait_for="", LOG_LEVEL="DEBUG")
    await process.says("Using selector", on_stderr=True)
    assert (await process.stop(within=30))[0] == 0
    other.close()

    process = await program.start()
    assert (await process.stop())[0] == 0


CLINGS = """
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass"""


@pytest.mark.failure("K-08")
@pytest.mark.parametrize("statement", ["pass", CLINGS], ids=["lets itself be cancelled", "does not"])
async def test_misbehaving_services_do_not_delay_the_exit_with_0(program: Program, statement: str) -> None:
    program.write("stubborn.py", STUBBORN.format(statement=statement))
    program.write("ada.json", {"name": "Ada", "plugins": ["./stubborn", "sql", "openai"]})
    process = await program.start(script=HASTY)
    assert (await process.stop(within=30))[0] == 0


@pytest.mark.failure("K-10")
@pytest.mark.parametrize("statement", ["time.sleep(3600)", "all(True for _ in iter(int, 1))"])
async def test_an_event_loop_blocked_during_shutdown_is_reported_and_ended_with_75(
    program: Program, statement: str
) -> None:
    program.write("stubborn.py", STUBBORN.format(statement=statement))
    program.write("ada.json", {"name": "Ada", "plugins": ["./stubborn", "sql", "openai"]})
    process = await program.start(script=HASTY)
    code, err = await process.stop(within=30)
    assert code == 75
    assert "bot: the event loop is blocked during the stop; these are the stacks of all threads" in err
    assert 'stubborn.py", line 7 in __aexit__' in err


@pytest.mark.failure("H-06")
async def test_a_blocked_event_loop_is_reported_and_the_restarted_process_loses_nothing(program: Program) -> None:
    program.write("spinning.py", SPINNING)
    program.write("ada.json", {"name": "Ada", "plugins": ["./spinning", "sql", "openai"]})
    process = await program.start()
    async with ClientSession() as client:
        assert await quietly(program.ask(client, text_of("quick"), "quick")) is None
    await process.says("  web ")
    [receipt] = await answered(program, ["quick"])
    assert (receipt["outcome"], receipt["attempts"]) == ("answered", 2)
    code, err = await process.stop()
    assert code == 0
    assert "bot: event loop blocked for 0 s, restarting; these are the stacks of all threads" in err
    assert 'spinning.py", line 11 in spin' in err


@pytest.mark.failure("K-18")
async def test_no_home_folder_and_no_time_zone_data_are_needed(program: Program) -> None:
    await program.start(HOME="/nowhere", TZ="Nowhere/Land", PYTHONTZPATH="")
    assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]


@pytest.mark.failure("K-16")
async def test_after_file_descriptors_run_out_the_bot_continues_once_some_are_free(program: Program) -> None:
    process = await program.start(script=FEW_FILES, LOG_LEVEL="WARNING")
    opened = [await asyncio.open_connection("127.0.0.1", program.port) for _ in range(100)]
    line = await process.says("no file descriptor is free", on_stderr=True)
    assert " ERROR   bot.logs: " in line
    for _, writer in opened:
        writer.close()
    assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]
    process.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WHOLE_STOP):
        _, err = await process.process.communicate()
    assert process.process.returncode == 0
    assert b"descriptor" not in err
    assert b"Traceback" not in err


@pytest.mark.failure("K-09")
async def test_the_bot_works_if_its_output_is_not_read(program: Program) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bot", "run", "-c", "ada.json"),
            cwd=program.folder,
            env=program.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
    )
    os.close(writing)
    program.started.append(process.process)
    async with asyncio.timeout(DEADLINE):
        while not await listens(program.port):
            with suppress(TimeoutError):  # it has no other way to say that it is there
                await asyncio.wait_for(process.process.wait(), 0.05)
    assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]
    assert (await process.stop())[0] == 0


@asynccontextmanager
async def unread(
    program: Program, *command: str, output: str = "both", **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the program with a full, unread pipe as its output; wait until it listens."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(*command, "run", "-c", "ada.json"),
        cwd=program.folder,
        env={**program.environment, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL if output == "stderr" else writing,
        stderr=asyncio.subprocess.DEVNULL if output == "stdout" else writing,
    )
    os.close(writing)
    program.started.append(process)
    async with asyncio.timeout(DEADLINE):
        while not await listens(program.port):
            with suppress(TimeoutError):  # it has no other way to say that it is there
                await asyncio.wait_for(process.wait(), 0.05)
    yield process
    os.close(reading)


@pytest.mark.failure("K-15")
@pytest.mark.parametrize("output", ["stdout", "stderr", "both"])
async def test_output_that_no_process_reads_delays_neither_an_answer_nor_the_exit(
    program: Program, output: str
) -> None:
    async with unread(program, "-m", "bot", output=output, LOG_LEVEL="DEBUG") as process:
        assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WHOLE_STOP):
            assert await process.wait() == 0


@pytest.mark.failure("K-15")
async def test_a_blocked_event_loop_is_ended_although_no_process_reads_what_blocks_it(program: Program) -> None:
    program.write("stubborn.py", STUBBORN.format(statement="time.sleep(3600)"))
    program.write("ada.json", {"name": "Ada", "plugins": ["./stubborn", "sql", "openai"]})
    async with unread(program, "-c", HASTY) as process:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WHOLE_STOP):
            assert await process.wait() == 75


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.failure("K-09")
async def test_the_process_survives_the_shell_that_started_it(program: Program) -> None:
    shell = Process(
        await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", f"{sys.executable} -m bot run -c ada.json & echo process $!"),
            cwd=program.folder,
            env=program.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    )
    number = int((await shell.says("process ")).split()[1])
    try:
        await shell.says("  web ")
        assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]
        assert shell.process.returncode == 0
    finally:
        os.kill(number, signal.SIGTERM)
    await shell.says("stopping: ", on_stderr=True)
    await shell.ended(WHOLE_STOP)  # both streams come to their end with it


@pytest.mark.failure("K-11")
async def test_after_three_crashes_only_the_web_page_starts_and_the_rest_is_retried(program: Program) -> None:
    installed = program.folder / "pager-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[greenroom.adapters]\npager = pager:adapter\n")
    program.write("pager.py", PAGER)
    program.write("deadly", "")
    (program.folder / "data").mkdir(exist_ok=True)
    program.write("data/boots.json", [{"at": time.time(), "process": number} for number in (1, 2)])
    process = await program.start(wait_for="", CRASH_LOOP_BOOTS="3")
    assert (await process.ended())[0] == -signal.SIGKILL

    process = await program.start(CRASH_LOOP_BOOTS="3", wait_for="  web       on ")
    line = await process.says("  pager ")
    assert line.startswith("  pager     off  3 starts within 5 minutes crashed (killed, out of memory, ")
    assert [entry["outcome"] for entry in await answered(program, ["quick"])] == ["answered"]
    code, err = await process.stop()
    assert code == 0
    assert "ERROR   bot.cli.commands.run: pager: not connected: 3 starts within 5 minutes crashed" in err

    (program.folder / "deadly").unlink()
    program.write("aging.py", AGING)
    program.write("ada.json", {"name": "Ada", "plugins": ["./aging", "sql", "openai"]})
    process = await program.start(CRASH_LOOP_BOOTS="3", wait_for="  web       on ")
    await process.says("  pager     on")  # as soon as the window is over; on a slow machine it is so at once
    assert (await process.stop())[0] == 0
