"""All stores of one agent, in memory."""

from types import TracebackType
from typing import Self

from bot.concurrency.clock import Clock, system_clock
from bot.errors import ConfigError
from bot.store.inmemory.activity import InMemoryActivity
from bot.store.inmemory.edits import InMemoryEdits
from bot.store.inmemory.ledger import InMemoryLedger
from bot.store.inmemory.lists import InMemoryLists
from bot.store.inmemory.records import (
    InMemoryCache,
    InMemoryCosts,
    InMemoryEntities,
    InMemoryLogs,
    InMemoryMemories,
    InMemoryTasks,
    InMemoryWorlds,
)
from bot.store.ledger import WorkSharing
from bot.store.protocols import PluginTables


class InMemoryStore:
    """Implements `Store` in this process; it keeps its content when it is opened again."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self.entities = InMemoryEntities()
        self.worlds = InMemoryWorlds(self.entities)
        self.memories = InMemoryMemories()
        self.tasks = InMemoryTasks()
        self.cache = InMemoryCache(clock)
        self.logs = InMemoryLogs(clock)
        self.costs = InMemoryCosts()
        self.ledger = InMemoryLedger(self.worlds, self.entities, self.memories)
        self.lists = InMemoryLists(self.worlds, self.memories, self.ledger)
        self.activity = InMemoryActivity(self.ledger, self.tasks)
        self.edits = InMemoryEdits(
            self.ledger, self.worlds, self.entities, self.memories, self.tasks, self.cache, self.logs, self.costs
        )

    sharing: WorkSharing | None = None

    @property
    def tables(self) -> PluginTables:
        """Raise ConfigError: plugin tables need a database."""
        raise ConfigError("a plugin's tables need a database: give the character the sql plugin")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close nothing: the content stays for the next opening."""
