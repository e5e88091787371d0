"""Creation and upgrade of the schema, and the pgvector extension.

On both databases one transaction under a lock: a failure at any statement changes nothing, and of two
processes that start at once the second finds the work done.

Tables of plugins: access to them, checks of their names, and statements that add them.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Column, Connection, Executable, MetaData, Table, event, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from bot.errors import ConfigError, PluginError
from bot.store.protocols import Schema, Schemas
from bot.store.sql.core.base import Access, Work
from bot.store.sql.core.schema import COMPATIBLE_FROM, VERSION, add_postgres_options, metadata
from bot.store.storage import NO_SCHEMAS

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


def build_read_only_engine(path: Path, **options: Any) -> "AsyncEngine":
    """Return an engine whose connections never write, not even to checkpoint the log; `options` are SQLAlchemy's."""
    asynchronous = import_module("sqlalchemy.ext.asyncio")  # here: few plugins need it, and it takes 0.1 s
    url = URL.create("sqlite+aiosqlite", database=str(path))
    engine: AsyncEngine = asynchronous.create_async_engine(url, **options)
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


logger = logging.getLogger(__name__)

COMPATIBLE_COLUMN = "compatible_from"  # in the table of the version
ALEMBIC_RUNNER = "bot.store.sql.migrations.alembic_runner"
CORE_NAME = "sql"
CORE_SCHEMA = Schema(metadata, VERSION, Path(__file__).parents[1] / "migrations", COMPATIBLE_FROM)
LOCK_KEY = 0x67726E6D  # any number, as long as every version of Greenroom takes the same


@dataclass(frozen=True, slots=True)
class OutdatedSchema:
    """A schema whose tables are missing or outdated, with its current and target versions.

    `current_version` is None if there are no tables yet. Without migrations both versions are empty.
    """

    name: str
    current_version: str | None
    target_version: str


def upgrade_schemas(
    connection: Connection,
    location: Path | str,
    schemas: Schemas = NO_SCHEMAS,
    *,
    core: Schema = CORE_SCHEMA,
    before_change: Callable[[str], Path] | None = None,
) -> None:
    """Create missing tables and upgrade older ones to this version, in one transaction.

    `location` is the SQLite file or the name of the database, for messages. `schemas` are those of the
    plugins, by name. `before_change(mark)` is called before an existing table is changed and returns the
    path of the backup it made. Tables of newer code are left as they are if they are compatible with this version.
    Raise ConfigError if they are not, or are those of another program.
    """
    targets = {CORE_NAME: core, **check_schemas(schemas)}
    outdated = find_outdated(connection, targets)
    existing = [schema for schema in outdated if schema.current_version is not None]
    for schema in existing:
        _check_ownership(connection, schema, targets[schema.name], location)
    if existing and before_change is not None:
        mark = f"before-{existing[0].name}-{existing[0].target_version}".rstrip("-")
        logger.info("database backed up to %s", before_change(mark))
    if outdated:
        with _exclusive_transaction(connection):
            for schema in find_outdated(connection, targets):  # again: another process may have been quicker
                _upgrade_schema(connection, schema, targets[schema.name], location)
    for schema in existing:
        logger.info(
            "%s: upgraded the tables of %s from version %s to %s",
            location,
            schema.name,
            schema.current_version,
            schema.target_version,
        )


def find_outdated(connection: Connection, schemas: Schemas) -> list[OutdatedSchema]:
    """Return the schemas that must be created or upgraded; an open transaction stays open."""
    was_open = connection.in_transaction()
    tables = set(inspect(connection).get_table_names())
    outdated = []
    for name, schema in schemas.items():
        version = _find_current_version(connection, name, schema, tables)
        is_outdated = version != schema.version if schema.migrations else find_additions(connection, schema.metadata)
        if is_outdated:
            outdated.append(OutdatedSchema(name, version, schema.version))
    if not was_open:
        connection.rollback()
    return outdated


def find_version(connection: Connection, name: str = CORE_NAME) -> str | None:
    """Return the stored version of a schema; None if there is none yet."""
    table = version_table_name(name)
    version = _read_version(connection, table) if inspect(connection).has_table(table) else None
    connection.rollback()
    return version


def find_usable_version(connection: Connection) -> str | None:
    """Return as `find_version`, but this program's version if it can work with the core schema of newer code."""
    tables = set(inspect(connection).get_table_names())
    version = _find_current_version(connection, CORE_NAME, CORE_SCHEMA, tables)
    connection.rollback()
    return version or None


def version_table_name(name: str) -> str:
    """Return the name of the table that stores the version of a schema."""
    return f"alembic_version_{name}"


def _find_current_version(connection: Connection, name: str, schema: Schema, tables: set[str]) -> str | None:
    """Return the version of the tables: None if there are none, "" if no version is stored.

    It is the schema's own version where newer code has written tables with which this code can work.
    """
    table = version_table_name(name)
    if schema.migrations and table in tables:
        version = _read_version(connection, table) or ""
        is_newer = version not in ("", schema.version) and _is_compatible(connection, table, schema, version)
        return schema.version if is_newer else version
    return "" if tables & set(schema.metadata.tables) else None


def _read_version(connection: Connection, table: str) -> str | None:
    row = connection.exec_driver_sql(f"SELECT version_num FROM {table}").first()
    return str(row[0]) if row else None


def _is_compatible(connection: Connection, table: str, schema: Schema, version: str) -> bool:
    """Return whether a version that this code does not know can be used by it."""
    row = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().first()
    compatible_from = row.get(COMPATIBLE_COLUMN) if row else None
    return bool(compatible_from) and import_module(ALEMBIC_RUNNER).is_newer(schema, version, compatible_from)


def _check_ownership(connection: Connection, outdated: OutdatedSchema, schema: Schema, location: Path | str) -> None:
    """Raise ConfigError for tables of another program or of newer code."""
    if outdated.name == CORE_NAME and not outdated.current_version:
        conflicts = sorted(set(inspect(connection).get_table_names()) & set(schema.metadata.tables))
        connection.rollback()
        raise ConfigError(
            f"{location} already has tables of another program ({', '.join(conflicts)}): set DATABASE_URL to "
            "another database"
        )
    if schema.migrations:  # Alembic takes half a second to load
        label = f"{location}: {version_table_name(outdated.name)}"
        import_module(ALEMBIC_RUNNER).check_history(schema, outdated.current_version, label)


@contextmanager
def _exclusive_transaction(connection: Connection) -> Iterator[None]:
    """Run a transaction during which no other process changes the schema.

    Tables that SQLite cannot alter are copied, so foreign keys are off meanwhile and checked before
    the commit.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.rollback()
    try:
        if is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        yield
        if is_sqlite and (orphans := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()):
            raise ConfigError(f"{len(orphans)} rows would refer to rows that no longer exist")
        connection.commit()
    finally:
        connection.rollback()  # without effect after a commit
        if is_sqlite:
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.rollback()


def _upgrade_schema(connection: Connection, outdated: OutdatedSchema, schema: Schema, location: Path | str) -> None:
    if schema.migrations is None:
        for statement in find_additions(connection, schema.metadata):
            connection.execute(statement)
    elif outdated.current_version is None:
        _create_tables(connection, outdated.name, schema, location)
    else:
        import_module(ALEMBIC_RUNNER).migrate(connection, schema, version_table_name(outdated.name))


def _create_tables(connection: Connection, name: str, schema: Schema, location: Path | str) -> None:
    """Create the tables at their current version, without running migrations."""
    if name == CORE_NAME and connection.dialect.name == "postgresql":
        add_vector_extension(connection, location)
        add_postgres_options(schema.metadata)
    schema.metadata.create_all(connection, checkfirst=False)
    table = version_table_name(name)
    connection.exec_driver_sql(
        f"CREATE TABLE {table} (version_num VARCHAR(32) NOT NULL, {COMPATIBLE_COLUMN} VARCHAR(32), "
        f"CONSTRAINT {table}_pkc PRIMARY KEY (version_num))"  # as Alembic makes it
    )
    values = {"version": schema.version, "compatible_from": schema.compatible_from or None}
    connection.execute(text(f"INSERT INTO {table} VALUES (:version, :compatible_from)"), values)


def add_vector_extension(connection: Connection, location: Path | str) -> None:
    """Add pgvector to the database; raise ConfigError if that is not possible."""
    if _has_halfvec(connection):
        return
    extension = connection.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").first()
    if extension is None:
        raise ConfigError(
            f"{location}: this PostgreSQL server has no pgvector; install it (0.7 or newer; the package "
            "is called postgresql-<version>-pgvector on Debian), or set DATABASE_URL to a SQLite file"
        )
    try:
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
    except DBAPIError as error:
        raise ConfigError(
            f"{location}: pgvector cannot be added ({error.orig}); ask the database's owner to run "
            "CREATE EXTENSION vector in it"
        ) from error
    if not _has_halfvec(connection):
        raise ConfigError(f"{location}: its pgvector is older than 0.7; update it with ALTER EXTENSION")


def _has_halfvec(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT to_regtype('halfvec') IS NOT NULL").scalar())
