"""The plugins' own tables, as plugins reach them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from plugins.sql.book import Access
from plugins.sql.threads import Work

T = TypeVar("T")


class SqlTables:
    """Runs what plugins do with their tables beside the store's own work; see `Tables`.

    The engine is made when somebody asks for it, and closed with the store.
    """

    def __init__(self, database: Access, make_engine: Callable[[], AsyncEngine]) -> None:
        self._database = database
        self._make_engine = make_engine
        self._engine: AsyncEngine | None = None

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads; nothing waits for it, so it may take its time."""
        return await self._database.search(work)

    async def write(self, work: Work[T]) -> T:
        """Run work that changes something."""
        return await self._database.write(work)

    @property
    def engine(self) -> AsyncEngine:
        """The engine that only reads."""
        if self._engine is None:
            self._engine = self._make_engine()
        return self._engine

    async def close(self) -> None:
        """Close the engine, if there is one."""
        if self._engine is not None:
            await self._engine.dispose()


@asynccontextmanager
async def open_tables(database: Access, make_engine: Callable[[], AsyncEngine]) -> AsyncIterator[SqlTables]:
    """Give plugins their way to the tables of an open database."""
    tables = SqlTables(database, make_engine)
    try:
        yield tables
    finally:
        await tables.close()


def reading_engine(path: Path) -> AsyncEngine:
    """Describe connections to a file that change nothing, not even its log."""
    engine = create_async_engine(URL.create("sqlite+aiosqlite", database=str(path)))
    event.listen(engine.sync_engine, "connect", _restrict)
    return engine


def _restrict(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only = ON")
    cursor.execute("PRAGMA wal_autocheckpoint = 0")
    cursor.close()
