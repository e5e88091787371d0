"""The schema's version: looked at with one question, changed only where it is another than ours."""

import logging
import os
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection

from bot import ConfigError
from plugins.sql.schema import VERSION, VERSION_TABLE, metadata

logger = logging.getLogger(__name__)
MIGRATING = "plugins.sql.migrations.running"


def bring_up_to_date(connection: Connection, path: Path, *, wanted: str = VERSION) -> None:
    """Give a new file its tables, bring an older one to this version; all of it or nothing.

    An older file is backed up first. Raises ConfigError where the file was written by newer code.
    """
    found = version_of(connection)
    if found == wanted:
        return
    if found is None:
        _create(connection, path)
        return
    if not found.isdecimal() or int(found) > int(wanted):
        raise ConfigError(
            f"the database {path} has schema {found}, this version of Greenroom knows {wanted}: update "
            "Greenroom, or put back the backup that was made before the update"
        )
    kept = back_up(connection, path, f"before-{wanted}")
    logger.info("the database %s goes from schema %s to %s; a copy is kept in %s", path, found, wanted, kept)
    import_module(MIGRATING).migrate(connection, wanted)  # Alembic takes half a second to load


def version_of(connection: Connection) -> str | None:
    """Read the version of the schema; None where there is none yet."""
    if VERSION_TABLE not in _tables(connection):
        return None
    row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").first()
    connection.rollback()
    return str(row[0]) if row else None


def _create(connection: Connection, path: Path) -> None:
    """Make the tables as they are now: a new file needs no history."""
    taken = sorted(_tables(connection) & set(metadata.tables))
    if taken:
        raise ConfigError(
            f"{path} already has tables called {', '.join(taken)} that are not ours: set DATABASE_URL to "
            "another file"
        )
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"  # as Alembic makes it
        )
        connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES (?)", (VERSION,))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _tables(connection: Connection) -> set[str]:
    rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.rollback()
    return {row[0] for row in rows}


def back_up(connection: Connection, path: Path, mark: str) -> Path:
    """Copy the file as a whole, for nobody but its owner."""
    copy = path.with_name(f"{path.name}.{mark}")
    copy.unlink(missing_ok=True)
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection.exec_driver_sql("VACUUM INTO ?", (str(copy),))
    connection.rollback()
    return copy
