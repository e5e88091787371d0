"""A damaged file: what is reported, what is copied, and how a copy is put in its place."""

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.exchange import AGENT, make_exchanges, store_exchanges
from bot import BotError, ConfigError
from bot.store import StoreInaccessible
from bot.store.sql.sqlite import repair
from bot.store.sql.sqlite.check import check_file
from bot.store.sql.sqlite.repair import copy_readable, restore_copy
from bot.store.sql.sqlite.storage import OpenFiles, open_read_only

ROOMS = [f"room {number}" for number in range(4)]
PAGE = 4096


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """Return a database with forty answered messages."""
    path = tmp_path / "greenroom.db"
    async with OpenFiles().open_store(path, AGENT) as store:
        await store_exchanges(store, make_exchanges(ROOMS, 40), 4)
    return path


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def copy_file(source: Path, target: Path) -> Path:
    return Path(shutil.copyfile(source, target))


async def count_messages(path: Path) -> int:
    async with OpenFiles().open_store(path, AGENT) as store:
        rooms = await store.worlds.rooms()
        return sum([len(await store.memories.recent(room.id, 100)) for room in rooms])


def damage(path: Path, seed: int) -> None:
    """Change one byte, overwrite a page, or cut the file off; never in the first page."""
    chance, content = random.Random(seed), bytearray(path.read_bytes())
    if seed % 3 == 0:
        content[chance.randrange(PAGE, len(content))] ^= 0xFF
    elif seed % 3 == 1:
        start = chance.randrange(1, len(content) // PAGE) * PAGE
        content[start : start + PAGE] = chance.randbytes(PAGE)
    else:
        del content[chance.randrange(len(content) // 2, len(content)) :]
    path.write_bytes(content)


def has_readable_schema(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.DatabaseError):
        connection.execute("PRAGMA writable_schema = ON")
        return bool(connection.execute("SELECT sql FROM sqlite_schema").fetchall())
    return False


@pytest.mark.failure("I-06")
@pytest.mark.matrix(3)
@pytest.mark.parametrize("seed", range(24))
async def test_a_damaged_file_ends_in_an_error_that_names_it_and_what_is_copied_can_be_used(
    file: Path, seed: int
) -> None:
    damage(file, seed)
    problems = check_file(file).problems
    for use in (count_messages(file), _read_only(file)):
        with suppress(BotError):  # any other error is one without a remedy
            await use
    assert all("`bot db check --repair`" in problem for problem in problems)

    problem = ""
    try:
        copy, _ = copy_readable(file)
    except ConfigError as error:
        problem = str(error)
    if problem:  # nothing says where the rows are
        assert str(file) in problem
        assert not has_readable_schema(file)
        return
    assert check_file(copy).problems == ()
    assert restore_copy(file, copy) is not None
    await count_messages(file)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def _read_only(path: Path) -> None:
    async with open_read_only(path, AGENT) as store:
        for room in await store.worlds.rooms():
            await store.memories.recent(room.id, 100)
            await store.ledger.receipts(room_id=room.id)


@pytest.mark.long
async def test_of_an_intact_file_nothing_is_lost(file: Path) -> None:
    before = check_file(file).facts
    copy, lost = copy_readable(file)
    facts = check_file(copy).facts
    assert lost == {}
    assert {name: facts[name] for name in ("memories", "receipts", "deliveries")} == {
        name: before[name] for name in ("memories", "receipts", "deliveries")
    }


@pytest.mark.long
async def test_a_row_with_an_impossible_value_is_reported_and_left_out(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE receipts SET outcome = 'answared' WHERE id = (SELECT min(id) FROM receipts)")
    [problem] = check_file(file).problems
    assert problem.startswith("1 rows of receipts hold what cannot be read")
    _, lost = copy_readable(file)
    assert lost == {"receipts": 1}


@pytest.mark.long
async def test_a_file_of_which_nothing_can_be_read_is_not_copied(file: Path) -> None:
    write(file, b"not a database " * 1000)
    with pytest.raises(ConfigError, match=r"nothing of .* can be read: put a backup in its place"):
        copy_readable(file)
    assert list(file.parent.glob("*repaired*")) == []


@pytest.mark.long
async def test_a_copy_is_put_in_place_and_the_previous_file_is_kept(file: Path, tmp_path: Path) -> None:
    copy = copy_file(file, tmp_path / "copy.db")
    async with OpenFiles().open_store(file, AGENT) as store:
        await store_exchanges(store, make_exchanges(["a new room"], 2), 1)
    previous = restore_copy(file, copy)
    assert previous is not None
    assert (await count_messages(file), await count_messages(previous)) == (80, 84)
    assert _mode(file) == 0o600


@pytest.mark.long
async def test_a_damaged_copy_is_refused_and_nothing_is_changed(file: Path, tmp_path: Path) -> None:
    copy = copy_file(file, tmp_path / "copy.db")
    damage(copy, 2)
    before = digest(file)
    with pytest.raises(ConfigError, match="cannot be put in place"):
        restore_copy(file, copy)
    assert digest(file) == before


@pytest.mark.long
async def test_a_database_in_use_is_not_replaced(file: Path, tmp_path: Path) -> None:
    copy = copy_file(file, tmp_path / "copy.db")
    async with OpenFiles().open_store(file, AGENT):
        with pytest.raises(StoreInaccessible, match="in use"):
            restore_copy(file, copy)


@pytest.mark.long
async def test_a_file_of_another_schema_is_not_copied(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version_sql SET version_num = '0001'")
        connection.commit()
    with pytest.raises(ConfigError, match="has schema 0001, and rows are copied from"):
        copy_readable(file)
    assert list(file.parent.glob("*repaired*")) == []


@pytest.mark.long
@pytest.mark.failure("I-15")
@pytest.mark.parametrize("step", ["_keep", "replace", "unlink"])
async def test_a_crash_at_any_step_of_a_restore_leaves_a_whole_database(
    file: Path, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_file(file, tmp_path / "copy.db")
    log = file.with_name(f"{file.name}-wal")
    write(log, b"the log of the database before")

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(repair if step == "_keep" else Path, step, crash)
        with pytest.raises(KeyboardInterrupt):
            restore_copy(file, copy)
    assert await count_messages(file) == 80


@pytest.mark.long
async def test_an_older_log_next_to_a_restored_file_is_not_applied(file: Path, tmp_path: Path) -> None:
    copy = copy_file(file, tmp_path / "copy.db")
    log = file.with_name(f"{file.name}-wal")
    async with OpenFiles().open_store(file, AGENT) as store:
        await store_exchanges(store, make_exchanges(["a new room"], 2), 1)
        older = copy_file(log, tmp_path / "older-log")
    restore_copy(file, copy)
    copy_file(older, log)
    assert await count_messages(file) == 80
