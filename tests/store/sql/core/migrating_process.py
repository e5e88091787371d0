"""A process that upgrades a database and is killed at the n-th statement.

python tests/store/sql/core/migrating_process.py <address> <folder of migrations> <n>
"""

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import create_async_engine

from bot.store import Schema
from bot.store.sql.core import upgrade
from bot.store.sql.core.base import Synchronous
from bot.store.sql.core.schema import metadata
from bot.store.sql.sqlite import connection as sqlite


def work(connection: Connection, place: Path | str, migrations: str, last: int) -> None:
    """Upgrade until the process is killed."""
    numbers = count(1)

    def step(*arguments: Any) -> None:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(connection, "before_cursor_execute", step)
    schema = Schema(metadata, version="0099", migrations=Path(migrations))
    upgrade.upgrade_schemas(connection, place, core=schema)


async def main(address: str, migrations: str, last: str) -> None:
    """Open the database, a file or a PostgreSQL."""
    if "://" not in address:
        path = Path(address)
        with sqlite.open_writer(sqlite.build_engine(path), Synchronous.FULL) as connection:
            work(connection, path, migrations, int(last))
        return
    engine = create_async_engine(address)
    async with engine.connect() as connected:
        await connected.run_sync(work, "the test's database", migrations, int(last))
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
