"""All the books of one agent, in memory."""

from types import TracebackType
from typing import Self

from bot.domain.clock import Clock, system_clock
from bot.store.inmemory.ledger import InMemoryLedger
from bot.store.inmemory.memories import InMemoryMemories
from bot.store.inmemory.people import InMemoryEntities
from bot.store.inmemory.small import InMemoryCache, InMemoryLogs
from bot.store.inmemory.tasks import InMemoryTasks
from bot.store.inmemory.worlds import InMemoryWorlds


class InMemoryStore:
    """Keeps everything in this process; see `Store`. Opened again, it still has what it had."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self.worlds = InMemoryWorlds()
        self.entities = InMemoryEntities()
        self.memories = InMemoryMemories()
        self.tasks = InMemoryTasks()
        self.cache = InMemoryCache(clock)
        self.logs = InMemoryLogs(clock)
        self.ledger = InMemoryLedger(self.worlds, self.entities, self.memories)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close nothing: what is kept stays for the next opening."""
