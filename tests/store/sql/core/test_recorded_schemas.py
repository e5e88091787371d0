"""Databases that the code of every earlier version wrote: they are upgraded whole, and older code can still write.

`tests/store/sql/schemas/record.py` has recorded them.
"""

import lzma
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from bot import MemoryKind, Settings, derived_id, new_id
from bot.settings import Layer
from bot.store import ReceiptQuery
from bot.store.sql.core.schema import COMPATIBLE_FROM, VERSION, VERSION_TABLE
from bot.store.sql.storage import SqlStorage
from bot.store.storage import listen_to_progress

AGENT_ID = derived_id("agent", "Marlo")
FOLDER = Path(__file__).parents[1] / "schemas"
EARLIER = [f"{number:04}" for number in range(1, int(VERSION))]
COMPATIBLE = [version for version in EARLIER[-1:] if version >= COMPATIBLE_FROM]


def read_dump(version: str, kind: str) -> str:
    file = FOLDER / f"{version}.{kind}.sql.xz"
    assert file.exists(), f"record the database of schema {version}: see {FOLDER / 'record.py'}"
    return lzma.decompress(file.read_bytes()).decode()


def load_sqlite(version: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(read_dump(version, "sqlite"))


async def load_postgres(version: str, url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute(read_dump(version, "postgresql"))
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(kind: str, path: Path, request: pytest.FixtureRequest) -> Settings:
    if kind == "sqlite":
        return Settings([Layer("environment", {"BOT_DATA_DIR": str(path.parent)})])
    return Settings([Layer("environment", {"POSTGRES_URL": request.getfixturevalue("postgres_url")})])


async def load(version: str, settings: Settings, path: Path) -> None:
    if url := settings.get("POSTGRES_URL"):
        await load_postgres(version, url)
    else:
        load_sqlite(version, path)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("version", EARLIER)
async def test_a_database_of_every_earlier_version_is_upgraded_with_all_it_holds(
    version: str, kind: str, settings: Settings, path: Path
) -> None:
    await load(version, settings, path)
    storage = SqlStorage()
    result = await storage.upgrade(settings)
    assert (result.old_version, result.new_version) == (version, VERSION)
    report = await storage.check(settings)
    assert report.problems == ()
    assert (report.facts["memories"], report.facts["receipts"], report.facts["deliveries"]) == (6, 3, 3)
    async with storage.open(AGENT_ID, settings) as store:
        [room] = await store.worlds.rooms()
        memories = await store.memories.recent(room.id)
        assert [memory.content.text for memory in memories[::2]] == [
            "Hello",
            "My name is Kim and I like tea",
            "What time is it?",
        ]
        listed = await store.ledger.search_receipts(ReceiptQuery(room_id=room.id))
        assert [item.receipt.outcome for item in listed] == ["answered"] * 3
        assert all(item.message is not None and item.author is not None for item in listed)
        [person] = {item.receipt.author_id for item in listed}
        activity = await store.entities.activity(person)
        assert activity is not None
        assert (activity.messages, activity.answered) == (3, 3)
        await store.memories.add([replace(memories[0], id=new_id())])
        assert await store.memories.count(MemoryKind.MESSAGE, room.id) == 7


@pytest.mark.parametrize("previous", COMPATIBLE)
async def test_code_of_the_version_before_can_write_into_the_new_schema_where_that_says_so(
    previous: str, kind: str, settings: Settings, path: Path
) -> None:
    """Rows of the previous version's columns are accepted."""
    rows = read_rows(previous)
    await SqlStorage().upgrade(settings)
    statements = [
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns)} FROM old.{table}"
        for table, columns in rows.items()
        if table != VERSION_TABLE
    ]
    if kind == "sqlite":
        old = path.with_name("old.db")
        load_sqlite(previous, old)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ATTACH ? AS old", (str(old),))
            for statement in statements:
                connection.execute(statement)
        return
    inserts = [line for line in read_dump(previous, "postgresql").splitlines() if line.startswith("INSERT INTO")]
    wanted = [line for line in inserts if VERSION_TABLE not in line]
    connection = await asyncpg.connect(settings.get("POSTGRES_URL"))
    try:
        assert wanted
        await connection.execute("SET session_replication_role = replica;" + "".join(wanted))
    finally:
        await connection.close()


@pytest.mark.long
async def test_an_upgrade_reports_its_progress(kind: str, settings: Settings, path: Path) -> None:
    await load("0009", settings, path)
    steps: list[str] = []
    with listen_to_progress(lambda step, done, total: steps.append(step)):
        await SqlStorage().upgrade(settings)
    assert "upgrading the receipts" in steps


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_the_copy_that_an_upgrade_makes_leads_back_to_the_version_before(
    kind: str, settings: Settings, path: Path
) -> None:
    load_sqlite(EARLIER[-1], path)
    before = dump(path)
    storage = SqlStorage()
    await storage.upgrade(settings)
    assert dump(path) != before
    await storage.restore(settings, path.with_name(f"{path.name}.before-sql-{VERSION}"))
    assert dump(path) == before
    assert (await storage.upgrade(settings)).old_version == EARLIER[-1]


def dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return sorted(connection.iterdump())


@pytest.mark.long
async def test_roles_that_are_no_json_do_not_stop_the_upgrade_that_splits_them(
    kind: str, settings: Settings, path: Path
) -> None:
    await load("0009", settings, path)
    spoil = "UPDATE worlds SET roles = '{\"granted:'"
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(spoil)
    else:
        connection = await asyncpg.connect(settings.get("POSTGRES_URL"))
        await connection.execute(spoil)
        await connection.close()
    assert (await SqlStorage().upgrade(settings)).new_version == VERSION


def read_rows(version: str) -> dict[str, list[str]]:
    """Return the tables of a version in the order in which they may be filled, with their columns."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(read_dump(version, "sqlite"))
        listed = {row[1]: row[2] for row in connection.execute("PRAGMA main.table_list")}
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        own = [
            name for name in names if not name.startswith("sqlite_") and listed[name] == "table"
        ]  # no part of an index
        return {
            name: [f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_xinfo({name})") if row[6] == 0]
            for name in own
        }
