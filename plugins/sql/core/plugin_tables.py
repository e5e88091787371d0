"""Tables of plugins: access to them, checks of their names, and statements that add them."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Column, Connection, Executable, MetaData, Table, event, inspect, text
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from bot import PluginError
from bot.store import Schemas
from plugins.sql.core.base import Access, Work

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

PLUGIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # with its prefix no longer than PostgreSQL allows


class SqlPluginTables:
    """Runs work of plugins on their tables; see `PluginTables`.

    The engine is created on first use and closed by `aclose`.
    """

    def __init__(self, database: Access, make_engine: "Callable[[], AsyncEngine]") -> None:
        self._database = database
        self._make_engine = make_engine
        self._engine: AsyncEngine | None = None

    async def read(self, work: Work[T]) -> T:
        """Run read-only work, which may take long."""
        return await self._database.search(work)

    async def write(self, work: Work[T]) -> T:
        """Run work that writes."""
        return await self._database.write(work)

    @property
    def engine(self) -> "AsyncEngine":
        """The read-only engine."""
        if self._engine is None:
            self._engine = self._make_engine()
        return self._engine

    async def aclose(self) -> None:
        """Close the engine if it was created."""
        if self._engine is not None:
            await self._engine.dispose()


def build_read_only_engine(path: Path) -> "AsyncEngine":
    """Return an engine whose connections never write, not even to checkpoint the log."""
    asynchronous = import_module("sqlalchemy.ext.asyncio")  # here: few plugins need it, and it takes 0.1 s
    engine: AsyncEngine = asynchronous.create_async_engine(URL.create("sqlite+aiosqlite", database=str(path)))
    event.listen(engine.sync_engine, "connect", _make_read_only)
    return engine


def _make_read_only(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only = ON")
    cursor.execute("PRAGMA wal_autocheckpoint = 0")
    cursor.close()


def check_schemas(schemas: Schemas) -> Schemas:
    """Return the schemas; raise PluginError for a name, table or key that is not allowed."""
    for name, schema in schemas.items():
        if not PLUGIN_NAME.fullmatch(name):
            raise PluginError(
                f"plugin {name!r} has tables: its name may have only small letters, digits and underscores"
            )
        if not isinstance(schema.metadata, MetaData):
            raise PluginError(f"plugin {name!r}: the metadata of its schema is not a sqlalchemy.MetaData")
        if bool(schema.version) != (schema.migrations is not None):
            raise PluginError(f"plugin {name!r}: its schema needs both a version and migrations, or neither")
        for table in schema.metadata.tables.values():
            _check_table(name, table)
    return schemas


def _check_table(name: str, table: Table) -> None:
    if table.schema is not None or not table.name.startswith(f"{name}_"):
        raise PluginError(f"plugin {name!r}: rename its table {table.fullname!r} to {name}_{table.name}")
    for key in table.foreign_keys:
        target = key.target_fullname.split(".")[0]
        if target not in table.metadata.tables:
            raise PluginError(
                f"plugin {name!r}: remove the foreign key of {table.name} to {target} and store only the id, "
                "so that no row of the core depends on the plugin"
            )


def find_additions(connection: Connection, metadata: MetaData) -> list[Executable]:
    """Return the statements that add what is missing of a plugin's tables without migrations.

    Raise PluginError for a column that cannot be added to existing rows.
    """
    inspector = inspect(connection)
    existing = set(inspector.get_table_names())
    statements: list[Executable] = []
    for table in metadata.sorted_tables:
        indexes = set()
        if table.name not in existing:
            statements.append(CreateTable(table))
        else:
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            statements += [_add_column(connection, column) for column in table.columns if column.name not in columns]
            indexes = {index["name"] for index in inspector.get_indexes(table.name)}
        statements += [CreateIndex(index) for index in table.indexes if index.name not in indexes]
    return statements


def _add_column(connection: Connection, column: Column[object]) -> Executable:
    if not column.nullable or column.primary_key or column.unique or column.foreign_keys:
        raise PluginError(
            f"{column.table.name} has no column {column.name} yet, and it cannot be added to existing rows: "
            "make it nullable and not part of a key, or add migrations to the plugin's schema"
        )
    table = connection.dialect.identifier_preparer.format_table(column.table)
    definition = str(CreateColumn(column).compile(dialect=connection.dialect))
    return text(f"ALTER TABLE {table} ADD COLUMN {definition}".replace(":", r"\:"))
