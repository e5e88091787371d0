"""Checks of a database file: integrity, schema version and location."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from bot.errors import BotError, ConfigError, StoreInaccessible, UnreadableRow
from bot.store.sql.core.mapping import RowMapping
from bot.store.sql.core.schema import VERSION
from bot.store.sql.core.upgrade import find_usable_version, find_version
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.health import DATABASE_ERRORS, opening_error
from bot.store.sql.stores.cache_logs_costs import CACHED, LOG, MAX_BREAKS, find_breaks
from bot.store.sql.stores.ledger import DELIVERY, RECEIPT, STEP
from bot.store.sql.stores.memories import MEMORY
from bot.store.sql.stores.tasks import TASK
from bot.store.sql.stores.worlds import COMPONENT, ENTITY, RELATIONSHIP, ROOM, WORLD
from bot.store.storage import CheckReport, report_progress

STORED_VALUES: Mapping[str, RowMapping[Any]] = {
    mapping.table.name: mapping
    for mapping in (WORLD, ROOM, ENTITY, COMPONENT, RELATIONSHIP, MEMORY, TASK, RECEIPT, STEP, DELIVERY, CACHED, LOG)
}
COUNTED_TABLES = ("agents", "rooms", "entities", "memories", "receipts", "deliveries", "tasks")
ROW_REMEDY = "the bot leaves them out: correct or delete them"
COPY_REMEDY = ", or `bot db check --repair` copies the others into a new file"
MAX_NAMED_ROWS = 5
ROWS_AT_ONCE = {"yield_per": 1000}  # a driver that fetches whole results would need the memory of a whole table
SURROGATE = re.compile("[\ud800-\udfff]")
DAMAGE_REMEDY = "keep the file, and put a backup in its place (`bot db restore FILE`), or `bot db check --repair`"

MOUNTS_FILE = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEM = re.compile(
    r"9p|afs|beegfs|ceph|cifs|davfs|fuse\.(?:glusterfs|rclone|s3fs|sshfs)|glusterfs|lustre|ncpfs|nfs4?|smb3|smbfs|vboxsf"
)
SYNCHRONISED_FOLDER = re.compile(
    r"dropbox|google ?drive|icloud|mobile documents|nextcloud|onedrive|owncloud|pcloud|syncthing"
)
ADVICE = "set BOT_DATA_DIR or DATABASE_URL to a folder on a local disk, and copy backups there"


def has_file(path: Path) -> bool:
    """Return whether there is a file; raise StoreInaccessible if this user may not look into its folder."""
    try:
        return path.is_file()
    except PermissionError as error:
        raise StoreInaccessible(
            f"the database {path} cannot be read: its folder is closed to this user; run the command as the user "
            "that runs the bot, or correct the permissions of the folder"
        ) from error


def require_file(path: Path) -> None:
    """Raise ConfigError if there is no file, StoreInaccessible if its folder is closed to this user."""
    if not has_file(path):
        raise ConfigError(
            f"there is no database {path}: the first `bot run` or `bot chat` creates it; if there should be "
            "one, check BOT_DATA_DIR, DATABASE_URL and the current folder"
        )


@contextmanager
def open_for_reading(path: Path) -> Iterator[Connection]:
    """Open an existing file read-only; its errors say what to do."""
    require_file(path)
    engine = sqlite.build_engine(path)
    try:
        connection = sqlite.open_reader(engine)
        try:
            yield connection
        finally:
            connection.close()
    except DATABASE_ERRORS as error:
        raise opening_error(error, path) from error
    finally:
        engine.dispose()


def read_version(path: Path) -> str | None:
    """Return the version of a file's schema; None if there is no file or no schema."""
    if not has_file(path):
        return None
    with open_for_reading(path) as connection:
        return find_version(connection)


def check_file(path: Path) -> CheckReport:
    """Check a whole file; a large one takes a while."""
    try:
        if not has_file(path):
            return CheckReport(str(path), exists=False)
        with open_for_reading(path) as connection:
            version, usable = find_version(connection), find_usable_version(connection)
            problems = [*_find_damage(connection), *find_version_problem(usable)]
            facts: dict[str, str | int] = {"schema": version or "none", **_sizes(path)}
            if usable == VERSION:
                facts |= count_rows(connection)
                sqlite.driver_of(connection).text_factory = _decode
                problems += [f"{problem}{COPY_REMEDY}" for problem in find_unreadable(connection)]
                problems += islice(find_breaks(connection), MAX_BREAKS)
    except BotError as error:
        return CheckReport(str(path), problems=(str(error),))
    return CheckReport(str(path), facts=facts, problems=tuple(problems))


def _find_damage(connection: Connection) -> Iterator[str]:
    report_progress("checking the file")
    for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(5)").fetchall():
        if line != "ok":
            yield f"it is damaged ({line}): {DAMAGE_REMEDY}"
    orphans: dict[str, int] = {}
    for table, *_ in connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall():
        orphans[table] = orphans.get(table, 0) + 1
    for table, count in orphans.items():
        yield f"{count} rows of {table} belong to nothing: {DAMAGE_REMEDY}"


def _decode(text: bytes) -> str:
    """Return a text in which a surrogate stands for each byte that is no UTF-8."""
    return text.decode("utf-8", "surrogateescape")


def find_unreadable(connection: Connection) -> Iterator[str]:
    """Yield a problem for each table with rows that cannot be read into values."""
    for number, (name, mapping) in enumerate(STORED_VALUES.items()):
        report_progress("reading the rows", number, len(STORED_VALUES))
        query = f"SELECT {', '.join(mapping.names)} FROM {name}"
        rows = connection.exec_driver_sql(query, execution_options=ROWS_AT_ONCE)
        values = ((row, dict(zip(mapping.names, row, strict=True))) for row in rows)
        labels = [mapping.label_of(row) for row, by_name in values if not is_readable(name, by_name)]
        if labels:
            named = ", ".join(labels[:MAX_NAMED_ROWS]) + (" and others" if len(labels) > MAX_NAMED_ROWS else "")
            yield f"{len(labels)} rows of {name} hold what cannot be read ({named}): {ROW_REMEDY}"


def is_readable(table_name: str, values: Mapping[str, Any]) -> bool:
    """Return whether the row of a table can be read into a value."""
    mapping = STORED_VALUES.get(table_name)
    if any(isinstance(value, str) and not value.isascii() and SURROGATE.search(value) for value in values.values()):
        return False
    try:
        return mapping is None or mapping.decode([values[name] for name in mapping.names]) is not None
    except UnreadableRow:
        return False


def find_version_problem(version: str | None) -> Iterator[str]:
    """Yield a problem if newer code has written the schema."""
    if version is not None and version != VERSION and not (version.isdecimal() and int(version) < int(VERSION)):
        yield f"its schema is {version}, this version of Greenroom knows {VERSION}: update Greenroom"


def _sizes(path: Path) -> dict[str, int]:
    log = path.with_name(f"{path.name}-wal")
    return {"bytes": path.stat().st_size, "bytes in the log": log.stat().st_size if log.exists() else 0}


def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of the main tables."""
    query = "SELECT count(*) FROM {}"
    return {table: int(connection.exec_driver_sql(query.format(table)).scalar_one()) for table in COUNTED_TABLES}


def find_location_problems(path: Path, mounts: Path = MOUNTS_FILE) -> Iterator[str]:
    """Yield reasons not to store a database at this path."""
    real_path = os.path.realpath(path)
    file_system = _file_system_of(real_path, mounts)
    if NETWORK_FILE_SYSTEM.fullmatch(file_system):
        yield (
            f"the database {path} is on a network disk ({file_system}), where locks and commits cannot be "
            f"relied on: {ADVICE}"
        )
    folders = Path(real_path).parent.parts
    name = next((folder for folder in folders if SYNCHRONISED_FOLDER.match(folder.casefold())), None)
    if name is not None:
        yield (
            f"the database {path} is in a synchronised folder ({name!r}), which may replace the file "
            f"while it is open: {ADVICE}"
        )


def _file_system_of(real_path: str, mounts: Path) -> str:
    """Return the type of a path's file system by its longest mount point; empty if unknown."""
    longest_match, file_system = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        front, _, back = line.partition(" - ")
        point = front.split()[4].encode().decode("unicode_escape")
        if len(point) >= len(longest_match) and (real_path == point or real_path.startswith(point.rstrip("/") + "/")):
            longest_match, file_system = point, back.split()[0]
    return file_system
