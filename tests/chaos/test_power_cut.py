"""Power cut: acknowledged messages are in the file, wherever its log ends (A-23)."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bot import derived_id, system_clock
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import make_message

AGENT = derived_id("agent", "Ada")
BLOCK = 4096
EVENTS = 12


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def bytes_of(path: Path) -> tuple[bytes, bytes]:
    return path.read_bytes(), log_of(path).read_bytes()


async def written(path: Path) -> tuple[bytes, bytes, list[tuple[str, int]]]:
    """Store some events; return the file, its log, and each event with the log's length at its acknowledgement.

    Another connection reads meanwhile, so that the log is not restarted.
    """
    acknowledged = []
    async with OpenFiles().open_store(path, AGENT):
        pass  # the tables are in the file itself now
    async with OpenFiles().open_store(path, AGENT) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM receipts").fetchone()
            for number in range(EVENTS):
                name, now = f"m{number}", system_clock()
                await store.ledger.receive([make_message("Hello", sent_at=now, message_id=name)], now)
                acknowledged.append((name, log_of(path).stat().st_size))
            return *bytes_of(path), acknowledged


def kept(path: Path) -> set[str]:
    """Open what is left after the cut, as the next start does, and list the events in it."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        return {row[0] for row in database.execute("SELECT message_id FROM receipts")}


def shuffled(tail: bytes) -> bytes:
    """Reorder the blocks of a tail, as a disk may that was asked to write them all."""
    blocks = [tail[start : start + BLOCK] for start in range(0, len(tail), BLOCK)]
    random.Random(len(tail)).shuffle(blocks)
    return b"".join(blocks)


@pytest.mark.long
@pytest.mark.failure("A-23")
@pytest.mark.parametrize("is_shuffled", [False, True], ids=["cut off", "in another order"])
async def test_acknowledged_messages_survive_a_power_cut_at_any_position_of_the_log(
    tmp_path: Path, is_shuffled: bool
) -> None:
    file, log, acknowledged = await written(tmp_path / "greenroom.db")
    assert [length for _, length in acknowledged] == sorted({length for _, length in acknowledged})
    counts = set()
    for cut in range(0, len(log) + BLOCK, BLOCK):
        path = tmp_path / f"cut at {cut}.db"
        path.write_bytes(file)
        log_of(path).write_bytes(log[:cut] + (shuffled(log[cut:]) if is_shuffled else b""))
        there = kept(path)
        promised = {name for name, length in acknowledged if length <= cut}
        assert promised <= there, f"cut at {cut}"
        counts.add(len(there))
    assert {0, EVENTS} <= counts
