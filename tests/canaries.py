"""Words that only one person has written, and the search for them in everything that a bot keeps or sends."""

import io
import re
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from bot import Entity, derived_id
from bot.operate.people import write_person_archive
from bot.store import Store
from bot.store.sql.sqlite.storage import OpenFiles

WORD = re.compile(r"canary\d{4}x", re.IGNORECASE)
FILE_NAME = "greenroom.db"


class Canaries:
    """Writes texts of words that stand nowhere else; `count` is how many were written."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, words: int = 100) -> str:
        """Return a text of new words."""
        numbers = range(self.count, self.count + words)
        self.count += words
        return " ".join(f"canary{number:04}x" for number in numbers)


@asynccontextmanager
async def open_file(folder: Path) -> AsyncIterator[Store]:
    """Open the store of Ada in a file of a folder."""
    async with OpenFiles().open_store(folder / FILE_NAME, derived_id("agent", "Ada")) as store:
        yield store


async def find_canaries(folder: Path, store: Store, person: Entity, shown: Iterable[object]) -> set[str]:
    """Return the words in the files and tables of a folder, in an export about a person, and in what was shown."""
    archive = io.BytesIO()
    await write_person_archive(store, person, archive, agent_name="Ada", redact=str)
    with zipfile.ZipFile(archive) as exported:
        texts = [exported.read(name).decode() for name in exported.namelist()]
    texts += [*map(str, shown), *_read_files(folder)]
    with closing(sqlite3.connect(folder / FILE_NAME)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        texts += [str(row) for name in names for row in database.execute(f'SELECT * FROM "{name}"')]
    return {word for text in texts for word in WORD.findall(text)}


def _read_files(folder: Path) -> list[str]:
    return [f"{path.name} {path.read_bytes()!r}" for path in folder.rglob("*") if path.is_file()]
