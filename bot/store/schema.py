"""The tables that plugins keep in the database: how they are described, and how they are reached."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a plugin, an SQLAlchemy `MetaData`; each is called `<plugin>_…`.

    Without a history what is missing is added at the start: tables, indexes, columns that may be empty.
    With one, `migrations` is the folder of Alembic's scripts (in its `versions`), and `version` the last.
    """

    metadata: Any
    version: str = ""
    migrations: Path | None = None


Schemas = Mapping[str, Schema]


class Tables(Protocol):
    """Reaches the plugins' tables; what is done there is a function of an SQLAlchemy `Connection`.

    Such a function neither commits nor waits for anything, and may be called again where a transaction
    has to be repeated.
    """

    async def read(self, work: Callable[[Any], T]) -> T:
        """Run a function that changes nothing."""

    async def write(self, work: Callable[[Any], T]) -> T:
        """Run a function in a transaction; what it wrote is kept once this returns."""

    @property
    def engine(self) -> Any:
        """Give an SQLAlchemy `AsyncEngine` that only reads: for pages and exports, where nobody waits."""
