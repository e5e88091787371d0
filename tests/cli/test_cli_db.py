"""`bot db`: check, upgrade and backup."""

import asyncio
import errno
import json
import os
import sqlite3
from pathlib import Path

import pytest

from bot.cli.characters import load_character_config
from bot.cli.main import entry
from bot.concurrency.clock import system_clock
from bot.runtime.runtime import Runtime
from bot.store.sql.core.schema import VERSION
from bot.watchdog.conditions import ConditionKind, find_conditions, read_situation
from tests.cli.stored_character import FILE, answer_messages, write_character
from tests.trust import trust_code

Out = pytest.CaptureFixture[str]
DIARY = """
from bot import Plugin
from bot.store import Schema
from sqlalchemy import Column, Integer, MetaData, Table

pages = Table("diary_pages", MetaData(), Column("id", Integer, primary_key=True))
plugin = Plugin("diary", schema=Schema(pages.metadata))
"""


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def change(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_check_reports_the_contents_of_a_valid_database(capsys: Out) -> None:
    answer_messages("one", "two")
    assert entry(["db", "check", "-c", FILE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["place"], document["problems"]) == (True, "data/greenroom.db", [])
    assert (document["facts"]["memories"], document["facts"]["receipts"], document["facts"]["rooms"]) == (4, 2, 1)
    assert entry(["db", "check", "-c", FILE]) == 0
    assert capsys.readouterr().out.startswith("data/greenroom.db: no problems\n  schema")


def test_a_check_creates_no_database_and_reports_a_missing_database(workdir: Path, capsys: Out) -> None:
    assert entry(["db", "check", "-c", FILE]) == 78
    assert "→ there is no database yet: the first `bot run`" in capsys.readouterr().out
    assert not (workdir / "data").exists()


@pytest.mark.parametrize("command", [["db", "check"], ["db", "upgrade"], ["db", "backup"], ["why"]])
def test_a_folder_that_is_closed_to_this_user_is_reported_with_advice(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def refuse(file: Path) -> bool:
        if file.name == "greenroom.db":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return os.path.exists(file)

    monkeypatch.setattr(Path, "is_file", refuse)  # root may look into every folder
    monkeypatch.setattr(Path, "exists", refuse)
    assert entry([*command, "-c", FILE]) == 78
    printed = capsys.readouterr()
    assert "the database data/greenroom.db cannot be read: its folder is closed to this user" in (
        printed.out + printed.err
    )


def test_a_damaged_or_foreign_file_is_reported_with_advice(workdir: Path, capsys: Out) -> None:
    (workdir / "data").mkdir()
    (workdir / "data" / "greenroom.db").write_bytes(b"not a database " * 1000)
    assert entry(["db", "check", "-c", FILE]) == 78
    assert "put a backup in its place" in capsys.readouterr().out


def test_a_check_finds_orphaned_rows(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    change(workdir / "data" / "greenroom.db", "DELETE FROM rooms")
    assert entry(["db", "check", "-c", FILE, "--json"]) == 78
    assert "1 rows of receipts belong to nothing" in " ".join(json.loads(capsys.readouterr().out)["problems"])


@pytest.mark.long
def test_a_newer_schema_is_refused_with_both_versions(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    newer = "UPDATE alembic_version_sql SET version_num = '9999', compatible_from = '9998'"
    change(workdir / "data" / "greenroom.db", newer)
    for command in (["db", "check"], ["db", "upgrade"], ["why"], ["outbox", "list"]):
        assert entry([*command, "-c", FILE]) == 78
        out, err = capsys.readouterr()
        assert "9999" in out + err
        assert VERSION in out + err


def test_an_upgrade_reports_both_versions(capsys: Out) -> None:
    assert entry(["db", "upgrade", "-c", FILE]) == 0
    assert capsys.readouterr().out == f"data/greenroom.db: created, with schema {VERSION}\n"
    assert entry(["db", "upgrade", "-c", FILE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"] == VERSION


def test_an_upgrade_leaves_a_newer_compatible_schema_and_says_so(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    newer = f"UPDATE alembic_version_sql SET version_num = '9999', compatible_from = '{VERSION}'"
    change(workdir / "data" / "greenroom.db", newer)
    assert entry(["db", "upgrade", "-c", FILE]) == 0
    assert "left as it is: schema 9999 is newer than this version's, and compatible" in capsys.readouterr().out
    assert entry(["db", "upgrade", "-c", FILE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["before"], document["after"]) == ("9999", "9999")


def test_an_upgrade_creates_the_tables_of_plugins(workdir: Path) -> None:
    (workdir / "diary.py").write_text(DIARY, encoding="utf-8")
    trust_code(workdir)
    (workdir / FILE).write_text(json.dumps({"name": "Ada", "plugins": ["sql", "./diary"]}), encoding="utf-8")
    assert entry(["db", "upgrade", "-c", FILE]) == 0
    change(workdir / "data" / "greenroom.db", "INSERT INTO diary_pages VALUES (1)")


def test_a_backup_is_complete_private_and_overwrites_nothing(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    assert entry(["db", "backup", "-c", FILE, "copy.db"]) == 0
    assert (workdir / "copy.db").stat().st_mode & 0o777 == 0o600
    found = sqlite3.connect(workdir / "copy.db")
    assert found.execute("SELECT count(*) FROM memories").fetchone() == (2,)
    found.close()
    before = (workdir / "copy.db").read_bytes()
    assert entry(["db", "backup", "-c", FILE, "copy.db"]) == 78
    assert "copy.db exists already" in capsys.readouterr().err
    assert (workdir / "copy.db").read_bytes() == before


def test_a_backup_without_a_name_is_written_next_to_the_database(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    assert entry(["db", "backup", "-c", FILE, "--json"]) == 0
    copy = Path(json.loads(capsys.readouterr().out)["file"])
    assert copy.parent == Path("data")
    assert copy.is_file()
    assert entry(["db", "backup", "-c", FILE, "no/such/folder.db"]) == 78


def test_a_failed_backup_of_postgresql_names_pg_dump_without_the_password(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("POSTGRES_URL=postgresql://bot:hunter2222@db.example/bot\n", encoding="utf-8")
    assert entry(["db", "backup", "-c", FILE]) == 78
    err = capsys.readouterr().err
    assert "pg_dump" in err
    assert "hunter2" not in err


@pytest.mark.long
def test_a_damaged_database_is_repaired_and_the_result_restored(workdir: Path, capsys: Out) -> None:
    answer_messages("one", "two")
    change(workdir / "data" / "greenroom.db", "UPDATE memories SET content = '{broken' WHERE position = 1")
    assert entry(["db", "check", "-c", FILE]) == 78
    assert "1 rows of memories hold what cannot be read" in capsys.readouterr().out
    assert entry(["db", "check", "--repair", "-c", FILE, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["lost"]["memories"] == 1
    assert entry(["db", "restore", result["file"], "-c", FILE]) == 0
    assert "the previous database is kept as data/greenroom.db.before-restore-" in capsys.readouterr().out
    assert entry(["db", "check", "-c", FILE]) == 0


@pytest.mark.long
def test_a_restored_copy_is_described_and_leaves_the_copy_unchanged(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    assert entry(["db", "backup", "copy.db", "-c", FILE]) == 0
    answer_messages("two", room="porch")
    before = (workdir / "copy.db").read_bytes()
    capsys.readouterr()
    assert entry(["db", "restore", "copy.db", "-c", FILE]) == 0
    assert f"restored: schema {VERSION}, 2 memories, " in capsys.readouterr().out
    assert entry(["db", "restore", "copy.db", "-c", FILE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["rooms"] == 1
    assert (workdir / "copy.db").read_bytes() == before


def test_doctor_shows_a_failed_scheduled_backup(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("BACKUP_EVERY=24\n", encoding="utf-8")
    (workdir / "data" / "backups").mkdir(parents=True)
    (workdir / "data" / "backups" / "greenroom.db.failed").write_text("the disk is full", encoding="utf-8")
    entry(["doctor", "-c", FILE, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    [finding] = [item for item in findings if item["check"] == "backups"]
    assert finding["status"] == "fail"
    assert "the last scheduled backup failed: the disk is full" in finding.values()


@pytest.mark.long
def test_a_running_bot_lists_a_failed_scheduled_backup_among_what_needs_attention(workdir: Path) -> None:
    (workdir / ".env").write_text("BACKUP_EVERY=24\n", encoding="utf-8")
    (workdir / "data" / "backups").mkdir(parents=True)
    (workdir / "data" / "backups" / "greenroom.db.failed").write_text("the disk is full", encoding="utf-8")

    async def find() -> list[str]:
        async with Runtime([load_character_config(Path(FILE)).agent_config]) as runtime:
            situation = await read_situation(runtime.handles, system_clock())
            return [item.why for item in find_conditions(situation) if item.kind is ConditionKind.BACKUP]

    assert asyncio.run(find()) == ["The disk is full."]


def test_a_missing_copy_is_not_restored(workdir: Path, capsys: Out) -> None:
    assert entry(["db", "restore", "no-such-file.db", "-c", FILE]) == 78
    assert "no-such-file.db cannot be put in place: there is no such file" in capsys.readouterr().err
