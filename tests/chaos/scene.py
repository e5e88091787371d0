"""A platform, a model and a bot that a test can kill."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.adapter import Unsure
from tests.chaos.books import Books
from tests.chaos.loopback import Ability, Platform
from tests.chaos.model import ModelServer
from tests.chaos.program import Nursery, Program
from tests.chaos.verdict import Verdict, judged
from tests.chaos.wire import ASKED, Wire

PATIENCE = 30.0
STOPPED = "stopping: no new messages are accepted"
OPEN = """
SELECT (SELECT count(*) FROM receipts WHERE is_open = 1 OR is_learnt = 0)
     + (SELECT count(*) FROM deliveries WHERE is_open = 1)
"""
KEPT = "SELECT count(*) FROM receipts"


@dataclass(slots=True)
class Scene:
    """What a test plays with."""

    wire: Wire
    platform: Platform
    model: ModelServer
    program: Program

    @property
    def books(self) -> Books:
        """The bot's database."""
        return Books(self.program.database)

    @property
    def said(self) -> list[str]:
        """What can be read in the rooms, in the order in which it came."""
        return [post.text for post in self.platform.truth.posted]

    @property
    def readable(self) -> list[str]:
        """What can be read in the rooms now, after all that was edited."""
        return self.platform.readable

    @property
    def verdict(self) -> Verdict:
        """What the truth has to say to the books."""
        return judged(self.platform.truth, self.books)

    async def killed_at(self, point: str, *, times: int = 1) -> None:
        """Live until the point is reached so many times; the process must end there by its own hand."""
        await self.program.killed_at(f"{point}:{times}")

    async def killed_on(self, event: str) -> None:
        """Live until something happens on the wire; the process is killed before it gets an answer."""
        async with self.program.living() as life:
            self.wire.strike = lambda name: life.kill() if name == event else None
            await life.ended(PATIENCE)
        self.wire.strike = lambda name: None

    async def settled(self, seconds: float = PATIENCE) -> Verdict:
        """Live until nothing is open, end well and say why (I10), and hold all against the truth."""
        before, asked = self.program.printed, self.wire.seen[ASKED]
        async with self.program.living() as life:
            await self.wire.until_seen(
                lambda: life.is_over or (self.wire.seen[ASKED] > asked and self._is_settled()),
                seconds=seconds,
                what="everything settled",
            )
            life.stop()
            code = await life.ended(PATIENCE)
        assert code == 0, f"it ended with {code}: {self.program.last_words}"
        assert STOPPED in self.program.printed.removeprefix(before)
        return self.verdict

    def _is_settled(self) -> bool:
        is_kept = self.books.counted(KEPT) >= len(self.platform.truth.updates)
        return is_kept and not self.books.counted(OPEN)


@asynccontextmanager
async def played(
    nursery: Nursery,
    folder: Path,
    *,
    ability: Ability = Ability.NONCE,
    unclear: Unsure = Unsure.RESEND_MARKED,
    **settings: str,
) -> AsyncIterator[Scene]:
    """Set a scene up in an empty folder; the bot is not started yet."""
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
        yield Scene(wire, platform, model, Program(nursery, folder, known | settings))
