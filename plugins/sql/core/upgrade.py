"""Schema versions, advisory lock, pgvector extension.

The same on both databases: one transaction under a lock, so that a failure at any statement leaves what
was there, and of two processes that start at once the second finds the work done.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from bot import ConfigError
from bot.store import NO_SCHEMAS, Schema, Schemas
from plugins.sql.core.plugin_tables import additions, checked
from plugins.sql.core.schema import VERSION, metadata

logger = logging.getLogger(__name__)

MIGRATING = "plugins.sql.migrations.alembic_runner"
OURS = "sql"
OUR_SCHEMA = Schema(metadata, version=VERSION, migrations=Path(__file__).parents[1] / "migrations")
LOCK = 0x67726E6D  # any number, as long as every version of Greenroom takes the same


@dataclass(frozen=True, slots=True)
class Behind:
    """Tables that are not as the code wants them: whose, and at which versions they are.

    `found` is None where there are none yet. Without a history both are empty.
    """

    name: str
    found: str | None
    wanted: str


def bring_up_to_date(
    connection: Connection,
    place: Path | str,
    schemas: Schemas = NO_SCHEMAS,
    *,
    ours: Schema = OUR_SCHEMA,
    before_change: Callable[[str], Path] | None = None,
) -> None:
    """Make the tables that are missing, and bring older ones to this version; all of it or nothing.

    `place` is the SQLite file or the name of the database, for messages. `schemas` are those of the
    plugins, by name. `before_change(mark)` is called before an existing table is changed and returns the
    path of the backup it made. Raises ConfigError where the tables were made by newer code or by another
    program.
    """
    wanted = {OURS: ours, **checked(schemas)}
    behind = outdated(connection, wanted)
    changes = [one for one in behind if one.found is not None]
    for one in changes:
        _refuse_what_is_not_ours(connection, one, wanted[one.name], place)
    if changes and before_change is not None:
        mark = f"before-{changes[0].name}-{changes[0].wanted}".rstrip("-")
        logger.info("database backed up to %s", before_change(mark))
    if behind:
        with _alone(connection):
            for one in outdated(connection, wanted):  # asked again: somebody else may have been quicker
                _advance(connection, one, wanted[one.name], place)
    for one in changes:
        logger.info("%s: the tables of %s went from %s to %s", place, one.name, one.found, one.wanted)


def outdated(connection: Connection, schemas: Schemas) -> list[Behind]:
    """List the schemas that are not as they should be; a transaction that is open stays so."""
    was_open = connection.in_transaction()
    tables = set(inspect(connection).get_table_names())
    behind = []
    for name, schema in schemas.items():
        found = _found(connection, name, schema, tables)
        is_behind = found != schema.version if schema.migrations else additions(connection, schema.metadata)
        if is_behind:
            behind.append(Behind(name, found, schema.version))
    if not was_open:
        connection.rollback()
    return behind


def version_of(connection: Connection, name: str = OURS) -> str | None:
    """Read the version of a schema; None where there is none yet."""
    table = version_table(name)
    found = _version(connection, table) if inspect(connection).has_table(table) else None
    connection.rollback()
    return found


def version_table(name: str) -> str:
    """Name the table that keeps the version of a schema."""
    return f"alembic_version_{name}"


def _found(connection: Connection, name: str, schema: Schema, tables: set[str]) -> str | None:
    """Tell at which version the tables are: None where there are none, "" where nobody noted one."""
    table = version_table(name)
    if schema.migrations and table in tables:
        return _version(connection, table) or ""
    return "" if tables & set(schema.metadata.tables) else None


def _version(connection: Connection, table: str) -> str | None:
    row = connection.exec_driver_sql(f"SELECT version_num FROM {table}").first()
    return str(row[0]) if row else None


def _refuse_what_is_not_ours(
    connection: Connection, behind: Behind, schema: Schema, place: Path | str
) -> None:
    """Raise ConfigError for tables that somebody else has made, or newer code than this."""
    if behind.name == OURS and not behind.found:
        taken = sorted(set(inspect(connection).get_table_names()) & set(schema.metadata.tables))
        connection.rollback()
        raise ConfigError(
            f"{place} already has tables called {', '.join(taken)} that are not ours: set DATABASE_URL to "
            "another database"
        )
    if schema.migrations:  # Alembic takes half a second to load
        where = f"{place}: {version_table(behind.name)}"
        import_module(MIGRATING).require_known(schema, behind.found, where)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """One transaction beside which nobody else changes the schema.

    Tables are copied where SQLite cannot alter them, so its foreign keys are off meanwhile and looked
    over before the commit.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.rollback()
    try:
        if is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        yield
        if is_sqlite and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()):
            raise ConfigError(f"{len(broken)} rows would be left without what they belong to")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        if is_sqlite:
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.rollback()


def _advance(connection: Connection, behind: Behind, schema: Schema, place: Path | str) -> None:
    if schema.migrations is None:
        for statement in additions(connection, schema.metadata):
            connection.execute(statement)
    elif behind.found is None:
        _create(connection, behind.name, schema, place)
    else:
        import_module(MIGRATING).migrate(connection, schema, version_table(behind.name))


def _create(connection: Connection, name: str, schema: Schema, place: Path | str) -> None:
    """Make the tables as they are now: what is new needs no history."""
    if name == OURS and connection.dialect.name == "postgresql":
        add_vectors(connection, place)
    schema.metadata.create_all(connection, checkfirst=False)
    table = version_table(name)
    connection.exec_driver_sql(
        f"CREATE TABLE {table} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {table}_pkc PRIMARY KEY (version_num))"  # as Alembic makes it
    )
    connection.execute(text(f"INSERT INTO {table} VALUES (:version)"), {"version": schema.version})


def add_vectors(connection: Connection, place: Path | str) -> None:
    """Add pgvector to the database; raises ConfigError where that cannot be."""
    if _has_halfvec(connection):
        return
    found = connection.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").first()
    if found is None:
        raise ConfigError(
            f"{place}: this PostgreSQL server has no pgvector; install it there (0.7 or newer; the package "
            "is called postgresql-<version>-pgvector on Debian), or set DATABASE_URL to a SQLite file"
        )
    try:
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
    except DBAPIError as error:
        raise ConfigError(
            f"{place}: pgvector cannot be added ({error.orig}); have the database's owner run "
            "CREATE EXTENSION vector in it"
        ) from error
    if not _has_halfvec(connection):
        raise ConfigError(f"{place}: its pgvector is older than 0.7; have it updated, with ALTER EXTENSION")


def _has_halfvec(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT to_regtype('halfvec') IS NOT NULL").scalar())
