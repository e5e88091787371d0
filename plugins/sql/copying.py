"""Copying a database as a whole, also while it is in use."""

import os
from datetime import UTC, datetime
from pathlib import Path

from bot import ConfigError
from plugins.sql.examining import reading
from plugins.sql.restored import stamp


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
