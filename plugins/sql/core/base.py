"""`SqlStorePart`, `Access`, agent row."""

from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection, select

from bot.store import Health
from plugins.sql.core.recent_cache import Recents
from plugins.sql.core.schema import agents
from plugins.sql.core.statements import Statement, insert_into, same
from plugins.sql.sqlite.threads import Work

INSERT_AGENT = Statement(lambda insert: insert_into(agents, ["key"])(insert).on_conflict_do_nothing(), "key")
FIND_AGENT = Statement(lambda _: select(agents.c.id).where(same(agents.c.key, "key")), "key")


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent as the database knows it: its id, and the small number that leads every key."""

    id: UUID
    number: int


def register(connection: Connection, agent_id: UUID) -> Owner:
    """Find the number of an agent, giving a new one its own."""
    INSERT_AGENT.run(connection, agent_id.bytes)
    [number] = FIND_AGENT.rows(connection, agent_id.bytes)[0]
    return Owner(agent_id, number)


T = TypeVar("T")


class Access(Protocol):
    """Runs synchronous work with a connection, off the event loop."""

    @property
    def health(self) -> Health:
        """Whether anything can be written just now."""

    @property
    def is_sole(self) -> bool:
        """Whether nobody but this process changes what is kept."""

    @property
    def recents(self) -> Recents | None:
        """What was last said in rooms, as it is known without reading; None where others write too."""

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Run work that changes something; returns once it is committed.

        What is not `lasting` outlives the process, but a power cut only once something later has been
        written that is.
        """

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, and quickly; it sees every write that has returned."""

    async def search(self, work: Work[T]) -> T:
        """Run work that only reads, and may take its time."""


class Book:
    """A part of the store; what it does with a connection stands as functions beside it."""

    def __init__(self, database: Access, owner: Owner) -> None:
        self._database = database
        self._owner = owner
        self._agent = owner.number
