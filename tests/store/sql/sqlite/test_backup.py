"""I-15: a restored copy sends nothing that may have been sent since."""

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot import ConfigError, Outcome, Receipt, derived_id
from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark
from bot.platform import Delivery, DeliveryState, StreamCursor
from bot.store import TurnCommit
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.backup import back_up, copy_database
from bot.store.sql.sqlite.repair import restore_copy
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message
from tests.store.deliveries import build_delivery

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING, DeliveryState.SENT)


async def fill(store: SqlStore) -> tuple[Receipt, Receipt, list[Delivery]]:
    """Store an unanswered message, an answered one, and a delivery in each state."""
    cursor = StreamCursor("test", "account", "updates", "7")
    first, other = [make_message(text, sent_at=NOW) for text in ("Hello", "Bye")]
    [opened, closed] = [found.receipt for found in await store.ledger.receive([first, other], NOW, cursor)]
    answered = replace(closed, outcome=Outcome.ANSWERED, closed_at=NOW)
    parts = tuple(
        build_delivery(derived_id("turn", str(number)), opened.room_id, str(number), state=state)
        for number, state in enumerate(STATES)
    )
    await store.ledger.commit(TurnCommit(deliveries=parts, receipts=(answered,)))
    for each in parts:
        await store.ledger.save_delivery(each)
    return opened, answered, list(parts)


def copied_for_an_upgrade(path: Path) -> Path:
    engine = sqlite.build_engine(path)
    with closing(engine.connect()) as connection:
        return back_up(connection, path, "before-0002")


WAYS: dict[str, Callable[[Path], Path]] = {
    "bot db backup": lambda path: copy_database(path, path.with_name("copy.db")),
    "before an upgrade": copied_for_an_upgrade,
}


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def damage(path: Path, copy: Path) -> bytes:
    """Replace a database by a copy with some overwritten pages."""
    content = bytearray(copy.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xa5" * 4096 * 5
    path.write_bytes(content)
    return bytes(content)


@pytest.mark.failure("I-15")
@pytest.mark.parametrize("way", WAYS)
async def test_open_work_of_a_restored_copy_is_held(
    open_store: OpenStore, path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store() as store:
        opened, answered, parts = await fill(store)
    copy = WAYS[way](path)
    async with open_store() as store:
        assert len(await store.ledger.deliveries(is_open=True)) == 2  # what is at work is no copy
    shutil.copy(copy, path)

    with caplog.at_level(logging.WARNING):
        async with open_store() as store:
            ledger = store.ledger
            assert await ledger.deliveries(is_open=True) == []
            assert await ledger.receipts(is_open=True) == []
            states = [delivery.state for delivery in await ledger.deliveries()]
            assert states == [DeliveryState.UNKNOWN, DeliveryState.UNKNOWN, DeliveryState.SENT]
            held = await ledger.undelivered()
            assert [delivery.id for delivery in held] == [part.id for part in parts[:2]]
            assert "it may have been sent since" in held[0].cause
            parked = await ledger.receipt(opened.id)
            assert parked is not None
            assert parked.outcome is Outcome.PARKED
            assert "put back from a copy" in parked.reason
            assert await ledger.receipt(answered.id) == answered
            assert await ledger.cursor("test", "account", "updates") is None
    assert "its 1 open messages and 2 open deliveries are held" in caplog.text
    assert "bot outbox list" in caplog.text


@pytest.mark.failure("I-15")
async def test_a_restored_copy_is_treated_as_a_restored_copy_only_once(
    open_store: OpenStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store() as store:
        await fill(store)
    shutil.copy(copy_database(path, path.with_name("copy.db")), path)
    async with open_store():
        pass
    caplog.clear()
    async with open_store() as store:
        [receipt] = [
            stored_event.receipt for stored_event in await store.ledger.receive([make_message("New", sent_at=NOW)], NOW)
        ]
    async with open_store() as store:
        assert [receipt.id for receipt in await store.ledger.receipts(is_open=True)] == [receipt.id]
    assert "copy" not in caplog.text


@pytest.mark.failure("I-15")
async def test_the_log_of_the_replaced_database_is_not_applied_to_the_copy(
    open_store: OpenStore, path: Path, tmp_path: Path
) -> None:
    async with open_store() as store:
        await fill(store)
    copy = copy_database(path, tmp_path / "copy.db")
    async with open_store() as store:
        await store.cache.set("later", "x" * 5000)
        shutil.copy(path.with_name("greenroom.db-wal"), tmp_path / "log")
    shutil.copy(copy, path)
    shutil.copy(tmp_path / "log", path.with_name("greenroom.db-wal"))

    async with open_store() as store:
        assert await store.cache.get("later") is None
        assert await store.ledger.receipts(is_open=True) == []
    assert content_of(path.with_name("greenroom.db-wal.before-copy")) == content_of(tmp_path / "log")


@pytest.mark.failure("I-15")
async def test_a_damaged_copy_is_refused_and_not_changed(open_store: OpenStore, path: Path, tmp_path: Path) -> None:
    async with open_store() as store:
        await fill(store)
    content = damage(path, copy_database(path, tmp_path / "copy.db"))

    with pytest.raises(ConfigError, match="is damaged"):
        async with open_store():
            pass
    assert content_of(path) == content


@pytest.mark.failure("I-08")
async def test_what_killed_copies_have_left_is_deleted_at_the_next_start_and_nothing_else(path: Path) -> None:
    names = ("{0}.part", "{0}.before-9.part", "{1}-20260301-110000{2}.part", "{0}.before-8", "other{2}.part")
    files = [path.with_name(name.format(path.name, path.stem, path.suffix)) for name in names]
    path.parent.mkdir(exist_ok=True)
    for file in files:
        file.write_bytes(b"half")
    written = path.with_name(f"{path.stem}-20260301-120000{path.suffix}.part")
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDING, str(written)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    await writer.stdout.readline()
    async with OpenFiles().use(path):
        assert [file.exists() for file in (*files, written)] == [False, False, False, True, True, True]
    await writer.communicate(b"")
    async with OpenFiles().use(path):
        assert not written.exists()


# Another process that writes a copy.
HOLDING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE t (x)")
connection.execute("BEGIN IMMEDIATE")
print("writing", flush=True)
sys.stdin.read()
"""


async def test_a_restored_copy_does_not_forget_who_is_not_read_and_names_who_had_their_data_deleted(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy.db"
    alice, bob = (make_message("Hello", sent_at=NOW, author=name) for name in ("Alice", "Bob"))
    async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
        await store.ledger.receive([alice, bob], NOW)
    copy_database(path, copy)
    marked = MarkedPerson(alice.author.id, PersonMark.NOT_READ, "test", "Alice", MarkOrigin.PERSON, NOW)
    async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
        await store.marks.save(marked)
        await store.edits.erase_entity(bob.author.id, NOW)
    restore_copy(path, copy)
    async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
        assert store.marks.find() == [marked]
        assert store.marks.not_read == {alice.author.id}
    assert f"bot person forget {bob.author.id}" in caplog.text
    assert str(alice.author.id) not in caplog.text
