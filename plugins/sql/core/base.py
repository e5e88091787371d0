"""Base of the SQL stores: database access, the agent's row, shared opening."""

from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.sql.expression import Executable

from bot.store import StoreHealth
from plugins.sql.core.mapping import Row, insert_if_new
from plugins.sql.core.recent_cache import RecentMemoryCache
from plugins.sql.core.schema import agents

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Work = Callable[[Connection], T]

INSERT_AGENT = insert_if_new(agents, ["key"])
FIND_AGENT = select(agents.c.id).where(agents.c.key == bindparam("key"))


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent's row: its id, and the small number that every key begins with."""

    id: UUID
    number: int


def ensure_agent(connection: Connection, agent_id: UUID) -> AgentRow:
    """Return an agent's row; insert it if it is new."""
    INSERT_AGENT.execute(connection, {"key": agent_id})
    return AgentRow(agent_id, connection.execute(FIND_AGENT, {"key": agent_id}).scalar_one())


class Access(Protocol):
    """Runs synchronous work with a connection, off the event loop."""

    @property
    def health(self) -> StoreHealth:
        """Whether the database accepts writes at present."""

    @property
    def is_sole_writer(self) -> bool:
        """Whether no other process changes the stored data."""

    @property
    def recent_cache(self) -> RecentMemoryCache | None:
        """The cache of recent memories; None if other processes write too."""

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work that writes; return once it is committed.

        A write that is not `durable` survives a crash of the process, but a power cut only after a
        later durable write.
        """

    async def read(self, work: Work[T]) -> T:
        """Run short read-only work; it sees every write that has returned."""

    async def search(self, work: Work[T]) -> T:
        """Run read-only work that may take long; other calls do not wait for it."""

    async def truncate_log(self) -> None:
        """Remove from the database's own log, where this process can, what was stored before the last commits."""


class SqlStorePart:
    """A part of the store. Code that takes a connection stands in module functions."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        self._database = database
        self._agent_row = agent_row
        self._agent = agent_row.number

    async def _read(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a short statement about the agent."""
        return await self._database.read(lambda db: db.execute(statement, {"agent": self._agent, **values}).all())

    async def _search(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a statement about the agent that may take long."""
        return await self._database.search(lambda db: db.execute(statement, {"agent": self._agent, **values}).all())


class Closable(Protocol):
    """A resource that is closed once, even if opening it failed."""

    async def close(self) -> None:
        """Release the resource."""


C = TypeVar("C", bound=Closable)


class SharedResource(Generic[K, C]):
    """Resources that several users share: the first user of a key creates one, the last user closes it."""

    def __init__(self) -> None:
        self._resources: dict[K, C] = {}
        self._users: dict[K, int] = {}

    @asynccontextmanager
    async def use(self, key: K, create: Callable[[], C]) -> AsyncIterator[C]:
        """Yield the resource of a key. Opening it, which must be repeatable, is left to each user."""
        if key not in self._resources:
            self._resources[key] = create()
        resource = self._resources[key]
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield resource
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._resources[key], self._users[key]
                await resource.close()
