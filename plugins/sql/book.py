"""What all books have in common: a database that runs their work, and the agent whose book it is."""

from typing import Protocol, TypeVar

from bot import Health
from plugins.sql.owner import Owner
from plugins.sql.recents import Recents
from plugins.sql.threads import Work

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
