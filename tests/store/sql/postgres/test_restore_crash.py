"""A restore that is killed at any moment leaves the old tables or those of the copy, whole, and can be repeated."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from bot import Settings
from bot.store.sql.core.upgrade import LOCK_KEY
from bot.store.sql.storage import SqlStorage
from tests.store.sql.postgres.test_backup import converse, settings, texts

pytestmark = pytest.mark.long
__all__ = ["settings"]  # the fixture

RESTORE = """
import asyncio, os, sys
from pathlib import Path
from bot.settings import Layer, Settings
from bot.store.storage import listen_to_progress
from bot.store.sql.storage import SqlStorage

with listen_to_progress(lambda step, *_: print(step, flush=True)):
    asyncio.run(SqlStorage().restore(Settings([Layer("environment", os.environ)]), Path(sys.argv[1])))
"""
COPIED, LATER = ["one", "Aye."], ["one", "Aye.", "two", "Aye."]
WAITING = "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"


@pytest.fixture
async def copy(settings: Settings, tmp_path: Path) -> Path:
    """Return a copy of the database, in which more was said since."""
    storage = SqlStorage()
    await converse(storage, settings, "one")
    copied = await storage.backup(settings, tmp_path / "copy.dump")
    await converse(storage, settings, "two")
    return copied


@asynccontextmanager
async def restoring(settings: Settings, copy: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a restore in a process group of its own."""
    values = {name: settings.require(name) for name in ("POSTGRES_URL", "BOT_DATA_DIR")}
    command = (sys.executable, "-c", RESTORE, str(copy))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **values}, start_new_session=True
    )
    yield process
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("step", ["verifying the copy", "keeping the previous database", "restoring the tables"])
async def test_a_killed_restore_leaves_whole_tables_and_can_be_repeated(
    settings: Settings, copy: Path, step: str
) -> None:
    async with restoring(settings, copy) as process:
        assert process.stdout is not None
        while (await process.stdout.readline()).decode().strip() != step:
            pass
        process.kill()
    left = await texts(SqlStorage(), settings)
    assert left in ((COPIED, LATER) if step == "restoring the tables" else (LATER,))
    await SqlStorage().restore(settings, copy)
    assert await texts(SqlStorage(), settings) == COPIED


@pytest.mark.parametrize("has_killed_psql", [True, False], ids=["with psql", "without psql"])
async def test_a_restore_that_is_killed_while_it_replaces_tables_is_undone_or_completed_by_the_server(
    settings: Settings, copy: Path, *, has_killed_psql: bool
) -> None:
    connection = await asyncpg.connect(settings.require("POSTGRES_URL"))
    async with restoring(settings, copy) as process, asyncio.timeout(60.0), connection.transaction():
        await connection.execute("LOCK TABLE receipts IN ACCESS SHARE MODE")
        while await connection.fetchval(WAITING) is None:  # noqa: ASYNC110  # only the server knows it
            await asyncio.sleep(0)
        os.killpg(process.pid, signal.SIGKILL) if has_killed_psql else process.kill()
        await process.wait()
    await connection.execute(f"SELECT pg_advisory_lock({LOCK_KEY})")  # the transaction of the restore has ended
    await connection.close()
    assert await texts(SqlStorage(), settings) in ((LATER,) if has_killed_psql else (COPIED, LATER))
    await SqlStorage().restore(settings, copy)
    assert await texts(SqlStorage(), settings) == COPIED
