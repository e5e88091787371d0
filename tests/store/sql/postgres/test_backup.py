"""Copies of a PostgreSQL database: complete, verified, and put in place in one transaction or not at all."""

import os
from pathlib import Path

import pytest

from bot import BotError, ConfigError, Outcome, Settings, derived_id, system_clock
from bot.background.maintenance import BackupFolder
from bot.settings import Layer
from bot.store import StoreInaccessible
from bot.store.sql.core.schema import VERSION
from bot.store.sql.storage import SqlStorage
from bot.testing import ScriptedModel, make_message, model_answer, running_agent
from tests.postgres import PostgresServer

ADA = derived_id("agent", "Ada")


@pytest.fixture
def settings(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Return the settings of a database; the programs of its own version are found first."""
    monkeypatch.setenv("PATH", f"{postgres_server._server.bin_path}{os.pathsep}{os.environ['PATH']}")
    values = {"POSTGRES_URL": postgres_url, "BOT_DATA_DIR": str(tmp_path / "data"), "BACKUP_EVERY": "1"}
    return Settings([Layer("environment", values)])


def leftover_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


async def converse(storage: SqlStorage, settings: Settings, text: str) -> None:
    async with (
        storage.open(ADA, settings) as store,
        running_agent(model=ScriptedModel(model_answer("Aye.")), store=store) as harness,
    ):
        await harness.send(text)


async def texts(storage: SqlStorage, settings: Settings) -> list[str]:
    async with storage.open(ADA, settings) as store:
        [room] = await store.worlds.rooms()
        return [memory.content.text for memory in await store.memories.recent(room.id)]


@pytest.mark.long
async def test_a_copy_replaces_the_database_and_the_previous_database_is_kept(
    settings: Settings, tmp_path: Path
) -> None:
    storage = SqlStorage()
    await converse(storage, settings, "one")
    copy = await storage.backup(settings, tmp_path / "copy.dump")
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="exists already"):
        await storage.backup(settings, copy)
    await converse(storage, settings, "two")
    previous = await storage.restore(settings, copy)
    assert await texts(storage, settings) == ["one", "Aye."]
    assert previous is not None
    await storage.restore(settings, previous)
    assert await texts(storage, settings) == ["one", "Aye.", "two", "Aye."]
    assert not leftover_files(tmp_path)


@pytest.mark.long
async def test_a_database_whose_address_has_options_of_other_programs_is_copied_and_restored(
    settings: Settings, tmp_path: Path
) -> None:
    url = f"{settings.get('POSTGRES_URL')}&schema=own&connect_timeout=9&statement_timeout=20s&pool_timeout=15"
    options = Settings([Layer("environment", {"POSTGRES_URL": url, "BOT_DATA_DIR": str(tmp_path / "data")})])
    storage = SqlStorage()
    await converse(storage, options, "one")
    copy = await storage.backup(options, tmp_path / "copy.dump")
    await converse(storage, options, "two")
    await storage.restore(options, copy)
    assert await texts(storage, options) == ["one", "Aye."]


@pytest.mark.long
async def test_open_work_of_a_restored_copy_is_held(settings: Settings, tmp_path: Path) -> None:
    storage = SqlStorage()
    async with storage.open(ADA, settings) as store:
        [stored] = await store.ledger.receive([make_message("Anybody?", sent_at=system_clock())], system_clock())
    await storage.restore(settings, await storage.backup(settings, tmp_path / "copy.dump"))
    async with storage.open(ADA, settings) as store:
        receipt = await store.ledger.receipt(stored.receipt.id)
        assert receipt is not None
        assert (receipt.outcome, receipt.rule) == (Outcome.PARKED, "restore")
        assert await store.ledger.deliveries() == []


@pytest.mark.long
async def test_while_a_bot_runs_a_restore_is_refused_and_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    storage = SqlStorage()
    await converse(storage, settings, "one")
    copy = await storage.backup(settings, tmp_path / "copy.dump")
    async with storage.open(ADA, settings) as store:
        assert store.sharing is not None
        await store.sharing.join()
        with pytest.raises(StoreInaccessible, match="in use by another Greenroom process"):
            await storage.restore(settings, copy)
        await store.sharing.leave()
    assert await texts(storage, settings) == ["one", "Aye."]


@pytest.mark.long
async def test_a_file_that_is_no_whole_copy_is_refused_and_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    storage = SqlStorage()
    await converse(storage, settings, "one")
    copy = await storage.backup(settings, tmp_path / "copy.dump")
    (tmp_path / "cut.dump").write_bytes(copy.read_bytes()[: copy.stat().st_size - 2000])
    (tmp_path / "text.dump").write_text("no dump")
    for name in ("cut.dump", "text.dump", "missing.dump"):
        with pytest.raises(BotError):
            await storage.restore(settings, tmp_path / name)
    assert await texts(storage, settings) == ["one", "Aye."]


@pytest.mark.long
async def test_a_copy_of_a_newer_version_is_refused(
    settings: Settings, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    storage = SqlStorage()
    await converse(storage, settings, "one")
    database = (settings.get("POSTGRES_URL") or "").partition("?")[0].rpartition("/")[2]
    postgres_server.run("UPDATE alembic_version_sql SET version_num = '9999'", database)
    copy = await storage.backup(settings, tmp_path / "copy.dump")
    postgres_server.run(f"UPDATE alembic_version_sql SET version_num = '{VERSION}'", database)
    with pytest.raises(ConfigError, match="its schema is 9999"):
        await storage.restore(settings, copy)
    assert await texts(storage, settings) == ["one", "Aye."]


async def test_a_missing_program_is_named_and_no_password_is_shown(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pg_dump is not installed"):
        await SqlStorage().backup(settings, tmp_path / "copy.dump")
    assert not leftover_files(tmp_path)


def test_scheduled_copies_are_named_after_the_server_and_the_database(settings: Settings) -> None:
    values = {"POSTGRES_URL": "postgresql://bot:hunter22@db.example:5433/green", "BACKUP_EVERY": "1"}
    folder = BackupFolder.of(SqlStorage(), Settings([Layer("environment", values)]))
    assert folder is not None
    assert folder.name == "db.example-5433-green.dump"
