"""The schema's versions: made at once, upgraded as a whole or not at all, never downgraded."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from bot import ConfigError
from plugins.sql import sqlite, upgrade
from plugins.sql.migrations.running import migrate
from plugins.sql.opening import OpenFiles
from plugins.sql.schema import VERSION, VERSION_TABLE, metadata

LATER = '''"""A later version."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("rooms", sa.Column("topic", sa.Text))
    with op.batch_alter_table("tasks") as batch:
        batch.add_column(sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
        batch.create_check_constraint("is_positive", "priority >= 0")
    {fault}
'''


@pytest.fixture
def connection(path: Path) -> Iterator[Connection]:
    sqlite.create_file(path)
    opened = sqlite.open_writer(sqlite.engine_of(path), sqlite.Synchronous.NORMAL)
    yield opened
    opened.close()


@pytest.fixture
def scripts(tmp_path: Path) -> Callable[..., Path]:
    """Give a function that writes a history of two versions."""

    def written(fault: str = "pass") -> Path:
        versions = tmp_path / "later" / "versions"
        versions.mkdir(parents=True, exist_ok=True)
        first = Path(upgrade.__file__).parent / "migrations" / "versions" / "v0001_everything.py"
        (versions / "v0001_everything.py").write_text(first.read_text())
        (versions / "v0002_later.py").write_text(LATER.format(fault=fault))
        return versions.parent

    return written


def schema(connection: Connection) -> list[str]:
    rows = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.rollback()
    return sorted(" ".join(row[0].split()).replace("( ", "(").replace(" )", ")") for row in rows)


def test_a_new_file_gets_every_table_and_the_version(connection: Connection, path: Path) -> None:
    assert upgrade.version_of(connection) is None
    upgrade.bring_up_to_date(connection, path)

    assert upgrade.version_of(connection) == VERSION
    tables = {line.split()[2] for line in schema(connection) if line.startswith("CREATE TABLE")}
    assert tables == {*metadata.tables, VERSION_TABLE}


def test_bringing_up_to_date_twice_changes_nothing(connection: Connection, path: Path) -> None:
    upgrade.bring_up_to_date(connection, path)
    before = schema(connection)
    upgrade.bring_up_to_date(connection, path)

    assert schema(connection) == before
    assert [file.name for file in path.parent.iterdir() if "before" in file.name] == []


def test_the_history_leads_to_the_schema_of_a_new_file(connection: Connection, tmp_path: Path) -> None:
    migrate(connection, VERSION)
    other_path = tmp_path / "other.db"
    sqlite.create_file(other_path)
    other = sqlite.open_writer(sqlite.engine_of(other_path), sqlite.Synchronous.NORMAL)
    upgrade.bring_up_to_date(other, other_path)

    assert schema(connection) == schema(other)
    other.close()


def test_a_newer_schema_is_refused_and_both_versions_are_named(connection: Connection, path: Path) -> None:
    upgrade.bring_up_to_date(connection, path)
    connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0042'")
    connection.commit()

    with pytest.raises(ConfigError, match=rf"{path}.*0042.*{VERSION}"):
        upgrade.bring_up_to_date(connection, path)


async def test_opening_refuses_a_newer_schema_and_lets_go_of_the_file(path: Path) -> None:
    files = OpenFiles()
    for version in ("0042", VERSION):
        async with files.use(path) as database:
            await database.write(
                lambda db, to=version: db.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{to}'")
            )
        if version == VERSION:
            continue
        with pytest.raises(ConfigError, match="0042"):
            async with files.use(path):
                pass
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{VERSION}'")
        connection.close()


def test_an_upgrade_keeps_the_rows_and_a_copy_of_the_file(
    connection: Connection, path: Path, scripts: Callable[..., Path]
) -> None:
    upgrade.bring_up_to_date(connection, path)
    connection.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')")
    connection.commit()
    copy = upgrade.back_up(connection, path, "before-0002")
    migrate(connection, "0002", scripts=scripts())

    assert upgrade.version_of(connection) == "0002"
    assert "topic" in " ".join(schema(connection))
    assert connection.exec_driver_sql("SELECT id FROM agents").scalar() == 1
    assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    connection.rollback()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    kept = sqlite3.connect(copy)
    assert kept.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() == (VERSION,)
    assert kept.execute("SELECT id FROM agents").fetchone() == (1,)
    kept.close()


def test_an_upgrade_that_fails_changes_nothing(
    connection: Connection, path: Path, scripts: Callable[..., Path]
) -> None:
    upgrade.bring_up_to_date(connection, path)
    before = schema(connection)
    with pytest.raises(Exception, match="no such table"):
        migrate(connection, "0002", scripts=scripts('op.execute("DELETE FROM nowhere")'))

    assert schema(connection) == before
    assert upgrade.version_of(connection) == VERSION
    assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_foreign_tables_of_the_same_name_are_left_alone(connection: Connection, path: Path) -> None:
    connection.exec_driver_sql("CREATE TABLE rooms (number INTEGER)")
    connection.commit()

    with pytest.raises(ConfigError, match="already has tables called rooms"):
        upgrade.bring_up_to_date(connection, path)


def test_alembic_is_not_loaded_where_there_is_nothing_to_do(path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from plugins.sql.opening import OpenFiles\n"
        "async def main():\n"
        "    async with OpenFiles().use(Path(sys.argv[1])): pass\n"
        "asyncio.run(main()); asyncio.run(main())\n"
        "print(sorted({'alembic', 'numpy', 'asyncpg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
