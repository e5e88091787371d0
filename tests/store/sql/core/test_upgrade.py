"""Creation and upgrade of the schema: complete or not at all, never a downgrade."""

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from sqlalchemy import Connection, event, inspect
from sqlalchemy.ext.asyncio import create_async_engine

from bot import ConfigError, Content, derived_id
from bot.store import Schema
from bot.store.sql.core import upgrade
from bot.store.sql.core.mapping import content_text
from bot.store.sql.core.schema import VERSION, VERSION_TABLE, metadata
from bot.store.sql.migrations.alembic_runner import migrate
from bot.store.sql.sqlite.backup import back_up
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.memories import MEMORY, RECENT

VERSIONS = Path(upgrade.__file__).parents[1] / "migrations" / "versions"
MIGRATION_SCRIPT = Path(__file__).with_name("migrating_process.py")
BACKUP_SCRIPT = Path(__file__).with_name("backup_process.py")
LATER = '''"""A later version."""

import sqlalchemy as sa
from alembic import op

revision = "0099"
down_revision = "{previous}"


def upgrade() -> None:
    op.add_column("rooms", sa.Column("topic", sa.Text))
    with op.batch_alter_table("tasks") as batch:
        batch.add_column(sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
        batch.create_check_constraint("ck_tasks_priority", "priority >= 0")
    op.create_index("ix_rooms_topic", "rooms", ["topic"])
    {fault}
'''


@pytest.fixture
def later(tmp_path: Path) -> Callable[..., Schema]:
    """Return a function that builds a later version of the core schema."""

    def written(fault: str = "pass", compatible_from: str = "") -> Schema:
        versions = tmp_path / "later" / "versions"
        versions.mkdir(parents=True, exist_ok=True)
        for file in VERSIONS.glob("v*"):
            (versions / file.name).write_text(file.read_text())
        (versions / "v0099_later.py").write_text(LATER.format(fault=fault, previous=VERSION))
        return Schema(metadata, "0099", versions.parent, compatible_from)

    return written


def structure(connection: Connection) -> dict[str, Any]:
    """Return the structure of the database."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        found = {row[0]: " ".join(row[1].split()).replace("( ", "(").replace(" )", ")") for row in rows}
    else:
        rows = connection.exec_driver_sql(
            "SELECT relname, reloptions::text FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "UNION ALL SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype <> 'n' "
            "UNION ALL SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' "
            "UNION ALL SELECT attrelid::regclass || '.' || attname, "
            "concat_ws(' ', attnum, format_type(atttypid, atttypmod), attnotnull, attidentity) "
            "FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "WHERE relnamespace = 'public'::regnamespace AND attnum > 0"
        )
        found = {"all": sorted(map(str, rows))}
    connection.rollback()
    return found


@contextmanager
def failing(connection: Connection, at: int) -> Iterator[list[str]]:
    """Make the n-th statement fail, as on a full disk; yield the executed statements."""
    tried: list[str] = []

    def note(connection: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        tried.append(statement)
        if len(tried) == at:
            raise OSError(f"statement {at} fails")

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield tried
    finally:
        event.remove(connection, "before_cursor_execute", note)


def upgraded_failing(connection: Connection, place: Any, schema: Schema, at: int) -> int:
    """Upgrade with a fault at the n-th statement; return how many were executed."""
    with failing(connection, at) as tried:
        try:
            upgrade.upgrade_schemas(connection, place, core=schema)
        except OSError:
            assert len(tried) >= at
    return len(tried)


def table_names(connection: Connection) -> set[str]:
    """Return the names of the tables but those in which SQLite keeps its full-text index."""
    return {name for name in inspect(connection).get_table_names() if not name.startswith("memory_terms")}


async def test_a_new_database_gets_every_table_and_the_version(bare: Any) -> None:
    assert await bare.run(upgrade.find_version) is None
    await bare.run(upgrade.upgrade_schemas, bare.place)

    assert await bare.run(upgrade.find_version) == VERSION
    assert await bare.run(table_names) == {*metadata.tables, VERSION_TABLE}


async def test_a_second_upgrade_changes_nothing(bare: Any, path: Path) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    before = await bare.run(structure)
    await bare.run(upgrade.upgrade_schemas, bare.place)

    assert await bare.run(structure) == before
    assert [copy async for copy in anyio.Path(path.parent).glob("*before*")] == []


@pytest.mark.long
async def test_migrations_lead_to_the_schema_of_a_new_database(bare: Any) -> None:
    """This also checks that the first version, which is stored as a file, has not changed."""
    await bare.run(upgrade.upgrade_schemas, bare.place)
    new = await bare.run(structure)
    for table in (*reversed(metadata.sorted_tables), VERSION_TABLE):
        await bare.sql(f"DROP TABLE {table}")
    await bare.sql("DROP TABLE IF EXISTS memory_terms")
    await bare.run(migrated_from_nothing)

    assert await bare.run(structure) == new


def migrated_from_nothing(connection: Connection) -> None:
    with upgrade._exclusive_transaction(connection):
        migrate(connection, upgrade.CORE_SCHEMA, VERSION_TABLE)


@pytest.mark.long
@pytest.mark.failure("J-13")
async def test_a_database_of_the_first_version_gets_messages_in_order_of_arrival_and_keeps_its_costs(bare: Any) -> None:
    kind = "sqlite" if bare.is_sqlite else "postgresql"
    statements = (VERSIONS / f"v0001_everything.{kind}.sql").read_text().split(";\n")
    if not bare.is_sqlite:
        await bare.run(upgrade.add_vector_extension, bare.place)
        await bare.run(lambda db: db.commit())
    for statement in filter(str.strip, statements):
        await bare.sql(statement)
    await bare.sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    await bare.sql(f"INSERT INTO {VERSION_TABLE} VALUES ('0001')")
    agent = derived_id("agent", "Ada")
    quoted = "x'{}'" if bare.is_sqlite else "'\\x{}'"
    room, ids = quoted.format(derived_id("room").hex), [quoted.format(derived_id(str(at)).hex) for at in range(3)]
    await bare.sql(f"INSERT INTO agents (key) VALUES ({quoted.format(agent.hex)})")
    for memory_id, created_at in zip(ids, (30, 10, 20), strict=True):  # a clock that jumped
        await bare.sql(
            "INSERT INTO memories (agent_id, id, kind, entity_id, room_id, world_id, content, created_at, external_id,"
            f" scope, metadata) VALUES (1, {memory_id}, 'MESSAGE', {room}, {room}, {room},"
            f" '{content_text(Content(text=str(created_at)))}', {created_at}, '', 'ROOM', '{{}}')"
        )
    await bare.sql(
        "INSERT INTO spending (agent_id, day, room_id, person_id, model, calls, tokens_in, tokens_cached, tokens_out,"
        f" cost, unpriced, estimated, failed) VALUES (1, '2026-05-04', {room}, {room}, 'small', 2, 3, 4, 5, 6, 7, 8, 9)"
    )
    await bare.run(upgrade.upgrade_schemas, bare.place)

    assert await bare.run(upgrade.find_version) == VERSION
    assert await bare.sql("SELECT day, model, purpose, calls, failed_calls FROM costs") == [
        ("2026-05-04", "small", "", 2, 9)
    ]
    key = {"agent": 1, "room_id_": derived_id("room"), "kind_": "MESSAGE", "limit": 10}
    rows = await bare.run(lambda db: db.execute(RECENT, key).all())
    assert [MEMORY.read(row).content.text for row in reversed(rows)] == ["30", "10", "20"]


@pytest.mark.failure("I-07")
async def test_a_newer_schema_is_refused_and_both_versions_are_named(bare: Any, path: Path) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    await bare.sql(f"UPDATE {VERSION_TABLE} SET version_num = '0042', compatible_from = '0042'")

    with pytest.raises(ConfigError, match=rf"{bare.place}.*0042.*{VERSION}"):
        await bare.run(upgrade.upgrade_schemas, bare.place)
    assert [copy async for copy in anyio.Path(path.parent).glob("*before*")] == []


async def test_a_program_before_the_renamed_columns_says_that_the_database_is_newer(bare: Any, tmp_path: Path) -> None:
    versions = tmp_path / "earlier" / "versions"
    versions.mkdir(parents=True)
    for file in VERSIONS.glob("v000*"):
        (versions / file.name).write_text(file.read_text())
    earlier = Schema(metadata, "0009", versions.parent, "0005")
    await bare.run(upgrade.upgrade_schemas, bare.place)

    with pytest.raises(ConfigError, match=f"has version {VERSION}, this program knows 0009: update it, or restore"):
        await bare.run(upgrade.upgrade_schemas, bare.place, core=earlier)


@pytest.mark.long
async def test_tables_of_newer_code_are_used_as_they_are_where_they_say_so(
    bare: Any, later: Callable[..., Schema]
) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    await bare.run(upgrade_with_backup, bare.place, later(compatible_from=VERSION))
    before = await bare.run(structure)
    await bare.run(upgrade.upgrade_schemas, bare.place)

    assert await bare.run(structure) == before
    assert await bare.run(upgrade.find_version) == "0099"
    assert await bare.run(upgrade.find_usable_version) == VERSION


@pytest.mark.long
@pytest.mark.parametrize("compatible_from", ["", "0099"])
async def test_tables_of_newer_code_are_refused_where_this_code_is_too_old_for_them(
    compatible_from: str, bare: Any, later: Callable[..., Schema]
) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    await bare.run(upgrade_with_backup, bare.place, later(compatible_from=compatible_from))
    with pytest.raises(ConfigError, match="0099"):
        await bare.run(upgrade.upgrade_schemas, bare.place)


@pytest.mark.failure("I-07")
async def test_opening_refuses_a_newer_schema_and_releases_the_file(path: Path) -> None:
    files = OpenFiles()
    for version in ("0042", VERSION):
        async with files.use(path) as database:
            await database.write(
                lambda db, to=version: db.exec_driver_sql(
                    f"UPDATE {VERSION_TABLE} SET version_num = '{to}', compatible_from = '{to}'"
                )
            )
        if version == VERSION:
            continue
        with pytest.raises(ConfigError, match="0042"):
            async with files.use(path):
                pass
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{VERSION}'")
        connection.close()


def upgrade_with_backup(connection: Connection, place: Path | str, ours: Schema) -> None:
    backup = partial(back_up, connection, place) if isinstance(place, Path) else None
    upgrade.upgrade_schemas(connection, place, core=ours, before_change=backup)


async def test_an_upgrade_keeps_the_rows_and_a_copy_of_the_file(bare: Any, later: Callable[..., Schema]) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    key = "x'00'" if bare.is_sqlite else "'\\x00'"
    await bare.sql(f"INSERT INTO agents VALUES (1, {key})")
    await bare.run(upgrade_with_backup, bare.place, later())

    assert await bare.run(upgrade.find_version) == "0099"
    assert "topic" in str(await bare.run(structure))
    assert await bare.sql("SELECT id FROM agents") == [(1,)]
    if bare.is_sqlite:
        assert await bare.sql("PRAGMA foreign_keys") == [(1,)]
        copy = bare.place.with_name(f"{bare.place.name}.before-sql-0099")
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        kept = sqlite3.connect(copy)
        assert kept.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() == (VERSION,)
        assert kept.execute("SELECT id FROM agents").fetchone() == (1,)
        kept.close()


@pytest.mark.long
@pytest.mark.failure("I-06")
async def test_an_upgrade_that_fails_at_any_statement_changes_nothing(bare: Any, later: Callable[..., Schema]) -> None:
    schema = later()
    await bare.run(upgrade.upgrade_schemas, bare.place)
    before = await bare.run(structure)
    for at in count(1):
        tried = await bare.run(upgraded_failing, bare.place, schema, at)
        if await bare.run(upgrade.find_version) != VERSION:
            break
        assert tried >= at
        assert await bare.run(structure) == before, f"after statement {at}"

    assert at > 8
    assert await bare.run(upgrade.find_version) == "0099"
    assert await bare.run(structure) != before


@pytest.mark.long
@pytest.mark.failure("I-06")
async def test_a_new_database_that_fails_at_any_statement_stays_empty(bare: Any) -> None:
    for at in count(1, 1 if bare.is_sqlite else 7):  # one statement in seven: a server takes its time
        await bare.run(upgraded_failing, bare.place, upgrade.CORE_SCHEMA, at)
        tables = await bare.run(table_names)
        if tables:
            break

    assert at > len(metadata.tables)
    assert tables == {*metadata.tables, VERSION_TABLE}
    assert await bare.run(upgrade.find_version) == VERSION


async def test_an_upgrade_with_an_invalid_statement_changes_nothing(bare: Any, later: Callable[..., Schema]) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    before = await bare.run(structure)
    with pytest.raises(Exception, match="nowhere"):
        await bare.run(upgrade.upgrade_schemas, bare.place, core=later('op.execute("DELETE FROM nowhere")'))

    assert await bare.run(structure) == before
    assert await bare.run(upgrade.find_version) == VERSION


async def test_tables_of_another_program_are_not_changed(bare: Any) -> None:
    await bare.sql("CREATE TABLE rooms (number INTEGER)")

    with pytest.raises(ConfigError, match="already has tables of another program \\(rooms"):
        await bare.run(upgrade.upgrade_schemas, bare.place)
    assert await bare.run(lambda db: inspect(db).get_table_names()) == ["rooms"]


@pytest.mark.failure("I-08")
@pytest.mark.matrix(1)
@pytest.mark.parametrize("last", [6, 12])
async def test_a_process_killed_while_it_upgrades_leaves_the_old_version(
    bare: Any, later: Callable[..., Schema], last: int
) -> None:
    await bare.run(upgrade.upgrade_schemas, bare.place)
    before = await bare.run(structure)
    schema = later()
    process = [sys.executable, str(MIGRATION_SCRIPT), bare.address, str(schema.migrations), str(last)]
    done = await anyio.run_process(process, check=False)

    assert done.returncode == -signal.SIGKILL, done.stderr
    assert await bare.run(structure) == before
    assert await bare.run(upgrade.find_version) == VERSION
    await bare.run(upgrade.upgrade_schemas, bare.place, core=schema)
    assert await bare.run(upgrade.find_version) == "0099"


@pytest.mark.long
async def test_of_two_processes_that_start_together_the_first_migrates_and_the_other_waits(
    postgres_url: str, later: Callable[..., Schema]
) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))

    async def start(schema: Schema) -> str | None:
        async with engine.connect() as connection:
            await connection.run_sync(upgrade.upgrade_schemas, "the database", core=schema)
            return await connection.run_sync(upgrade.find_version)

    for schema in (upgrade.CORE_SCHEMA, later()):
        assert await asyncio.gather(*[start(schema) for _ in range(3)]) == [schema.version] * 3
    await engine.dispose()


@pytest.mark.long
async def test_a_server_without_pgvector_is_refused_with_instructions(postgres_url: str) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        for text in (
            "CREATE VIEW pg_available_extensions AS SELECT ''::text AS name",
            "SET search_path = public, pg_catalog",
        ):
            await connection.exec_driver_sql(text)
        await connection.commit()
        with pytest.raises(ConfigError, match="the database: this PostgreSQL server has no pgvector"):
            await connection.run_sync(upgrade.upgrade_schemas, "the database")
    await engine.dispose()


async def test_missing_permission_to_add_pgvector_is_explained(postgres_url: str) -> None:
    name = urlsplit(postgres_url).path.removeprefix("/")
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"CREATE ROLE guest_of_{name}")
        await connection.exec_driver_sql(f"SET ROLE guest_of_{name}")
        await connection.commit()
        with pytest.raises(ConfigError, match="CREATE EXTENSION vector"):
            await connection.run_sync(upgrade.upgrade_schemas, "the database")
        await connection.exec_driver_sql("RESET ROLE")
        await connection.exec_driver_sql(f"DROP ROLE guest_of_{name}")
        await connection.commit()
    await engine.dispose()


@pytest.mark.long
@pytest.mark.failure("I-08")
def test_an_interrupted_backup_does_not_get_its_final_name(path: Path) -> None:
    copy = path.with_name(f"{path.name}.copy")
    for is_second in (False, True):
        process = subprocess.Popen([sys.executable, str(BACKUP_SCRIPT), str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        while (is_second and not copy.exists()) or not copy.with_name(f"{copy.name}.part").exists():
            assert process.poll() is None
        process.kill()
        process.communicate()
        assert copy.exists() or not is_second
        if copy.exists():
            kept = sqlite3.connect(copy)
            assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert kept.execute("SELECT count(*) FROM much").fetchone() == (10_000,)
            kept.close()
        path.unlink()


@pytest.mark.long
def test_alembic_is_not_imported_without_migrations(path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from bot.store.sql.sqlite.storage import OpenFiles\n"
        "async def main():\n"
        "    async with OpenFiles().use(Path(sys.argv[1])): pass\n"
        "asyncio.run(main()); asyncio.run(main())\n"
        "print(sorted({'alembic', 'numpy', 'asyncpg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
