"""Erasure of a person in a large store: in batches between other work, and without remains in the files."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bot import Content, Memory, MemoryKind, Outcome, derived_id, new_id, system_clock
from bot.domain.ledger import CostEntry
from bot.platform import DeliveryState, InboundMessage, Quotation
from bot.store import Step, StepState, Store
from bot.store.ledger import TurnCommit
from bot.store.sql.stores import erasure
from bot.store.sql.stores.retention import Retention
from bot.testing import make_message
from tests.store.conftest import AGENT, OpenFiles, Synchronous, postgres_store, sqlite_store
from tests.store.deliveries import build_delivery

NOW = system_clock()
PERSON = make_message("", sent_at=NOW, author="Alice").author.id


async def receive(store: Store, author: str, contents: list[Content]) -> list[InboundMessage]:
    messages = [make_message(content, sent_at=NOW, author=author) for content in contents]
    await store.ledger.receive(messages, NOW)
    return messages


async def answer(store: Store, message: InboundMessage, text: str) -> None:
    """Store a sent answer to a message, with a step of its turn."""
    receipt = await store.ledger.receipt(message.message.id)
    assert receipt is not None
    assert receipt.turn_id is not None
    content = Content(text)
    reply = Memory(
        new_id(), MemoryKind.MESSAGE, AGENT, message.room.id, message.world.id, content, NOW, turn_id=receipt.turn_id
    )
    part = build_delivery(receipt.turn_id, message.room.id, content, memory_id=reply.id)
    closed = replace(receipt, outcome=Outcome.ANSWERED, closed_at=NOW)
    [placed] = await store.ledger.commit(TurnCommit((reply,), (part,), (closed,)))
    await store.ledger.save_delivery(replace(placed, state=DeliveryState.SENT, external_id=new_id().hex))
    await store.ledger.save_step(
        Step(receipt.turn_id, "answer:1", "answer", StepState.DONE, result={"text": text}, recorded_at=NOW)
    )


@pytest.fixture(params=[sqlite_store, postgres_store], ids=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest) -> Any:
    return request.param(request, system_clock)


@pytest.mark.long
async def test_a_person_is_erased_in_batches_between_which_others_write(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "ROWS_PER_WINDOW", 10)
    monkeypatch.setattr(erasure, "ITEMS_PER_BATCH", 5)
    async with open_store as store:
        hers = await receive(store, "Alice", [Content(f"my words, number {number}") for number in range(30)])
        for message in hers[:12]:
            await answer(store, message, "Yes.")
        others = await receive(store, "Bob", [Content("hello")] * 30)
        database, written = store.edits._database, []
        write = database.write

        async def count(work: Callable[..., Any], **options: Any) -> Any:
            written.append(work)
            if len(written) % 10 == 1:
                await store.cache.set("the others", len(written))
            return await write(work, **options)

        monkeypatch.setattr(database, "write", count)
        result = await store.edits.erase_entity(PERSON, NOW)
        monkeypatch.setattr(database, "write", write)
        assert (result.messages, result.replies, result.derived) == (30, 12, 0)
        assert len(written) > 30 / 5 + 30 / 5
        left = await store.memories.recent(others[0].room.id, 100)
        assert [memory.id for memory in left] == [message.message.id for message in others]
        assert (await store.edits.erase_entity(PERSON, NOW)).total == 0


async def test_what_a_person_writes_while_they_are_erased_is_kept(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "ROWS_PER_WINDOW", 2)
    async with open_store as store:
        before = await receive(store, "Alice", [Content("before")] * 9)
        database, search, later = store.edits._database, store.edits._database.search, []

        async def write_meanwhile(work: Callable[..., Any]) -> Any:
            found = await search(work)
            if not later:
                later.extend(await receive(store, "Alice", [Content("meanwhile")]))
            return found

        monkeypatch.setattr(database, "search", write_meanwhile)
        await store.edits.erase_entity(PERSON, NOW)
        left = await store.memories.recent(before[0].room.id, 100)
    assert [memory.id for memory in left] == [message.message.id for message in later] != []


async def test_an_interrupted_erasure_is_completed_by_a_repetition(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "ITEMS_PER_BATCH", 2)
    async with open_store as store:
        hers = await receive(store, "Alice", [Content("before")] * 9)
        database, write, count = store.edits._database, store.edits._database.write, 0

        async def fail(work: Callable[..., Any], **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == 8:
                raise OSError("the process ends")
            return await write(work, **options)

        monkeypatch.setattr(database, "write", fail)
        with pytest.raises(OSError, match="the process ends"):
            await store.edits.erase_entity(PERSON, NOW)
        await store.edits.erase_entity(PERSON, NOW)
        assert await store.memories.recent(hers[0].room.id, 100) == []


def read_files(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


@pytest.mark.long
@pytest.mark.usefixtures("sqlite_file")
async def test_no_file_of_the_database_holds_an_erased_persons_words(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with sqlite_store(request, system_clock) as store:
        canaries = [f"canary{number:04d}of{number * 7919:06d}" for number in range(72)]
        hers = await receive(store, "Alice", [Content(f"I keep {word} in the old oak {'.' * 99}") for word in canaries])
        for message, word in zip(hers, canaries, strict=True):
            quotation = Quotation(message.message.content.text, "Alice", PERSON, message.key.message_id)
            [his] = await receive(store, "Bob", [Content("What is that?", quotation=quotation)])
            await answer(store, message, f"So you keep {word}.")
            await answer(store, his, f"Alice says that she keeps {word}")
        path = tmp_path / "greenroom.db"
        assert all(word.encode() in read_files(path) for word in canaries)
        await store.edits.erase_entity(PERSON, NOW)
        assert [word for word in canaries if word.encode() in read_files(path)] == []
        assert path.with_name(f"{path.name}-wal").stat().st_size == 0
        left = await store.memories.recent(hers[0].room.id, 500)
        assert {memory.content.text for memory in left} == {"What is that?", "Alice says that she keeps […]"}


@pytest.mark.long
@pytest.mark.usefixtures("sqlite_file")
async def test_the_log_is_emptied_once_another_program_has_read_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path, log = tmp_path / "greenroom.db", tmp_path / "greenroom.db-wal"
    async with sqlite_store(request, system_clock) as store:
        await receive(store, "Alice", [Content("my words")])
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM memories").fetchone()
            await store.edits.erase_entity(PERSON, NOW)
            assert log.stat().st_size > 0
        while log.stat().st_size:
            await store.cache.get("")  # the writing thread tries again when it is idle
        assert b"my words" not in read_files(path)


@pytest.mark.long
async def test_the_index_of_a_file_keeps_no_term_of_an_erased_person(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_file: Path
) -> None:
    path = tmp_path / "greenroom.db"
    async with sqlite_store(request, system_clock) as store:
        await receive(store, "Bob", [Content(f"number {number}") for number in range(200)])
        await receive(store, "Alice", [Content("the zebracorn")])
        await receive(store, "Bob", [Content("a xylophone")])
        await store.edits.erase_entity(PERSON, NOW)
        files = read_files(path)
    assert b"zebracorn" not in files
    assert b"xylophon" in files


async def test_what_is_kept_for_limits_is_deleted_when_the_day_is_over(open_store: Any) -> None:
    async with open_store as store:
        entry = CostEntry(NOW.date(), "m", derived_id("room"), PERSON, calls=1, cost=0.5)
        await store.costs.add([entry])
        await store.edits.erase_entity(PERSON, NOW)
        database, agent_row = store.edits._database, store.edits._agent_row
        for clock, cost in ((system_clock, 0.5), (lambda: NOW + timedelta(days=1), 0.0)):
            await Retention(database, agent_row, clock=clock, sleep=_rest).run_once()
            assert (await store.costs.erased_usage(NOW.date())).of(PERSON).cost == cost


async def _rest(_: float) -> None:
    """Do not wait."""


@pytest.mark.long
async def test_others_write_at_once_while_a_person_is_erased_from_three_hundred_thousand_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "greenroom.db"
    async with OpenFiles().open_store(path, AGENT, synchronous=Synchronous.NORMAL) as store:
        contents = [Content(f"what was said as number {number} {'.' * 80}") for number in range(1_000)]
        for _ in range(100):
            for author in ("Alice", "Bob", "Carol"):
                await receive(store, author, contents)
        erasing = asyncio.create_task(store.edits.erase_entity(PERSON, NOW))
        waits = []
        while not erasing.done():
            started = perf_counter()
            await receive(store, "Bob", [Content("hello")])
            waits.append(perf_counter() - started)
            await asyncio.sleep(0.005)
        result = await erasing
    waits.sort()
    logging.getLogger(__name__).info(
        "%d writes meanwhile: median %.4f s, p99 %.4f s, longest %.4f s",
        len(waits), waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1],
    )  # fmt: skip
    assert result.messages == 100_000
    assert len(waits) > 100
    with closing(sqlite3.connect(path)) as driver:
        assert driver.execute("SELECT count(*) FROM memories").fetchone() == (200_000 + len(waits),)
