"""A process that writes, checkpoints, vacuums and copies its file until it is killed."""

import sys
from itertools import count
from pathlib import Path

from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.backup import back_up


def main(path: Path) -> None:
    """Repeat all of it, and print what has been committed."""
    connection = sqlite.open_writer(sqlite.build_engine(path), Synchronous.NORMAL)
    first = sqlite.driver_of(connection).execute("SELECT count(*) FROM cache").fetchone()[0]
    for number in count(first):
        sqlite.driver_of(connection).execute(
            "INSERT INTO cache (agent_id, key, value) VALUES (1, ?, ?)", (f"{number:06}", "x" * 2000)
        )
        sys.stdout.write(f"{number:06}\n")
        sys.stdout.flush()
        if number % 3 == 0:
            sqlite.checkpoint(connection)
        if number % 7 == 0:
            sqlite.driver_of(connection).execute("VACUUM")
        if number % 5 == 0:
            back_up(connection, path, "copy")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
