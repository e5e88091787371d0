"""SQLite files: creation, connections, transactions, checks and the write-ahead log.

One connection writes and is the only one that checkpoints; the others are read-only. That also avoids the
write-ahead log bug of SQLite before 3.51.3, which needs two writers.
"""

import logging
import os
import sqlite3
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from bot.errors import ConfigError
from bot.store.sql.core import vector_cache
from bot.store.sql.core.base import INFO_KEY, RecentMemoryCache, Synchronous

logger = logging.getLogger(__name__)

BUSY_TIMEOUT_SECONDS, TRUNCATION_TIMEOUT_SECONDS = 10.0, 0.1
CHECK_SECONDS = 2.0
MAX_LOG_BYTES = 64 * 1024 * 1024
PAGE_CACHE_BYTES = 8 * 1024 * 1024  # in a large file each message touches many pages
DATA_VERSION = "greenroom-data-version"  # in the information of a connection
PROBE_TABLE, PROBE_BYTES = "greenroom_trial", 64 * 1024


def create_file(path: Path) -> None:
    """Create the file and its directory, accessible only to their owner, unless they exist."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be created: {error.strerror}; check its directory, or set BOT_DATA_DIR or DATABASE_URL"
        ) from None


def build_engine(path: Path, connection_class: type[sqlite3.Connection] = sqlite3.Connection) -> Engine:
    """Return an engine for a file; each connection belongs to the thread that opens it.

    Tests may pass a connection class that raises errors.
    """
    return create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        hide_parameters=True,  # in errors: they hold what people wrote
        connect_args={
            "isolation_level": None,  # this code begins transactions itself
            "timeout": BUSY_TIMEOUT_SECONDS,
            "factory": connection_class,
        },
    )


def _connect(engine: Engine) -> Connection:
    connection = engine.connect()
    driver_of(connection).text_factory = _decode_text
    return connection


def _decode_text(text: bytes) -> str:
    """Return a text with U+FFFD for what is no UTF-8, for which the driver would fail to read a whole result."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        _report_invalid_text()
        return text.decode("utf-8", "replace")


@lru_cache(maxsize=1)
def _report_invalid_text() -> None:
    """Log it once: the text may be read for every message."""
    logger.error("a text in the database is no UTF-8: it is read with replacement characters; `bot db check` names it")


def open_writer(engine: Engine, synchronous: Synchronous) -> Connection:
    """Open the writing connection."""
    connection = _connect(engine)
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {synchronous}",
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {MAX_LOG_BYTES}",
        f"cache_size = -{PAGE_CACHE_BYTES // 1024}",
        "foreign_keys = ON",
        "temp_store = MEMORY",
        "secure_delete = ON",  # what is deleted is overwritten
    ):
        run_pragma(connection, pragma)
    return connection


def set_synchronous(connection: Connection, level: Synchronous) -> None:
    """Set when later commits count as stored."""
    driver_of(connection).execute(f"PRAGMA synchronous = {level}")


def open_reader(engine: Engine) -> Connection:
    """Open a read-only connection."""
    connection = _connect(engine)
    for pragma in ("query_only = ON", "wal_autocheckpoint = 0", "temp_store = MEMORY"):
        run_pragma(connection, pragma)
    return connection


def close_writer(connection: Connection) -> None:
    """Write the log back into the file if possible, and close."""
    try:
        run_pragma(connection, "wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def checkpoint(connection: Connection, *, truncates: bool = False) -> bool:
    """Write back the part of the log that no reader needs; return whether that was all.

    With `truncates` the log is empty then; other programs that read it are waited for only shortly.
    """
    if not truncates:
        _, length, written = driver_of(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(length == written)
    set_busy_timeout(connection, TRUNCATION_TIMEOUT_SECONDS)
    try:
        is_busy, *_ = driver_of(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        set_busy_timeout(connection, BUSY_TIMEOUT_SECONDS)
    return not is_busy


def check_log(path: Path, needed_since: int | None) -> None:
    """Raise ConfigError if the log left by a killed process is missing.

    If another program has written the log back meanwhile, the file's time shows it.
    """
    log = path.with_name(f"{path.name}-wal")
    if needed_since is None or log.exists() or path.stat().st_mtime_ns > needed_since:
        return
    raise ConfigError(
        f"{log} is missing, and with it the latest writes: put it back beside {path.name}; if it is lost "
        f"for good, remove {path.name}.lock, and the bot continues without it"
    )


def check_writable(connection: Connection) -> None:
    """Raise the driver's error if nothing can be written."""
    begin(connection, to_write=True)
    roll_back(connection)


def probe_writes(connection: Connection) -> None:
    """Raise the driver's error if space or permission is missing; leave nothing behind."""
    cursor = driver_of(connection)
    cursor.execute(f"DROP TABLE IF EXISTS {PROBE_TABLE}")
    cursor.execute(f"CREATE TABLE {PROBE_TABLE} AS SELECT zeroblob({PROBE_BYTES})")
    cursor.execute(f"DROP TABLE {PROBE_TABLE}")


def set_busy_timeout(connection: Connection, seconds: float) -> None:
    """Set how many seconds to wait for other programs' locks."""
    driver_of(connection).execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


def begin(connection: Connection, *, to_write: bool = False) -> None:
    """Begin a transaction without SQLAlchemy, which takes longer for it than SQLite."""
    cursor = driver_of(connection)
    cursor.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
    if not to_write:
        vector_cache.on_begin(connection)
        return
    [version] = cursor.execute("PRAGMA data_version").fetchone()
    if connection.info.setdefault(DATA_VERSION, version) != version:  # another program has written
        connection.info[DATA_VERSION] = version
        for cache in _caches_of(connection):
            cache.clear()


def commit(connection: Connection) -> None:
    """Commit the transaction of `begin`."""
    driver_of(connection).commit()
    for cache in _caches_of(connection):
        cache.on_commit()
    _end_core_transaction(connection)


def roll_back(connection: Connection) -> None:
    """Roll back the transaction of `begin`."""
    driver_of(connection).rollback()
    for cache in _caches_of(connection):
        cache.on_rollback()
    _end_core_transaction(connection)


def invalidate_caches(connection: Connection) -> None:
    """Drop what the caches hold of a transaction of which a part was rolled back."""
    if INFO_KEY in connection.info:
        connection.info[INFO_KEY].invalidate()


def _caches_of(connection: Connection) -> list[RecentMemoryCache | vector_cache.VectorCache]:
    """Return the caches to which the writing connection reports."""
    return [connection.info[key] for key in (vector_cache.WRITER_KEY, INFO_KEY) if key in connection.info]


def _end_core_transaction(connection: Connection) -> None:
    if connection.in_transaction():  # a job has used Core, which assumes that it began the transaction
        connection.rollback()


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection."""
    driver_connection: Any = connection.connection.driver_connection
    assert isinstance(driver_connection, sqlite3.Connection)
    return driver_connection


def check_integrity(connection: Connection, path: Path, *, was_interrupted: bool = False) -> None:
    """Raise ConfigError if the file is damaged.

    It is looked through for at most `CHECK_SECONDS`, which is enough for some gigabytes of a warm disk, or to its end
    if the process before `was_interrupted`. Damage that is not found stops all writing when it is met.
    """
    result = _quick_check(connection, None if was_interrupted else CHECK_SECONDS)
    if result == "ok":
        log = path.with_name(f"{path.name}-wal")
        size, needed = path.stat().st_size, run_pragma(connection, "page_count") * run_pragma(connection, "page_size")
        is_whole = size >= needed or (log.exists() and log.stat().st_size > 0)
        result = "ok" if is_whole else f"{needed - size} bytes are missing at its end"
    if result != "ok":
        raise ConfigError(
            f"the database {path} is damaged ({result}): keep the file, and put a backup in its place "
            "(`bot db restore FILE`), or copy what can be read with `bot db check --repair`"
        )


def _quick_check(connection: Connection, seconds: float | None) -> Any:
    """Return what SQLite finds within some seconds, "ok" for nothing."""
    if seconds is None:
        return run_pragma(connection, "quick_check(1)")
    is_over = threading.Event()

    def interrupt() -> None:
        is_over.set()
        driver_of(connection).interrupt()

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return run_pragma(connection, "quick_check(1)")
    except OperationalError as error:
        if not is_over.is_set() or "interrupted" not in str(error):
            raise
        connection.rollback()
        return "ok"
    finally:
        timer.cancel()
        timer.join()


def run_pragma(connection: Connection, text: str) -> Any:
    result = connection.exec_driver_sql(f"PRAGMA {text}")
    row = result.first() if result.returns_rows else None
    connection.rollback()
    return row[0] if row else None
