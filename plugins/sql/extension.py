"""What PostgreSQL must be taught first: vectors."""

from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from bot import ConfigError


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
