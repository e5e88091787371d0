"""Integrity check, file location warnings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import BotError, ConfigError
from bot.store import Checkup
from plugins.sql.core.schema import VERSION
from plugins.sql.core.upgrade import version_of
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.health import at_opening
from plugins.sql.stores.audit_log import MOST_BREAKS, breaks

COUNTED = ("agents", "rooms", "entities", "memories", "receipts", "deliveries", "tasks")
DAMAGED = "keep the file, and put a backup in its place"


def require_file(path: Path) -> None:
    """Raise ConfigError where there is no file."""
    if not path.is_file():
        raise ConfigError(
            f"there is no database {path}: the first `bot run` or `bot chat` makes it; if there should be "
            "one, look at BOT_DATA_DIR, DATABASE_URL and the folder you are in"
        )


@contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """Open a file that is there, for reading alone; its faults say what to do."""
    require_file(path)
    engine = sqlite.engine_of(path)
    try:
        connection = sqlite.open_reader(engine)
        try:
            yield connection
        finally:
            connection.close()
    except DatabaseError as error:
        raise at_opening(error, path) from error
    finally:
        engine.dispose()


def version_in(path: Path) -> str | None:
    """Read the version of a file's schema; None where there is no file, or nothing in it."""
    if not path.is_file():
        return None
    with reading(path) as connection:
        return version_of(connection)


def examined(path: Path) -> Checkup:
    """Look at a file as a whole; a large one takes a while."""
    if not path.is_file():
        return Checkup(str(path), is_there=False)
    try:
        with reading(path) as connection:
            found = version_of(connection)
            problems = [*_damage(connection), *age(found)]
            facts: dict[str, str | int] = {"schema": found or "none", **_sizes(path)}
            if found == VERSION:
                facts |= counted(connection)
                problems += islice(breaks(connection), MOST_BREAKS)
    except BotError as error:
        return Checkup(str(path), problems=(str(error),))
    return Checkup(str(path), facts=facts, problems=tuple(problems))


def _damage(connection: Connection) -> Iterator[str]:
    for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(5)").fetchall():
        if line != "ok":
            yield f"it is damaged ({line}): {DAMAGED}"
    strays: dict[str, int] = {}
    for table, *_ in connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall():
        strays[table] = strays.get(table, 0) + 1
    for table, count in strays.items():
        yield f"{count} rows of {table} belong to nothing: {DAMAGED}"


def age(found: str | None) -> Iterator[str]:
    """Tell whether newer code has written a schema."""
    if found is not None and found != VERSION and not (found.isdecimal() and int(found) < int(VERSION)):
        yield f"its schema is {found}, this version of Greenroom knows {VERSION}: update Greenroom"


def _sizes(path: Path) -> dict[str, int]:
    log = path.with_name(f"{path.name}-wal")
    return {"bytes": path.stat().st_size, "bytes in the log": log.stat().st_size if log.exists() else 0}


def counted(connection: Connection) -> dict[str, int]:
    """Count what people ask after."""
    query = "SELECT count(*) FROM {}"
    return {one: int(connection.exec_driver_sql(query.format(one)).scalar_one()) for one in COUNTED}


MOUNTS = Path("/proc/self/mountinfo")
REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "vboxsf",
    ]
)
SYNCHRONISED = (
    "dropbox",
    "google drive",
    "googledrive",
    "icloud",
    "mobile documents",
    "nextcloud",
    "onedrive",
    "owncloud",
    "pcloud",
    "syncthing",
)
ADVICE = "set BOT_DATA_DIR or DATABASE_URL to a folder on this machine's own disk, and copy backups there"


def doubts(path: Path, mounts: Path = MOUNTS) -> Iterator[str]:
    """Say what speaks against keeping a database at this place."""
    place = os.path.realpath(path)
    kind = _kind_of_disk(place, mounts)
    if kind in REMOTE:
        yield (
            f"the database {path} lies on a network's disk ({kind}), where locks and commits cannot be "
            f"relied on: {ADVICE}"
        )
    folders = Path(place).parent.parts
    name = next((one for one in folders if one.casefold().startswith(SYNCHRONISED)), None)
    if name is not None:
        yield (
            f"the database {path} lies in a folder that is synchronised ({name!r}), which may replace it "
            f"under way: {ADVICE}"
        )


def _kind_of_disk(place: str, mounts: Path) -> str:
    """Find the kind of file system by the longest mount point above a place; blank where nobody knows."""
    best, kind = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        front, _, back = line.partition(" - ")
        point = front.split()[4].encode().decode("unicode_escape")
        if len(point) >= len(best) and (place == point or place.startswith(point.rstrip("/") + "/")):
            best, kind = point, back.split()[0]
    return kind
