"""What is SQLite's own: the file, its connections, its checks and its log.

One connection writes and is the only one that checkpoints; the others are read-only. That is also what
keeps clear of the fault of write-ahead logs in SQLite before 3.51.3, which needs two writers.
"""

import os
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from bot import ConfigError
from plugins.sql.core import vector_cache
from plugins.sql.core.recent_cache import told_by
from plugins.sql.core.row_cache import forget, forget_unless, keep_knowledge

PATIENCE = 10.0
LARGE = 64 * 1024 * 1024
LOG_SIZE = 64 * 1024 * 1024
CACHE = 8 * 1024 * 1024  # of pages: in a large file each message touches many
TRIAL, TRIAL_SIZE = "greenroom_trial", 64 * 1024


class Synchronous(StrEnum):
    """When a commit counts as kept: FULL outlives a power cut, NORMAL only the process."""

    NORMAL = "NORMAL"
    FULL = "FULL"
    EXTRA = "EXTRA"


def create_file(path: Path) -> None:
    """Make the file, and its directory, for nobody but their owner; what exists stays as it is."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be made: {error.strerror}; see to its directory, or set "
            "BOT_DATA_DIR or DATABASE_URL"
        ) from None


def engine_of(path: Path, connected: type[sqlite3.Connection] = sqlite3.Connection) -> Engine:
    """Describe connections to a file; each belongs to the thread that opens it.

    A test may have them made of a class that fails when it is told to.
    """
    return create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={
            "isolation_level": None,  # transactions begin where we say so
            "timeout": PATIENCE,
            "factory": connected,
        },
    )


def open_writer(engine: Engine, synchronous: Synchronous) -> Connection:
    """Open the connection that writes."""
    connection = engine.connect()
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {synchronous}",
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {LOG_SIZE}",
        f"cache_size = -{CACHE // 1024}",
        "foreign_keys = ON",
        "temp_store = MEMORY",
    ):
        _pragma(connection, pragma)
    keep_knowledge(connection)
    return connection


def set_synchronous(connection: Connection, level: Synchronous) -> None:
    """Say when the commits from here on count as kept."""
    driver(connection).execute(f"PRAGMA synchronous = {level}")


def open_reader(engine: Engine) -> Connection:
    """Open a connection that only reads."""
    connection = engine.connect()
    for pragma in ("query_only = ON", "wal_autocheckpoint = 0", "temp_store = MEMORY"):
        _pragma(connection, pragma)
    return connection


def close_writer(connection: Connection) -> None:
    """Write the log back into the file, where nothing hinders it, and close."""
    try:
        _pragma(connection, "wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def checkpoint(connection: Connection) -> bool:
    """Write the log back into the file as far as no reader needs it; tells whether that was all of it."""
    _, length, done = driver(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(length == done)


def check_log(path: Path, needed_since: int | None) -> None:
    """Raise ConfigError where the log is gone which a process that was killed has left.

    Another program that opened the file in the meantime has written the log back, which shows.
    """
    log = path.with_name(f"{path.name}-wal")
    if needed_since is None or log.exists() or path.stat().st_mtime_ns > needed_since:
        return
    raise ConfigError(
        f"{log} is missing, and with it what was kept last: put it back beside {path.name}; if it is lost "
        f"for good, remove {path.name}.lock, and the bot goes on without it"
    )


def check_writable(connection: Connection) -> None:
    """Raise the driver's error where nothing can be written."""
    begin(connection, to_write=True)
    roll_back(connection)


def try_out(connection: Connection) -> None:
    """Do everything that may fail for want of space or permission, and leave nothing of it behind."""
    cursor = driver(connection)
    cursor.execute(f"DROP TABLE IF EXISTS {TRIAL}")
    cursor.execute(f"CREATE TABLE {TRIAL} AS SELECT zeroblob({TRIAL_SIZE})")
    cursor.execute(f"DROP TABLE {TRIAL}")


def wait_for_locks(connection: Connection, seconds: float) -> None:
    """Say how long to wait for other programs' locks."""
    driver(connection).execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


def begin(connection: Connection, *, to_write: bool = False) -> None:
    """Begin a transaction past SQLAlchemy, which takes longer for it than SQLite does."""
    cursor = driver(connection)
    cursor.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
    if not to_write:
        vector_cache.begun(connection)
        return
    [version] = cursor.execute("PRAGMA data_version").fetchone()
    if forget_unless(connection, version):
        vector_cache.watched_by(connection).clear()
        if recents := told_by(connection):
            recents.clear()


def commit(connection: Connection) -> None:
    """Commit what `begin` began."""
    driver(connection).commit()
    vector_cache.watched_by(connection).settle()
    if recents := told_by(connection):
        recents.settle()
    _forget(connection)


def roll_back(connection: Connection) -> None:
    """Undo what was done since `begin`."""
    driver(connection).rollback()
    vector_cache.watched_by(connection).undo()
    if recents := told_by(connection):
        recents.undo()
    _forget(connection)
    forget(connection)


def _forget(connection: Connection) -> None:
    if connection.in_transaction():  # a job has used Core, which then thinks that it began one itself
        connection.rollback()


def driver(connection: Connection) -> sqlite3.Connection:
    """Give the driver's own connection."""
    found: Any = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def check(connection: Connection, path: Path) -> None:
    """Raise ConfigError where the file is damaged; a large one is only looked at from outside."""
    size = path.stat().st_size
    if size <= LARGE:
        found = _pragma(connection, "quick_check(1)")
    else:
        log = path.with_name(f"{path.name}-wal")
        needed = _pragma(connection, "page_count") * _pragma(connection, "page_size")
        is_whole = size >= needed or (log.exists() and log.stat().st_size > 0)
        found = "ok" if is_whole else f"{needed - size} bytes are missing at its end"
    if found != "ok":
        raise ConfigError(
            f"the database {path} is damaged ({found}): keep the file, and put a backup in its place"
        )


def _pragma(connection: Connection, text: str) -> Any:
    result = connection.exec_driver_sql(f"PRAGMA {text}")
    row = result.first() if result.returns_rows else None
    connection.rollback()
    return row[0] if row else None
