"""Tables of plugins: their names, migrations and access."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from bot import Character, ConfigError, Plugin, PluginError, Settings, derived_id
from bot.plugin_system.plugin import collect_schemas
from bot.runtime.character_reload import AgentConfig
from bot.settings import Layer
from bot.store import InMemoryStore, PluginTables, Schema
from bot.store.sql.core import upgrade
from bot.store.sql.core.schema import VERSION, VERSION_TABLE, metadata
from bot.store.sql.sqlite.storage import OpenFiles
from plugins.sql import plugin as sql

STEP = '''"""A version of the diary."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = {before!r}


def upgrade() -> None:
    with op.batch_alter_table("diary_pages") as batch:
        batch.add_column(sa.Column("{column}", sa.Text, nullable=False, server_default="none"))
    {fault}
'''


LESS = '''"""Ours, without a table."""

from alembic import op

revision, down_revision = "0099", "{previous}"


def upgrade() -> None:
    op.drop_table("logs")
'''


def diary(*columns: Column[Any], indexes: tuple[Index, ...] = (), name: str = "diary_pages") -> Table:
    """Return the tables of a plugin named diary."""
    return Table(name, MetaData(), Column("id", Integer, primary_key=True), Column("text", Text), *columns, *indexes)


def late(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="none")


@pytest.fixture
def history(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes migrations; each version adds a column."""

    def written(*columns: str, fault: str = "pass") -> Path:
        folder = tmp_path / "diary"
        (folder / "versions").mkdir(parents=True, exist_ok=True)
        before = None
        for number, column in enumerate(columns, 1):
            revision = f"{number:04}"
            last = fault if number == len(columns) else "pass"
            text = STEP.format(revision=revision, before=before, column=column, fault=last)
            (folder / "versions" / f"v{revision}_{column}.py").write_text(text)
            before = revision
        return folder

    return written


async def up(bare: Any, schema: Schema | None = None, ours: Schema = upgrade.CORE_SCHEMA, name: str = "diary") -> None:
    schemas = {} if schema is None else {name: schema}
    await bare.run(upgrade.upgrade_schemas, bare.place, schemas, core=ours)


async def columns(bare: Any) -> list[str]:
    return await bare.run(lambda db: [column["name"] for column in inspect(db).get_columns("diary_pages")])


async def test_tables_of_a_plugin_are_created_once(bare: Any) -> None:
    schema = Schema(diary().metadata)
    await up(bare, schema)
    await bare.sql("INSERT INTO diary_pages (id, text) VALUES (1, 'Dear diary')")
    await up(bare, schema)

    assert await bare.sql("SELECT text FROM diary_pages") == [("Dear diary",)]


async def test_a_new_version_adds_tables_indexes_and_columns_that_may_be_empty(bare: Any) -> None:
    await up(bare, Schema(diary().metadata))
    await bare.sql("INSERT INTO diary_pages (id, text) VALUES (1, 'Dear diary')")
    mood = Column("mood", Text, server_default="it's: 100%")
    later = diary(mood, indexes=(Index("ix_diary_pages_mood", "mood"),))
    Table("diary_covers", later.metadata, Column("id", Integer, primary_key=True))
    await up(bare, Schema(later.metadata))

    assert await bare.sql("SELECT text, mood FROM diary_pages") == [("Dear diary", "it's: 100%")]
    assert await bare.sql("SELECT * FROM diary_covers") == []
    found = await bare.run(lambda db: [index["name"] for index in inspect(db).get_indexes("diary_pages")])
    assert found == ["ix_diary_pages_mood"]
    await up(bare, Schema(diary().metadata))  # the older version of the plugin still works


async def test_a_column_that_existing_rows_cannot_get_is_refused(bare: Any) -> None:
    await up(bare, Schema(diary().metadata))
    with pytest.raises(PluginError, match=r"diary_pages has no column mood.*nullable.*migrations"):
        await up(bare, Schema(diary(Column("extra", Text), Column("mood", Text, nullable=False)).metadata))

    assert await columns(bare) == ["id", "text"]


@pytest.mark.parametrize(
    ("table", "name", "expected"),
    [
        (diary(name="pages"), "diary", "rename its table 'pages' to diary_pages"),
        (diary(name="rooms"), "diary", "rename its table 'rooms' to diary_rooms"),
        (diary(Column("room", ForeignKey("rooms.id"))), "diary", "remove the foreign key of diary_pages to rooms"),
        (diary(), "Diary!", "small letters"),
    ],
)
async def test_tables_with_names_of_others_are_refused(bare: Any, table: Table, name: str, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        await up(bare, Schema(table.metadata), name=name)


async def test_an_inconsistent_schema_is_refused(bare: Any, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"not a sqlalchemy\.MetaData"):
        await up(bare, Schema({"tables": 1}))
    with pytest.raises(PluginError, match="both a version and migrations"):
        await up(bare, Schema(diary().metadata, migrations=tmp_path))


async def test_foreign_keys_between_tables_of_the_same_plugin_are_allowed(bare: Any) -> None:
    table = diary()
    Table("diary_notes", table.metadata, Column("page", ForeignKey("diary_pages.id"), primary_key=True))
    await up(bare, Schema(table.metadata))

    assert await bare.sql("SELECT * FROM diary_notes") == []


async def test_migrations_do_not_run_for_new_tables(bare: Any, history: Callable[..., Path]) -> None:
    folder = history("mood", fault='raise AssertionError("run")')
    await up(bare, Schema(diary(late("mood")).metadata, version="0001", migrations=folder))

    assert await columns(bare) == ["id", "text", "mood"]
    assert await bare.sql("SELECT version_num FROM alembic_version_diary") == [("0001",)]


async def test_migrations_upgrade_every_older_version(bare: Any, history: Callable[..., Path]) -> None:
    """From tables without migrations, and from every version."""
    await up(bare, Schema(diary().metadata))
    await bare.sql("INSERT INTO diary_pages (id, text) VALUES (1, 'Dear diary')")
    await up(bare, Schema(diary(late("mood")).metadata, version="0001", migrations=history("mood")))
    assert await columns(bare) == ["id", "text", "mood"]

    newest = diary(late("mood"), late("weather"))
    await up(bare, Schema(newest.metadata, version="0002", migrations=history("mood", "weather")))
    assert await columns(bare) == ["id", "text", "mood", "weather"]
    assert await bare.sql("SELECT text FROM diary_pages") == [("Dear diary",)]
    assert await bare.sql("SELECT version_num FROM alembic_version_diary") == [("0002",)]
    assert await bare.run(upgrade.find_version) == VERSION


@pytest.mark.failure("I-07")
async def test_newer_tables_of_a_plugin_are_refused_and_both_versions_are_named(
    bare: Any, history: Callable[..., Path]
) -> None:
    schema = Schema(diary(late("mood")).metadata, version="0001", migrations=history("mood"))
    await up(bare, schema)
    await bare.sql("UPDATE alembic_version_diary SET version_num = '0007'")

    with pytest.raises(ConfigError, match=r"alembic_version_diary has version 0007.*0001"):
        await up(bare, schema)


@pytest.mark.failure("I-06")
async def test_a_failing_migration_of_a_plugin_rolls_back_the_core_upgrade(
    bare: Any, history: Callable[..., Path], tmp_path: Path
) -> None:
    await up(bare, Schema(diary().metadata))
    versions = tmp_path / "ours" / "versions"
    versions.mkdir(parents=True)
    for file in (Path(upgrade.__file__).parents[1] / "migrations" / "versions").glob("v*"):
        (versions / file.name).write_text(file.read_text())
    (versions / "v0099_less.py").write_text(LESS.format(previous=VERSION))
    ours = Schema(metadata, version="0099", migrations=versions.parent)
    folder = history("mood", fault='op.execute("DELETE FROM nowhere")')

    with pytest.raises(Exception, match="nowhere"):
        await up(bare, Schema(diary(late("mood")).metadata, version="0001", migrations=folder), ours=ours)
    assert await bare.run(upgrade.find_version) == VERSION
    assert await bare.sql("SELECT * FROM logs") == []
    assert await columns(bare) == ["id", "text"]


async def test_migrations_that_do_not_end_at_the_version_are_refused(bare: Any, history: Callable[..., Path]) -> None:
    await up(bare, Schema(diary().metadata))
    with pytest.raises(PluginError, match=r"ends at 0001, but the schema's version is 0002"):
        await up(bare, Schema(diary().metadata, version="0002", migrations=history("mood")))


async def test_removing_a_plugin_breaks_nothing(bare: Any, history: Callable[..., Path]) -> None:
    await up(bare, Schema(diary(late("mood")).metadata, version="0001", migrations=history("mood")))
    await bare.sql("INSERT INTO diary_pages (id, text) VALUES (1, 'Dear diary')")
    await up(bare)

    assert await bare.sql("SELECT text FROM diary_pages") == [("Dear diary",)]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[PluginTables, Table]]:
    """Return the plugin tables of a store of each kind."""
    table = diary()
    plugin = Plugin("diary", schema=Schema(table.metadata))
    variables = {"BOT_DATA_DIR": str(tmp_path)}
    if request.param == "postgresql":
        variables["POSTGRES_URL"] = request.getfixturevalue("postgres_url")
    plugins = (plugin,) if request.param == "memory" else (plugin, sql)
    config = AgentConfig(Character(name="Ada"), plugins, Settings([Layer("the test", variables)]))
    async with config.open_store(collect_schemas(plugins)) as store:
        yield store.tables, table


async def test_plugins_access_their_tables_through_the_store(tables: tuple[PluginTables, Table]) -> None:
    reach, table = tables
    assert await reach.write(lambda db: db.execute(insert(table).values(text="Dear diary")).rowcount) == 1

    assert await reach.read(lambda db: db.scalar(select(table.c.text))) == "Dear diary"
    async with reach.engine.connect() as connection:
        assert await connection.scalar(select(table.c.text)) == "Dear diary"
        with pytest.raises(DBAPIError, match=r"read-?only"):
            await connection.execute(insert(table).values(text="by another door"))


@pytest.mark.long
async def test_failing_work_of_a_plugin_rolls_back_only_itself(tables: tuple[PluginTables, Table]) -> None:
    reach, table = tables

    def fails(connection: Any) -> None:
        connection.execute(insert(table).values(text="half"))
        raise ValueError("no more ink")

    with pytest.raises(ValueError, match="no more ink"):
        await reach.write(fails)
    assert await reach.read(lambda db: db.scalar(select(table.c.text))) is None


async def test_an_open_file_is_not_upgraded_for_a_later_user(path: Path) -> None:
    files, schemas = OpenFiles(), {"diary": Schema(diary().metadata)}
    async with files.open_store(path, derived_id("agent", "one")):
        with pytest.raises(PluginError, match="open without the tables of diary"):
            async with files.open_store(path, derived_id("agent", "two"), schemas=schemas):
                pass


async def test_tables_in_memory_get_new_columns_when_the_store_is_opened_again() -> None:
    store = InMemoryStore()
    store.database.create_tables({"diary": Schema(diary().metadata)})
    await store.tables.write(lambda db: db.execute(insert(diary()).values(text="Dear diary")))
    table = diary(Column("mood", Text))
    store.database.create_tables({"diary": Schema(table.metadata)})
    assert (await store.tables.read(lambda db: db.execute(select(table)).all())) == [(1, "Dear diary", None)]


async def test_no_other_store_in_memory_has_the_tables_of_a_plugin() -> None:
    InMemoryStore().database.create_tables({"diary": Schema(diary().metadata)})
    names = await InMemoryStore().tables.read(lambda db: inspect(db).get_table_names())
    assert {name for name in names if not name.startswith("memory_terms")} == {*metadata.tables, VERSION_TABLE}
