"""The program under test: `bot run` as a child process that is started and killed."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from tests.trust import trust_code

EFFECTS_PLUGIN = "effects_plugin.py"
PACKAGE = "greenroom_chaos-1.dist-info"
ENTRY = "[greenroom.adapters]\nloopback = tests.chaos.adapter:adapter\n"
ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class ForkServer:
    """Starts bots as forks of a process that has imported `modules`, one at a time. A context manager."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self._installed = folder / "installed"
        self._modules = modules
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        package = self._installed / PACKAGE  # as a package that brings an adapter would be
        package.mkdir(parents=True, exist_ok=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: greenroom-chaos\nVersion: 1\n")
        (package / "entry_points.txt").write_text(ENTRY)
        path = os.pathsep.join(map(str, (ROOT, self._installed)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fork_server", *self._modules],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None, "the fork server has been entered"
        self._process.kill()  # its children are killed with it
        self._process.communicate()

    async def fork(self, order: Mapping[str, object]) -> int:
        """Start a child and return its process id."""
        assert self._process is not None, "the fork server has been entered"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return await self.read_number()

    async def read_number(self) -> int:
        """Return the next number that is written: a process id, or the exit code of the last child."""
        assert self._process is not None, "the fork server has been entered"
        assert self._process.stdout is not None
        return int(await asyncio.to_thread(self._process.stdout.readline))

    async def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], input_bytes: bytes = b""
    ) -> CommandResult:
        """Run a command to its end, with these bytes as its standard input."""
        with TemporaryDirectory(prefix="greenroom-ran-") as streams:
            stdin, out, err = (Path(streams, name) for name in ("in", "out", "err"))
            os.mkfifo(stdin)
            order = {
                "arguments": arguments,
                "environment": dict(environment),
                "folder": str(folder),
                "said": str(stdin),
                "log": str(out),
                "errors": str(err),
            }
            await self.fork(order)
            async with asyncio.timeout(TIMEOUT):
                with suppress(BrokenPipeError):  # it ended without reading all of it
                    await asyncio.to_thread(stdin.write_bytes, input_bytes)
                code = await self.read_number()
            return CommandResult(code, out.read_text(), err.read_text())


def inherited_variables(*names: str) -> dict[str, str]:
    """Return the environment variables of these names that are set; AI notices are off."""
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    return {"AI_NOTICE": "off", **inherited}


@dataclass(slots=True, eq=False)
class BotProcess:
    """One running bot."""

    pid: int
    ending: asyncio.Task[int]
    is_killed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the process has ended and its exit code was read."""
        return self.ending.done() and not self.ending.cancelled()

    def kill(self) -> None:
        """Send SIGKILL, once."""
        if not self.is_over and not self.is_killed:
            self.is_killed = True
            with suppress(ProcessLookupError):  # it has ended, and its exit code is on the way
                os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM."""
        if not self.is_over:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    async def wait(self, seconds: float = TIMEOUT) -> int:
        """Wait for its end and return the exit code; a negative one is the signal that ended it."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self.ending)


@dataclass(slots=True)
class Program:
    """A bot's folder and settings; `starts` counts how often it was started."""

    fork_server: ForkServer
    folder: Path
    settings: Mapping[str, str]
    platform: str = "loopback"
    plugins: Sequence[str] = ("sql", "openai", f"./{EFFECTS_PLUGIN}")
    starts: int = field(default=0)
    names: Sequence[str] = ("Ada",)

    def __post_init__(self) -> None:
        shutil.copy(Path(__file__).with_name(EFFECTS_PLUGIN), self.folder)  # only there a character may name it
        trust_code(self.folder, self.folder)
        for name in self.names:
            file = self.folder / f"{name.lower()}.json"
            file.write_text(json.dumps({"name": name, "plugins": self.plugins}))

    @property
    def database(self) -> Path:
        """Path of the database file."""
        return self.folder / "greenroom.db"

    @property
    def log(self) -> Path:
        """Path of the output of all starts."""
        return self.folder / "log.txt"

    @property
    def output(self) -> str:
        """The output of all starts."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def output_end(self) -> str:
        """The end of the output."""
        return self.output[-2000:]

    @asynccontextmanager
    async def running(self, kill_at: str = "") -> AsyncIterator[BotProcess]:
        """Start the bot, which kills itself at a point like `turn.claimed:2`; kill it at the end of the block."""
        self.starts += 1
        environment = {
            **inherited_variables("PATH", "SSL_CERT_FILE"),
            "DATABASE_URL": f"sqlite:///{self.database}",
            "BOT_DATA_DIR": str(self.folder),
            "BOT_KILL_AT": kill_at,
            "CRASH_LOOP_BOOTS": "0",
            **self.settings,
        }
        order = {
            "arguments": [
                "run",
                *(word for name in self.names for word in ("-c", f"{name.lower()}.json")),
                "--only",
                self.platform,
            ],
            "environment": environment,
            "folder": str(self.folder),
            "log": str(self.log),
        }
        pid = await self.fork_server.fork(order)
        bot = BotProcess(pid, asyncio.get_running_loop().create_task(self.fork_server.read_number()))
        try:
            yield bot
        finally:
            bot.kill()
            await bot.wait()

    @asynccontextmanager
    async def running_until_killed(self, kill_at: str) -> AsyncIterator[None]:
        """Start the bot and wait after the block until it has killed itself at this point."""
        async with self.running(kill_at) as bot:
            yield
            code = await bot.wait()
        assert code == -signal.SIGKILL, f"{kill_at}: it ended with {code}: {self.output_end}"

    async def run_until_killed(self, point: str) -> None:
        """Run the bot until it kills itself at a point."""
        async with self.running_until_killed(point):
            pass
