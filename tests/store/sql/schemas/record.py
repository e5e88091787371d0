"""Record a small database of the schema of each COMMIT named, as text of SQL.

The code of the commit itself writes it: `bot chat` answers three messages on SQLite and on PostgreSQL. Run it with the
last commit of a schema's version, before the version is raised.
"""

import lzma
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]
INPUT = "Hello\nMy name is Kim and I like tea\nWhat time is it?\n"


def dump_sqlite(file: Path) -> str:
    """Return the statements that recreate a file; its full-text index is built again from what it indexes."""
    find_indexes = "SELECT name, sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
    with closing(sqlite3.connect(file)) as connection:
        indexes = connection.execute(find_indexes).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP TABLE {name}")
        rebuilt = [f"{sql};\nINSERT INTO {name} ({name}) VALUES ('rebuild');" for name, sql in indexes]
        return "\n".join([*connection.iterdump(), *rebuilt])


def dump_postgres(tool: Path, url: str) -> str:
    """Return the statements that recreate the tables of a database."""
    options = ("--no-owner", "--no-acl", "--column-inserts", "--schema=public")
    done = subprocess.run([tool, *options, url], check=True, capture_output=True, text=True)
    skipped = ("--", "\\", "SET ", "CREATE SCHEMA", "SELECT pg_catalog.set_config")
    return "\n".join(line for line in done.stdout.splitlines() if line and not line.startswith(skipped))


def chat(code: Path, folder: Path, **settings: str) -> None:
    """Run the code of a folder until it has answered three messages."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(code),
        "HOME": str(folder),
        "USER": "kim",
        "AI_NOTICE": "off",
    }
    command = [sys.executable, "-m", "bot", "chat"]
    subprocess.run(
        command, cwd=folder, env={**environment, "LOGNAME": "kim", **settings}, input=INPUT, text=True, check=True
    )


def record(commit: str) -> None:
    """Write the files of the schema of a commit."""
    sys.path.insert(0, str(ROOT))
    from tests.postgres import running_server  # noqa: PLC0415  # after the path is set

    with TemporaryDirectory() as name, running_server() as server, server.database() as database:
        code, folder = Path(name) / "code", Path(name) / "run"
        code.mkdir()
        folder.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", str(code)], input=archive.stdout, check=True)
        chat(code, folder)
        sqlite_text = dump_sqlite(folder / "data" / "greenroom.db")
        chat(code, folder, POSTGRES_URL=server.url(database))
        postgres_text = dump_postgres(Path(server._server.bin_path) / "pg_dump", server.url(database))
        with closing(sqlite3.connect(folder / "data" / "greenroom.db")) as connection:
            [version] = connection.execute("SELECT version_num FROM alembic_version_sql").fetchone()
    for kind, text in (("sqlite", sqlite_text), ("postgresql", postgres_text)):
        (FOLDER / f"{version}.{kind}.sql.xz").write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    for commit in sys.argv[1:]:
        record(commit)
