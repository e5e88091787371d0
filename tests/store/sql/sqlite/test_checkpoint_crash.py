"""I-08: a kill during a checkpoint, vacuum or copy loses nothing that was committed."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from bot.store.sql.sqlite.storage import OpenFiles

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("checkpointing_process.py")
ROUNDS = 5


def killed(path: Path, after: int) -> list[str]:
    """Kill the process after it has committed so many rows; return all committed rows."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = list(islice(process.stdout, after))
    finally:
        process.kill()
    rest, _ = process.communicate()
    return [line.strip() for line in (*lines, *rest.splitlines(keepends=True)) if line.endswith("\n")]


def kept(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in connection.execute("SELECT key FROM cache ORDER BY key")]


@pytest.mark.failure("I-08")
async def test_a_kill_during_checkpoint_or_copy_loses_no_row_and_leaves_no_partial_copy(path: Path) -> None:
    async with OpenFiles().use(path) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        acknowledged += killed(path, 5 + 4 * number % 11)
        copy = path.with_name(f"{path.name}.copy")
        if copy.exists():
            assert set(kept(copy)) <= set(kept(path))
        assert set(acknowledged) <= set(kept(path))

    async with OpenFiles().use(path) as database:
        assert await database.read(lambda db: db.exec_driver_sql("PRAGMA quick_check(1)").scalar()) == "ok"
