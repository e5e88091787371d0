"""`SqlStorePart`, `Access`, agent row."""

from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection, select

from bot.store import StoreHealth
from plugins.sql.core.recent_cache import RecentMemoryCache
from plugins.sql.core.schema import agents
from plugins.sql.core.statements import Statement, equals, insert_into
from plugins.sql.sqlite.threads import Work

INSERT_AGENT = Statement(lambda insert: insert_into(agents, ["key"])(insert).on_conflict_do_nothing(), "key")
FIND_AGENT = Statement(lambda _: select(agents.c.id).where(equals(agents.c.key, "key")), "key")


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent as the database knows it: its id, and the small number that leads every key."""

    id: UUID
    number: int


def ensure_agent(connection: Connection, agent_id: UUID) -> AgentRow:
    """Find the number of an agent, giving a new one its own."""
    INSERT_AGENT.run(connection, agent_id.bytes)
    [number] = FIND_AGENT.rows(connection, agent_id.bytes)[0]
    return AgentRow(agent_id, number)


T = TypeVar("T")


class Access(Protocol):
    """Runs synchronous work with a connection, off the event loop."""

    @property
    def health(self) -> StoreHealth:
        """Whether anything can be written just now."""

    @property
    def is_sole_writer(self) -> bool:
        """Whether nobody but this process changes what is kept."""

    @property
    def recent_cache(self) -> RecentMemoryCache | None:
        """What was last said in rooms, as it is known without reading; None where others write too."""

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work that changes something; returns once it is committed.

        What is not `lasting` outlives the process, but a power cut only once something later has been
        written that is.
        """

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, and quickly; it sees every write that has returned."""

    async def search(self, work: Work[T]) -> T:
        """Run work that only reads, and may take its time."""


class SqlStorePart:
    """A part of the store; what it does with a connection stands as functions beside it."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        self._database = database
        self._agent_row = agent_row
        self._agent = agent_row.number
