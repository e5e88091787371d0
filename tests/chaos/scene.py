"""A platform, a model and a bot that a test can kill."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.adapter import Unclear
from tests.chaos.database import BotDatabase
from tests.chaos.loopback import Ability, Platform
from tests.chaos.model import ModelServer
from tests.chaos.program import ForkServer, Program
from tests.chaos.verdict import Verdict, compare
from tests.chaos.wire import ASKED, Wire

TIMEOUT = 30.0
STOPPED = "stopping: no new messages are accepted"
OPEN = """
SELECT (SELECT count(*) FROM receipts WHERE is_open = 1 OR is_evaluated = 0)
     + (SELECT count(*) FROM deliveries WHERE is_open = 1)
"""
KEPT = "SELECT count(*) FROM receipts"


@dataclass(slots=True)
class Scene:
    """The loopback servers and the bot of one test."""

    wire: Wire
    platform: Platform
    model: ModelServer
    program: Program

    @property
    def database(self) -> BotDatabase:
        """The bot's database."""
        return BotDatabase(self.program.database)

    @property
    def texts(self) -> list[str]:
        """What can be read in the rooms, in the order in which it came."""
        return [post.text for post in self.platform.record.posted]

    @property
    def readable(self) -> list[str]:
        """What can be read in the rooms now, after all that was edited."""
        return self.platform.readable

    @property
    def verdict(self) -> Verdict:
        """The comparison of the platform's record with the database."""
        return compare(self.platform.record, self.database)

    async def run_until_killed(self, point: str, *, times: int = 1) -> None:
        """Run the bot until it kills itself when the point is reached for the n-th time."""
        await self.program.run_until_killed(f"{point}:{times}")

    async def run_until_event(self, event: str) -> None:
        """Run the bot until an event on the wire; kill it before its request is answered."""
        async with self.program.running() as bot:
            self.wire.strike = lambda name: bot.kill() if name == event else None
            await bot.wait(TIMEOUT)
        self.wire.strike = lambda name: None

    async def run_until_settled(self, seconds: float = TIMEOUT) -> Verdict:
        """Run the bot until nothing is open, stop it (I10), and compare its database with the record."""
        before, asked = self.program.output, self.wire.seen[ASKED]
        async with self.program.running() as bot:
            await self.wire.until_seen(
                lambda: bot.is_over or (self.wire.seen[ASKED] > asked and self.is_settled()),
                seconds=seconds,
                what="everything settled",
            )
            bot.stop()
            code = await bot.wait(TIMEOUT)
        assert code == 0, f"it ended with {code}: {self.program.output_end}"
        assert STOPPED in self.program.output.removeprefix(before)
        return self.verdict

    def is_settled(self) -> bool:
        """Whether everything that was written has its outcome."""
        is_kept = self.database.count(KEPT) >= len(self.platform.record.updates)
        return is_kept and not self.database.count(OPEN)


@asynccontextmanager
async def build_scene(
    fork_server: ForkServer,
    folder: Path,
    *,
    ability: Ability = Ability.NONCE,
    unclear: Unclear = Unclear.RESEND_MARKED,
    **settings: str,
) -> AsyncIterator[Scene]:
    """Build a scene in an empty folder, without starting the bot."""
    wire = Wire()
    async with Platform(ability, wire) as platform, ModelServer(wire) as model:
        known = {
            "LOOPBACK_URL": platform.url,
            "LOOPBACK_ABILITY": ability.value,
            "LOOPBACK_UNCLEAR": unclear.value,
            "OPENAI_BASE_URL": model.url,
            "HTTP_PROXY": platform.url,  # for the addresses of attachments
            "NO_PROXY": "127.0.0.1",
            "LOG_LEVEL": "WARNING",
        }
        yield Scene(wire, platform, model, Program(fork_server, folder, known | settings))
