"""Copies of the database, and the recovery of a restored copy.

Every copy has a stamp in its header: a mark, and the minute in which it was made. A database in use
has none.
"""

import logging
import os
import re
import sqlite3
import sys
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Delete, Engine, Update, delete, update

from bot.concurrency.clock import system_clock
from bot.domain.ledger import DeliveryState, Outcome
from bot.errors import ConfigError
from bot.store.sql.core.mapping import is_flag
from bot.store.sql.core.schema import cursors, deliveries, receipts
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.check import open_for_reading
from bot.store.storage import report_progress

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

COPY_MARK = 0x6772636F
MARK_BYTES, MINUTE_BYTES = slice(68, 72), slice(60, 64)  # SQLite's `application_id` and `user_version`
WRITE_VERSION_BYTE = 18
COPYING = "copying the database"
STEPS_PER_REPORT = 20_000  # of SQLite's virtual machine
WAL_WRITE_VERSION = 2
SQLITE_LOCK_START, SQLITE_LOCK_BYTES = 0x40000000, 512  # of a file, where SQLite locks it
REASON_TEMPLATE = "the database was put back from a copy of {made}: {what} since"


def back_up(connection: Connection, path: Path, suffix: str) -> Path:
    """Copy the whole file, readable only by its owner; return the copy.

    The copy gets its name once it is complete and on the disk.
    """
    copy = path.with_name(f"{path.name}.{suffix}")
    unfinished = copy.with_name(f"{copy.name}.part")
    unfinished.unlink(missing_ok=True)
    try:
        _write_copy(connection, path, unfinished)
    finally:
        connection.rollback()
    unfinished.replace(copy)
    return copy


def copy_database(path: Path, target: Path | None = None) -> Path:
    """Write a consistent copy of a file, readable only by its owner; return the copy.

    The copy gets its name once it is complete and on the disk. Raise ConfigError if the target exists or cannot
    be written.
    """
    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    target = target or path.with_name(f"{path.stem}-{now}{path.suffix}")
    unfinished = target.with_name(f"{target.name}.part")
    with open_for_reading(path) as connection, ExitStack() as finally_:
        if target.exists():
            raise _exists(target)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        finally_.callback(unfinished.unlink, missing_ok=True)
        connection.exec_driver_sql("PRAGMA query_only = OFF")  # it would prevent writing the copy
        _write_copy(connection, path, unfinished)
        _publish(unfinished, target)
    return target


def remove_unfinished(path: Path) -> None:
    """Delete what killed processes have left of copies of a database beside it, but not what one still writes."""
    name, stem, suffix = re.escape(path.name), re.escape(path.stem), re.escape(path.suffix)
    pattern = re.compile(rf"({name}(\..+)?|{stem}-[\d-]+{suffix})\.part")
    for file in path.parent.iterdir():
        if pattern.fullmatch(file.name):
            with suppress(OSError):
                _check_unused(file)
                file.unlink()
                logger.info("deleted %s, which an interrupted copy has left", file)


def _check_unused(file: Path) -> None:
    """Raise OSError if another process writes a database: it holds SQLite's lock. Windows deletes no such file."""
    if sys.platform != "win32":
        with file.open("r+b") as handle:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, SQLITE_LOCK_BYTES, SQLITE_LOCK_START)


def _write_copy(connection: Connection, path: Path, unfinished: Path) -> None:
    """Copy a database into a new file, which is marked and on the disk afterwards; report how far that is."""
    create_private_file(unfinished)
    total = path.stat().st_size
    driver = sqlite.driver_of(connection)

    def report() -> int:
        report_progress(COPYING, min(unfinished.stat().st_size, total), total)  # what it raises ends the statement
        return 0

    driver.set_progress_handler(report, STEPS_PER_REPORT)
    try:
        connection.exec_driver_sql("VACUUM INTO ?", (str(unfinished),))
    finally:
        driver.set_progress_handler(None, 0)
    stamp_copy(unfinished)
    sync_to_disk(unfinished)


def _publish(unfinished: Path, target: Path) -> None:
    """Rename a complete copy to its final name. Raises ConfigError if a file of that name exists."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without links
        if target.exists():
            raise _exists(target) from None
        unfinished.replace(target)


def _exists(target: Path) -> ConfigError:
    return ConfigError(f"{target} exists already: name another file, or remove it")


def create_private_file(target: Path) -> None:
    """Create an empty file that only its owner may read. Raises ConfigError if it exists or cannot be written."""
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name another file") from None


def sync_to_disk(target: Path) -> None:
    """Wait until a file is on the disk."""
    handle = os.open(target, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def stamp_copy(path: Path) -> None:
    """Mark a finished copy with its stamp."""
    minute = int(system_clock().timestamp()) // 60
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {minute}")
        connection.execute(f"PRAGMA application_id = {COPY_MARK}")


def hold_open_work(engine: Engine, path: Path) -> bool:
    """Close what is open in a restored copy; return whether the file is one.

    Open deliveries become `unknown`, open receipts `parked`, and stream cursors are deleted: all may have
    changed after the copy was made. The stamp is removed in the same transaction. A damaged copy is not
    changed.
    """
    if not is_copy(path):
        return False
    header = _header(path)
    if header[WRITE_VERSION_BYTE] != WAL_WRITE_VERSION:
        _move_foreign_log(path)
    with closing(engine.connect()) as connection:
        sqlite.check_integrity(connection, path)
        copied_at = datetime.fromtimestamp(int.from_bytes(header[MINUTE_BYTES], "big") * 60, UTC)
        sqlite.begin(connection, to_write=True)
        messages, parts, _ = [connection.execute(statement) for statement in build_holding_statements(copied_at)]
        for number in ("application_id", "user_version"):
            connection.exec_driver_sql(f"PRAGMA {number} = 0")
        sqlite.commit(connection)
    logger.warning(
        "the database %s is a copy of %s: its %d open messages and %d open deliveries are held, since "
        "they may have been answered after it was made; `bot outbox list` shows the deliveries",
        path,
        _format_time(copied_at),
        messages.rowcount,
        parts.rowcount,
    )
    return True


def is_copy(path: Path) -> bool:
    """Return whether a file has the stamp of a copy."""
    return int.from_bytes(_header(path)[MARK_BYTES], "big") == COPY_MARK


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _move_foreign_log(path: Path) -> None:
    """Rename a log of the previous database, or SQLite would apply it: a new copy has none."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        renamed = log.replace(path.with_name(f"{path.name}-wal.before-copy"))
        logger.warning("%s belongs to the previous database; it was renamed to %s", log, renamed)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)


def build_holding_statements(copied_at: datetime) -> list[Update | Delete]:
    """Return the statements that close open receipts and deliveries of a copy and forget where streams were read."""
    now = system_clock()
    receipt_reason = REASON_TEMPLATE.format(made=_format_time(copied_at), what="it may have been answered")
    delivery_reason = REASON_TEMPLATE.format(made=_format_time(copied_at), what="it may have been sent")
    receipt_values = {"outcome": Outcome.PARKED.value, "reason": receipt_reason, "rule": "restore", "closed_at": now}
    delivery_values = {"state": DeliveryState.UNKNOWN.value, "cause": delivery_reason, "first_attempt_at": None}
    return [
        update(receipts).where(is_flag(receipts.c.is_open)).values(is_open=False, **receipt_values),
        update(deliveries).where(is_flag(deliveries.c.is_open)).values(is_open=False, **delivery_values),
        delete(cursors),
    ]


def _format_time(copied_at: datetime) -> str:
    return copied_at.astimezone().strftime("%Y-%m-%d %H:%M")
