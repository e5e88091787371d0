"""Copies of a PostgreSQL database by its own programs, and putting a copy in its place."""

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from tempfile import NamedTemporaryFile
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, inspect
from sqlalchemy.dialects import postgresql

from bot.errors import ConfigError, StoreInaccessible
from bot.store.sql.core.schema import metadata
from bot.store.sql.core.upgrade import CORE_NAME, LOCK_KEY, version_table_name
from bot.store.sql.postgres.connection import Address
from bot.store.sql.postgres.database import run_once
from bot.store.sql.postgres.heartbeat import LOCK_CLASS
from bot.store.sql.sqlite.backup import COPYING, build_holding_statements
from bot.store.sql.sqlite.check import find_version_problem
from bot.store.storage import report_progress

QUOTE = '"'
REPORT_SECONDS = 0.5
MAX_ERROR_LENGTH = 300
VERSION_TABLE = version_table_name(CORE_NAME)
CREATED_AT = re.compile(r"Archive created at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
STORED_VERSION = re.compile(rf"COPY \S*{VERSION_TABLE} ")
TABLE_ENTRY = re.compile(r"^\d+; \d+ \d+ TABLE \S+ (\S+) ", re.MULTILINE)
IN_USE = f"""
  SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = {LOCK_CLASS} AND objsubid = 2
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
REFUSE_IN_USE = f"DO $$ BEGIN IF EXISTS ({IN_USE}) THEN RAISE EXCEPTION 'a bot uses the database'; END IF; END $$;"


async def dump_database(address: Address, target: Path) -> Path:
    """Write a consistent copy with pg_dump, readable only by its owner; return it.

    The copy gets its name once it is complete. Raises ConfigError if the target exists or cannot be written, or the
    program is missing or fails.
    """
    unfinished = target.with_name(f"{target.name}.part")
    try:
        _create_private(target, unfinished)
        await _run(address, "pg_dump", "--format=custom", "--no-owner", "--no-acl", f"--file={unfinished}")
        os.link(unfinished, target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name another file") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _create_private(target: Path, unfinished: Path) -> None:
    if target.exists():
        raise ConfigError(f"{target} exists already: name another file, or remove it")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))


async def restore_dump(address: Address, file: Path, data_folder: Path) -> Path | None:
    """Replace the tables by those of a copy, in one transaction; return the dump of the previous ones, if any.

    Raises ConfigError if the copy cannot be used, StoreInaccessible if a bot uses the database.
    """
    report_progress("verifying the copy")
    contents = await _list_contents(address, file)
    names = TABLE_ENTRY.findall(contents)
    if VERSION_TABLE not in names:
        raise ConfigError(f"{file} cannot be put in place: it is no copy of a database of Greenroom")
    if await run_once(address, lambda connection: connection.exec_driver_sql(IN_USE).first() is not None):
        raise StoreInaccessible(f"{address.label} is in use by another Greenroom process: stop it first")
    existing = await run_once(address, _find_own_tables)
    previous = None
    if VERSION_TABLE in existing:
        report_progress("keeping the previous database")
        now = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        previous = await dump_database(address, data_folder / f"before-restore-{now}.dump")
    with NamedTemporaryFile("w", suffix=".list", encoding="utf-8") as wanted:
        lines = (line for line in contents.splitlines() if " EXTENSION " not in line and " SCHEMA " not in line)
        wanted.write("\n".join(lines))
        wanted.flush()
        with NamedTemporaryFile("r", suffix=".sql", encoding="utf-8", errors="replace") as script:
            options = ("--no-owner", "--no-acl", f"--use-list={wanted.name}", f"--file={script.name}")
            await _run(address, "pg_restore", *options, str(file), connects=False)  # reads, so verifies, all of it
            version = await asyncio.to_thread(_read_version, script)
            if problem := next(find_version_problem(version), ""):
                raise ConfigError(f"{file} cannot be put in place: {problem}")
            report_progress("restoring the tables")
            await _replace_tables(address, existing, script.name, _created_at(contents, file))
    return previous


async def _replace_tables(address: Address, existing: Sequence[str], script: str, copied_at: datetime) -> None:
    """Run a script that makes the tables anew in the place of existing ones, and hold its open work."""
    drop = "".join(f'DROP TABLE IF EXISTS "{name.replace(QUOTE, QUOTE + QUOTE)}" CASCADE;\n' for name in existing)
    with (
        NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as before,
        NamedTemporaryFile("w", suffix=".sql") as after,
    ):
        before.write(f"SELECT pg_advisory_xact_lock({LOCK_KEY});\n{REFUSE_IN_USE}\n{drop}")
        before.flush()
        after.write(f"RESET search_path;\n{_to_sql(copied_at)}\n{REFUSE_IN_USE}\n")
        after.flush()
        files = (f"--file={before.name}", f"--file={script}", f"--file={after.name}")
        await _run(
            address, "psql", "-X", "-q", "--single-transaction", "--set=ON_ERROR_STOP=1", "-o", os.devnull, *files
        )


def _read_version(script: Iterable[str]) -> str | None:
    """Return the version of the schema that a script stores."""
    lines = iter(script)
    is_found = any(STORED_VERSION.match(line) for line in lines)
    return next(lines, "").partition("\t")[0].strip() or None if is_found else None


def _to_sql(copied_at: datetime) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy declares no types here
    statements = build_holding_statements(copied_at)
    compiled = (statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}) for statement in statements)
    return "\n".join(f"{statement!s};" for statement in compiled)


async def _list_contents(address: Address, file: Path) -> str:
    try:
        return await _run(address, "pg_restore", "--list", str(file), connects=False)
    except ConfigError as error:
        raise ConfigError(f"{file} cannot be put in place: {error}") from None


def _created_at(contents: str, file: Path) -> datetime:
    match = CREATED_AT.search(contents)
    if match is None:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return datetime.fromisoformat(match[1]).astimezone(UTC)


def _find_own_tables(connection: Connection) -> list[str]:
    """Return the tables of the core, and those of plugins, whose names begin with that of the plugin."""
    names = inspect(connection).get_table_names()
    plugins = [name.removeprefix("alembic_version_") for name in names if name.startswith("alembic_version_")]
    prefixes = (*(f"{plugin}_" for plugin in plugins if plugin != CORE_NAME), "alembic_version_")
    return [name for name in names if name in metadata.tables or name.startswith(prefixes)]


async def _run(address: Address, program: str, *options: str, connects: bool = True) -> str:
    """Run a program of PostgreSQL and return its output; the password is not among its arguments."""
    path = which(program)
    if path is None:
        raise ConfigError(
            f"{program} is not installed, which copies PostgreSQL databases: install the client programs of the "
            f"server's version (the package is called postgresql-client on Debian), or copy {address.label} elsewhere"
        )
    parts = urlsplit(address.url)
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    database = (f"--dbname={parts._replace(netloc=f'{user}{host}').geturl()}",) if connects else ()
    environment = {**os.environ, **({"PGPASSWORD": unquote(parts.password)} if parts.password else {})}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        path, *database, *options, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
    )
    communication = asyncio.ensure_future(process.communicate())
    try:
        while not (await asyncio.wait([communication], timeout=REPORT_SECONDS))[0]:
            report_progress(COPYING if program == "pg_dump" else "restoring the tables")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
    output, errors = await communication
    if process.returncode:
        lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
        cause = lines[-1][:MAX_ERROR_LENGTH] if lines else "it gave no reason"
        raise ConfigError(f"{program} failed for {address.label}: {cause}")
    return output.decode(errors="replace")
