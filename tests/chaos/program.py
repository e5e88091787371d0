"""The program under test: `bot run` as a child process that is started and killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

DEEDS = str(Path(__file__).with_name("deeds.py"))
PACKAGE = "greenroom_chaos-1.dist-info"
ENTRY = "[greenroom.adapters]\nloopback = tests.chaos.adapter:adapter\n"
ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Nursery:
    """Where children come from, with `modules` imported beforehand; to be entered. One lives at a time."""

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
            [sys.executable, "-m", "tests.chaos.nursery", *self._modules],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None, "the nursery has been entered"
        self._process.kill()  # and whoever still lives of its children with it
        self._process.communicate()

    async def bear(self, order: Mapping[str, object]) -> int:
        """Start a child and give its process id."""
        assert self._process is not None, "the nursery has been entered"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return await self.told()

    async def told(self) -> int:
        """Read the next number that is told: a process id, or the exit code of what was started last."""
        assert self._process is not None, "the nursery has been entered"
        assert self._process.stdout is not None
        return int(await asyncio.to_thread(self._process.stdout.readline))

    async def ran(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], said: bytes = b""
    ) -> Ended:
        """Run a command to its end, with this to read in the pipe that is its stdin."""
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
            await self.bear(order)
            async with asyncio.timeout(PATIENCE):
                with suppress(BrokenPipeError):  # it has ended without a look at it
                    await asyncio.to_thread(stdin.write_bytes, said)
                code = await self.told()
            return Ended(code, out.read_text(), err.read_text())


def inherited(*names: str) -> dict[str, str]:
    """Give those of our variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


@dataclass(slots=True, eq=False)
class Life:
    """One child, from its start to its end."""

    pid: int
    ending: asyncio.Task[int]
    is_killed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended; where a test was broken off, nobody has waited for that."""
        return self.ending.done() and not self.ending.cancelled()

    def kill(self) -> None:
        """End it as a power cut would."""
        if not self.is_over and not self.is_killed:
            self.is_killed = True
            os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end."""
        if not self.is_over:
            os.kill(self.pid, signal.SIGTERM)

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Wait for its end and give the exit code; a negative one is the signal that ended it."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self.ending)


@dataclass(slots=True)
class Program:
    """A bot's folder and settings; `lives` counts how often it was started."""

    nursery: Nursery
    folder: Path
    settings: Mapping[str, str]
    platform: str = "loopback"
    plugins: Sequence[str] = ("sql", "openai", DEEDS)
    lives: int = field(default=0)

    def __post_init__(self) -> None:
        (self.folder / "ada.json").write_text(json.dumps({"name": "Ada", "plugins": self.plugins}))

    @property
    def database(self) -> Path:
        """The file that everything is kept in."""
        return self.folder / "greenroom.db"

    @property
    def log(self) -> Path:
        """What all its lives have printed."""
        return self.folder / "log.txt"

    @property
    def printed(self) -> str:
        """All that was printed, in all its lives."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def last_words(self) -> str:
        """What was printed last."""
        return self.printed[-2000:]

    @asynccontextmanager
    async def living(self, kill_at: str = "") -> AsyncIterator[Life]:
        """Start it, to kill itself at a point like `turn.claimed:2`; what lives at the end is killed."""
        self.lives += 1
        environment = {
            **inherited("PATH", "SSL_CERT_FILE"),
            "DATABASE_URL": f"sqlite:///{self.database}",
            "BOT_DATA_DIR": str(self.folder),
            "BOT_KILL_AT": kill_at,
            "CRASH_LOOP_BOOTS": "0",
            **self.settings,
        }
        order = {
            "arguments": ["run", "-c", "ada.json", "--only", self.platform],
            "environment": environment,
            "folder": str(self.folder),
            "log": str(self.log),
        }
        pid = await self.nursery.bear(order)
        life = Life(pid, asyncio.get_running_loop().create_task(self.nursery.told()))
        try:
            yield life
        finally:
            life.kill()
            await life.ended()

    @asynccontextmanager
    async def dying(self, kill_at: str) -> AsyncIterator[None]:
        """Start it, to kill itself at a point: before the block has ended or after, but for certain."""
        async with self.living(kill_at) as life:
            yield
            code = await life.ended()
        assert code == -signal.SIGKILL, f"{kill_at}: it ended with {code}: {self.last_words}"

    async def killed_at(self, point: str) -> None:
        """Have it live until it kills itself at a point."""
        async with self.dying(point):
            pass
