"""A copy of a SQLite file, made while it is in use."""

import os
from pathlib import Path

from sqlalchemy import Connection

from plugins.sql.restored import stamp


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
