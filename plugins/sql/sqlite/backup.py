"""Online copy; holds open work of a restored copy.

Every copy carries a stamp in its header: a number that says so, and the minute in which it was made. A
database at work has none.
"""

import logging
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, update

from bot import ConfigError, Outcome, system_clock
from bot.platform import DeliveryState
from plugins.sql.core.schema import cursors, deliveries, receipts
from plugins.sql.core.statements import flag
from plugins.sql.core.values import moment
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.check import reading

logger = logging.getLogger(__name__)


def back_up(connection: Connection, path: Path, mark: str) -> Path:
    """Copy the file as a whole, for nobody but its owner.

    The copy gets its name once it is complete and on the disk: what bears it can be relied on.
    """
    copy = path.with_name(f"{path.name}.{mark}")
    partial = copy.with_name(f"{copy.name}.part")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        connection.exec_driver_sql("VACUUM INTO ?", (str(partial),))
        stamp(partial)
        os.fsync(handle)
    finally:
        os.close(handle)
        connection.rollback()
    partial.replace(copy)
    return copy


def copied(path: Path, target: Path | None = None) -> Path:
    """Copy a file as it is at one moment, for nobody but its owner; gives the copy.

    Raises ConfigError where the target is there already, or cannot be written.
    """
    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    target = target or path.with_name(f"{path.stem}-{now}{path.suffix}")
    with reading(path) as connection:
        _make(target)
        try:
            connection.exec_driver_sql("PRAGMA query_only = OFF")  # it would keep the copy from being written
            connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
            stamp(target)
            _flush(target)
        except BaseException:
            target.unlink()
            raise
    return target


def _make(target: Path) -> None:
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise ConfigError(f"{target} is there already: name another file, or remove it") from None
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name another file") from None


def _flush(target: Path) -> None:
    handle = os.open(target, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


IS_COPY = 0x6772636F
MARK, MINUTE = slice(68, 72), slice(60, 64)  # SQLite's `application_id` and `user_version`
WRITE_VERSION = 18
WITH_LOG = 2
REASON = "the database was put back from a copy of {made}: {what} since"


def stamp(path: Path) -> None:
    """Mark a finished copy as one."""
    minute = int(system_clock().timestamp()) // 60
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {minute}")
        connection.execute(f"PRAGMA application_id = {IS_COPY}")


def hold_what_was_open(engine: Engine, path: Path) -> bool:
    """Where the file is a copy that was put back, settle what was open in it; tells whether it is one.

    Parts become `unknown`, messages `parked`, and how far streams were read is forgotten: what came in
    after the copy was made may have been answered as well. The stamp is taken off in the same
    transaction. Nothing is done to a damaged copy.
    """
    header = _header(path)
    if int.from_bytes(header[MARK], "big") != IS_COPY:
        return False
    if header[WRITE_VERSION] != WITH_LOG:
        _set_aside_foreign_log(path)
    with closing(engine.connect()) as connection:
        sqlite.check(connection, path)
        made = datetime.fromtimestamp(int.from_bytes(header[MINUTE], "big") * 60, UTC)
        sqlite.begin(connection, to_write=True)
        messages, parts = _hold(connection, made)
        for number in ("application_id", "user_version"):
            connection.exec_driver_sql(f"PRAGMA {number} = 0")
        sqlite.commit(connection)
    logger.warning(
        "the database %s is a copy of %s: %d messages and %d parts that were open in it are held, since "
        "they may have been answered after it was made; `bot outbox list` shows the parts",
        path,
        _shown(made),
        messages,
        parts,
    )
    return True


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _set_aside_foreign_log(path: Path) -> None:
    """Keep SQLite from applying a log of the database that was here before: a fresh copy has none."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        aside = log.replace(path.with_name(f"{path.name}-wal.before-copy"))
        logger.warning("%s belongs to the database that was here before; it is kept as %s", log, aside)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)


def _hold(connection: Connection, made: datetime) -> tuple[int, int]:
    now = moment(system_clock())
    answered = REASON.format(made=_shown(made), what="it may have been answered")
    sent = REASON.format(made=_shown(made), what="it may have been sent")
    parked = {"outcome": Outcome.PARKED.value, "reason": answered, "rule": "restore", "closed_at": now}
    held = {"state": DeliveryState.UNKNOWN.value, "cause": sent}
    messages = connection.execute(
        update(receipts).where(flag(receipts.c.is_open)).values(is_open=0, **parked)
    )
    parts = connection.execute(update(deliveries).where(flag(deliveries.c.is_open)).values(is_open=0, **held))
    connection.execute(delete(cursors))
    return messages.rowcount, parts.rowcount


def _shown(made: datetime) -> str:
    return made.astimezone().strftime("%Y-%m-%d %H:%M")
