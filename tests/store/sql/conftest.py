"""Fixtures for the tests of the SQL store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Dialect
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TupleType

from bot import derived_id
from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.store import SqlStore


class Bare:
    """A database with a connection but without a store.

    `place` is its form for the schema's maintenance, `address` that for SQLAlchemy.
    """

    def __init__(self, connection: Any, place: Path | str, address: str) -> None:
        self._connection = connection
        self.place = place
        self.address = address

    @property
    def is_sqlite(self) -> bool:
        return isinstance(self.place, Path)

    async def run(self, work: Callable[..., Any], *details: Any, **named: Any) -> Any:
        """Run a function of the connection, as the store does."""
        if isinstance(self._connection, Connection):
            return work(self._connection, *details, **named)
        return await self._connection.run_sync(work, *details, **named)

    async def sql(self, text: str) -> list[Any]:
        """Run one statement and commit."""
        return await self.run(_committed, text)


def _committed(connection: Connection, text: str) -> list[Any]:
    result = connection.exec_driver_sql(text)
    rows = [tuple(row) for row in result] if result.returns_rows else []
    connection.commit()
    return rows


@pytest.fixture(params=["sqlite", "postgresql"])
async def bare(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Bare]:
    """Return a new database of each kind."""
    if request.param == "sqlite":
        sqlite.create_file(path)
        opened = sqlite.open_writer(sqlite.build_engine(path), Synchronous.NORMAL)
        yield Bare(opened, path, str(path))
        opened.close()
    else:
        url = request.getfixturevalue("postgres_url").replace("postgresql://", "postgresql+asyncpg://")
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.connect() as connection:
            yield Bare(connection, "the test's database", url)
        await engine.dispose()


def expand(statement: Any, dialect: Dialect, size: int) -> tuple[str, int]:
    """Return the text of a statement with that many items in each of its lists, and the number of its values."""
    compiled = statement.compile(dialect=dialect)
    values: dict[str, Any] = {}
    for name, bind in compiled.binds.items():
        if bind.required and bind.expanding:
            values[name] = [(None,) * len(bind.type.types) if isinstance(bind.type, TupleType) else None] * size
        elif bind.required:
            values[name] = None
    expanded = compiled.construct_expanded_state(values)
    return expanded.statement, len(expanded.positional_parameters)


OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "data" / "greenroom.db"


@pytest.fixture
def open_store(path: Path) -> OpenStore:
    """Return a function that opens an agent's store in that file, as a new process would."""

    def opened(agent: str = "Ada") -> AbstractAsyncContextManager[SqlStore]:
        return OpenFiles().open_store(path, derived_id("agent", agent), synchronous=Synchronous.NORMAL)

    return opened


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[SqlStore]:
    """Return the open store of an agent in that file."""
    async with open_store() as opened:
        yield opened
