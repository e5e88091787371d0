"""Copy what can be read of a damaged file, and put a copy in the place of the database."""

import logging
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Table

from bot.concurrency.tasks import crash_point
from bot.domain.inbound import ERASURE_COMPONENT
from bot.errors import ConfigError
from bot.store.protocols import Schemas
from bot.store.sql.core.schema import VERSION, metadata
from bot.store.sql.core.upgrade import CORE_NAME, upgrade_schemas, version_table_name
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.backup import create_private_file, is_copy, stamp_copy, sync_to_disk
from bot.store.sql.sqlite.check import check_file, is_readable
from bot.store.sql.sqlite.file_lock import FileLock
from bot.store.sql.sqlite.health import DATABASE_ERRORS
from bot.store.storage import NO_SCHEMAS, report_progress

logger = logging.getLogger(__name__)
Row = Sequence[Any]
COPY_BYTES = 4 * 1024 * 1024
MAX_STEP = 1 << 40  # row numbers are smaller
SIDE_FILES = ("-wal", "-shm")


def restore_copy(path: Path, copy: Path) -> Path | None:
    """Replace the database by a copy of it; return where the previous file is now, None if there was none.

    Raises ConfigError if the copy has a problem, StoreInaccessible if a process uses the database.
    """
    report_progress("verifying the copy")
    report = check_file(copy)
    problems = report.problems if report.exists else ("there is no such file",)
    if problems:
        raise ConfigError(f"{copy} cannot be put in place: {problems[0]}")
    if report.facts.get("schema") == "none":
        raise ConfigError(f"{copy} cannot be put in place: it is no database of Greenroom")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock, unfinished = FileLock(path), path.with_name(f"{path.name}.part")
    lock.acquire()
    try:
        with ExitStack() as on_failure:
            on_failure.callback(unfinished.unlink, missing_ok=True)
            _copy_private(copy, unfinished)
            if path.exists():
                _carry_requests(path, unfinished)
            if not is_copy(unfinished):  # its open work may have been done since: it is held at the next start
                stamp_copy(unfinished)
            crash_point("restore.copied")
            report_progress("keeping the previous database")
            previous = _keep(path)
            crash_point("restore.kept")
            unfinished.replace(path)
            on_failure.pop_all()
            crash_point("restore.replaced")
        for suffix in SIDE_FILES:  # if this does not happen, the next start moves them aside
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
        lock.record_log(is_needed=False)
    finally:
        lock.release()
    return previous


CARRY_MARKS = """
INSERT OR IGNORE INTO person_marks (agent_id, entity_id, mark, origin, world_id, platform, external_id, at)
SELECT own.id, entity_id, mark, origin, world_id, platform, external_id, at FROM previous.person_marks AS marks
JOIN previous.agents AS other ON other.id = marks.agent_id JOIN agents AS own ON own.key = other.key
"""
FIND_ERASED = """
SELECT DISTINCT entity_id FROM previous.components WHERE type = ?1
EXCEPT SELECT entity_id FROM components WHERE type = ?1
"""


def _carry_requests(previous: Path, copy: Path) -> None:
    """Copy the marks of people from the database that is replaced, and name those whose data was deleted since.

    Where one of the two cannot be read, or has no such tables, nothing is copied.
    """
    with closing(sqlite3.connect(f"{copy.absolute().as_uri()}", uri=True)) as connection:
        try:
            connection.execute("ATTACH ? AS previous", (f"{previous.absolute().as_uri()}?mode=ro",))
            with connection:
                count = connection.execute(CARRY_MARKS).rowcount
            erased = [UUID(bytes=row[0]) for row in connection.execute(FIND_ERASED, (ERASURE_COMPONENT,))]
        except sqlite3.Error as error:
            logger.warning("the marks of people in %s cannot be taken over: %s", previous, error)
            return
    if count:
        logger.warning("%d marks of people who are not read, or are minors, were taken over", count)
    for person_id in erased:
        logger.warning("a person had their data deleted since the copy was made: `bot person forget %s`", person_id)


def _copy_private(source: Path, target: Path) -> None:
    """Copy a file that is not being written, with what its log holds."""
    target.unlink(missing_ok=True)
    create_private_file(target)
    if source.with_name(f"{source.name}-wal").exists():
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
    else:
        _copy_reporting(source, target)
    with closing(sqlite3.connect(target)) as new:
        new.execute("PRAGMA journal_mode = DELETE")  # so that a log beside it is known to be of another database
    sync_to_disk(target)


def _copy_reporting(source: Path, target: Path) -> None:
    total, done = source.stat().st_size, 0
    with source.open("rb") as old, target.open("wb") as new:
        while chunk := old.read(COPY_BYTES):
            new.write(chunk)
            done += len(chunk)
            report_progress("copying the file", done, total)


def _keep(path: Path) -> Path | None:
    """Copy a database with its side files; return the copy, None where there is no database.

    The file itself stays until it is replaced: a start after a crash must find a database.
    """
    if not path.exists():
        return None
    previous = path.with_name(f"{path.name}.before-restore-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    for suffix in ("", *SIDE_FILES):
        file = path.with_name(f"{path.name}{suffix}")
        if file.exists():
            shutil.copy2(file, previous.with_name(f"{previous.name}{suffix}"))
    return previous


def copy_readable(path: Path, schemas: Schemas = NO_SCHEMAS) -> tuple[Path, dict[str, int]]:
    """Copy every readable row of a file into a new one; return that file, and the lost rows by table.

    The original is not changed. A row is lost if it, or the row it belongs to, cannot be read; how many rows
    are on unreadable pages is not known, and each such gap counts as one. Raises ConfigError if the file has
    another schema than this version's, or the new file cannot be written.
    """
    target = path.with_name(f"{path.stem}-repaired-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}{path.suffix}")
    parts = (metadata, *(schema.metadata for schema in schemas.values()))
    tables = [table for part in parts for table in part.sorted_tables]
    with ExitStack() as on_failure, closing(_open_damaged(path)) as old:
        _check_version(old, path)
        create_private_file(target)
        on_failure.callback(target.unlink)
        engine = sqlite.build_engine(target)
        with engine.connect() as connection:
            upgrade_schemas(connection, target, schemas)
        engine.dispose()
        with closing(sqlite3.connect(target)) as new:
            new.execute("PRAGMA foreign_keys = OFF")
            lost = Counter[str]()
            for number, table in enumerate(tables):
                report_progress("copying what can be read", number, len(tables))
                lost[table.name] = _copy_table(old, new, table)
            if not new.total_changes:
                raise ConfigError(f"nothing of {path} can be read: put a backup in its place (`bot db restore FILE`)")
            lost.update(dict(_drop_orphans(new, tables)))
            new.commit()
        stamp_copy(target)
        on_failure.pop_all()
    return target, {name: count for name, count in lost.items() if count}


def _open_damaged(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.execute("PRAGMA writable_schema = ON")  # otherwise SQLite reads nothing of a file that was cut off
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ConfigError if the schema is known to be another one; a damaged file may not tell."""
    version = None
    with suppress(*DATABASE_ERRORS):
        version = connection.execute(f"SELECT version_num FROM {version_table_name(CORE_NAME)}").fetchone()
    if version is not None and version[0] not in (None, VERSION):
        raise ConfigError(
            f"{path} has schema {version[0]}, and rows are copied from {VERSION} only: use the version of Greenroom "
            "that wrote it, or put a backup in its place"
        )


def _copy_table(old: sqlite3.Connection, new: sqlite3.Connection, table: Table) -> int:
    """Copy the readable rows of a table; return how many were lost."""
    names = [column.name for column in table.columns]
    insert = f"INSERT OR IGNORE INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    lost = 0
    for row in _read_rows(old, table, names):
        if row is None or not is_readable(table.name, dict(zip(names, row, strict=True))):
            lost += 1
            continue
        try:
            lost += 1 - new.execute(insert, row).rowcount
        except sqlite3.Error:  # a value that the table does not accept
            lost += 1
    return lost


def _read_rows(connection: sqlite3.Connection, table: Table, names: Sequence[str]) -> Iterator[Row | None]:
    """Yield the rows of a table, None for each gap that cannot be read.

    Behind a gap in a table of numbered rows, reading goes on at the first row that can be read; other tables
    are read from both ends.
    """
    keys = [column.name for column in table.primary_key.columns]
    select = f"SELECT {', '.join(names)} FROM {table.name}"
    if len(keys) == 1:
        yield from _read_numbered(connection, f"{select} WHERE {keys[0]} > ? ORDER BY {keys[0]}", names.index(keys[0]))
        return
    last: Row | None = None
    try:
        for last in connection.execute(f"{select} ORDER BY {', '.join(keys)}"):
            yield last
        return
    except DATABASE_ERRORS:
        yield None
    indices = [names.index(key) for key in keys]
    known = [last[index] for index in indices] if last is not None else None
    with suppress(*DATABASE_ERRORS):
        for row in connection.execute(f"{select} ORDER BY {', '.join(f'{key} DESC' for key in keys)}"):
            if known is not None and [row[index] for index in indices] <= known:
                return
            yield row


def _read_numbered(connection: sqlite3.Connection, query: str, index: int) -> Iterator[Row | None]:
    start, step = 0, 1
    while step <= MAX_STEP:
        try:
            for row in connection.execute(query, (start,)):
                yield row
                start, step = row[index], 1
            return
        except DATABASE_ERRORS:
            if step == 1:
                yield None
            start, step = start + step, 2 * step


def _drop_orphans(connection: sqlite3.Connection, tables: Sequence[Table]) -> Iterator[tuple[str, int]]:
    """Delete the rows that refer to missing ones; yield their number by table."""
    keys = [(table, key) for table in tables for key in table.foreign_key_constraints]
    for table, key in keys:  # sorted: a table comes after those that it refers to
        pairs = [(element.parent.name, element.column.name) for element in key.elements]
        same = " AND ".join(f"other.{target} = {table.name}.{source}" for source, target in pairs)
        given = " AND ".join(f"{source} IS NOT NULL" for source, _ in pairs)
        count = connection.execute(
            f"DELETE FROM {table.name} WHERE {given} "
            f"AND NOT EXISTS (SELECT 1 FROM {key.referred_table.name} AS other WHERE {same})"
        ).rowcount
        if count:
            yield table.name, count
