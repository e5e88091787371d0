"""A process that fills a file and backs it up until it is killed; it prints when it begins."""

import sys
from itertools import count
from pathlib import Path

from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.backup import back_up

ROWS = 10_000


def main(path: Path) -> None:
    """Copy the file repeatedly to the same name."""
    sqlite.create_file(path)
    connection = sqlite.open_writer(sqlite.build_engine(path), Synchronous.NORMAL)
    connection.exec_driver_sql("CREATE TABLE much (content TEXT)")
    row = (f"{'x' * 200}",)
    connection.connection.cursor().executemany("INSERT INTO much VALUES (?)", [row] * ROWS)
    connection.commit()
    sys.stdout.write("now\n")
    sys.stdout.flush()
    for _ in count():
        back_up(connection, path, "copy")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
