"""A restore that is killed at any moment leaves the old database or the new one, whole, and can be repeated."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bot import derived_id
from bot.store.sql.sqlite.backup import copy_database
from bot.store.sql.sqlite.storage import OpenFiles

pytestmark = pytest.mark.long

RESTORE = """
import sys
from pathlib import Path
from bot.store.sql.sqlite.repair import restore_copy
restore_copy(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def restore(path: Path, copy: Path, kill_at: str = "") -> int:
    environment = {**os.environ, **({"BOT_KILL_AT": f"{kill_at}:1"} if kill_at else {})}
    command = [sys.executable, "-c", RESTORE, str(path), str(copy)]
    return subprocess.run(command, env=environment, check=False).returncode


async def read_and_check(path: Path) -> str:
    """Open the database as a start does; return what it holds."""
    async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
        check = store.ledger._database.read
        assert await check(lambda db: db.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"
        return str(await store.cache.get("state"))


@pytest.mark.parametrize(
    ("moment", "left"), [("restore.copied", "new"), ("restore.kept", "new"), ("restore.replaced", "old")]
)
async def test_a_killed_restore_leaves_a_whole_database(path: Path, tmp_path: Path, moment: str, left: str) -> None:
    copy = tmp_path / "copy.db"
    for state in ("old", "new"):
        async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
            await store.cache.set("state", state)
        if state == "old":
            copy_database(path, copy)
    with closing(sqlite3.connect(path)) as connection:  # as a killed bot leaves it: a log next to the file
        connection.execute("PRAGMA journal_mode = WAL")
    assert restore(path, copy, moment) == -9
    assert await read_and_check(path) == left
    assert restore(path, copy) == 0
    assert await read_and_check(path) == "old"
