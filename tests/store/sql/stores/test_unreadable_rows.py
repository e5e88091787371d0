"""A row that cannot be read is reported and costs only itself; the store goes on."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection

from bot import Outcome, Receipt, Rule, Settings, derived_id, new_id
from bot.settings import Layer
from bot.store import UnreadableRow
from bot.store.sql.core.base import Synchronous
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers, PostgresStorage
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.check import check_file
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.store import SqlStore
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

AGENT = derived_id("agent", "Ada")


Reopen = Callable[[], AbstractAsyncContextManager[SqlStore]]


@pytest.fixture(params=["sqlite", "postgresql"])
def reopen(request: pytest.FixtureRequest, path: Path) -> Reopen:
    """Return a function that opens the store of an agent on a database of each kind, as a new process does."""
    if request.param == "sqlite":
        return lambda: OpenFiles().open_store(path, AGENT, synchronous=Synchronous.NORMAL)
    address = parse_address(request.getfixturevalue("postgres_url"), "url")
    return lambda: OpenServers().open_store(address, AGENT)


async def change(store: SqlStore, statement: str) -> None:
    """Change rows as another program does."""

    def run(connection: Connection) -> None:
        connection.exec_driver_sql(statement)

    await store.memories._database.write(run)


async def say(harness: AgentHarness, text: str) -> Receipt:
    receipt = await harness.submit(text)
    closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return closed


@pytest.mark.matrix(1)
@pytest.mark.failure("I-16")
@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("memories", "content = '{'"),
        ("memories", "kind = kind, metadata = '['"),
        ("receipts", "outcome = 'answared'"),
        ("receipts", "model_calls = '[{\"unknown\": 1}]'"),
        ("deliveries", "content = '{'"),
        ("rooms", "metadata = '{'"),
        ("rooms", "type = 'CELLAR'"),
        ("worlds", "metadata = '{'"),
        ("entities", "names = '['"),
    ],
)
async def test_the_bot_goes_on_answering_where_a_row_cannot_be_read(reopen: Reopen, table: str, values: str) -> None:
    model = ScriptedModel(model_answer("Hello again."))
    async with reopen() as store, running_agent(model=model, store=store) as harness:
        await say(harness, "before")
        await change(store, f"UPDATE {table} SET {values}")
    async with reopen() as store, running_agent(model=model, store=store) as harness:
        assert (await say(harness, "after")).outcome is Outcome.ANSWERED
        assert store.ledger.health.problem is None
        assert harness.texts[-1] == "Hello again."


@pytest.mark.long
@pytest.mark.failure("I-16")
async def test_the_check_names_the_same_unreadable_rows_on_both_databases(path: Path, postgres_url: str) -> None:
    files = OpenFiles().open_store(path, AGENT)
    servers = OpenServers().open_store(parse_address(postgres_url, "url"), AGENT)
    spoilt = [await _spoil_rows(files), await _spoil_rows(servers)]
    in_file = check_file(path).problems
    in_server = (await PostgresStorage().check(Settings([Layer(".env", {"POSTGRES_URL": postgres_url})]))).problems
    for (room_id, receipt_id), problems in zip(spoilt, (in_file, in_server), strict=True):
        assert [problem.partition(":")[0] for problem in problems] == [
            f"1 rows of rooms hold what cannot be read ({room_id})",
            f"1 rows of receipts hold what cannot be read ({receipt_id})",
        ]
        assert all("correct or delete them" in problem for problem in problems)
    assert "--repair" not in "".join(in_server)  # it copies files


async def _spoil_rows(opened: AbstractAsyncContextManager[SqlStore]) -> tuple[UUID, UUID]:
    """Make a room and a receipt of a new store unreadable; return their ids."""
    model = ScriptedModel(model_answer("Hello."))
    async with opened as store, running_agent(model=model, store=store) as harness:
        receipt = await say(harness, "before")
        await change(store, "UPDATE rooms SET metadata = '{'")
        await change(store, "UPDATE receipts SET outcome = 'answared'")
        return receipt.room_id, receipt.id


@pytest.mark.long
async def test_a_message_of_a_world_with_unreadable_roles_is_refused_alone(reopen: Reopen) -> None:
    model = ScriptedModel(model_answer("Hello."))
    async with reopen() as store, running_agent(model=model, store=store) as harness:
        await say(harness, "before")
        await change(store, "UPDATE worlds SET roles = '{'")
    async with reopen() as store, running_agent(model=model, store=store) as harness:
        with pytest.raises(UnreadableRow, match="holds invalid JSON"):
            await harness.submit("after")
        assert store.ledger.health.problem is None


@pytest.mark.long
@pytest.mark.parametrize("table", ["memories", "rooms"])
async def test_an_open_message_that_cannot_be_read_fails_at_the_next_start_and_is_not_tried_again(
    reopen: Reopen, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reopen() as store, running_agent(store=store) as harness:
        harness.agent_runtime.inbox.processor.close()  # it is stored, and the process ends before it starts on it
        receipt = await harness.submit("before")
        await change(store, f"UPDATE {table} SET metadata = '['")
    async with reopen() as store, running_agent(store=store) as harness:
        failed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert (failed.outcome, failed.rule) == (Outcome.FAILED, Rule.INTERNAL_ERROR)
        unreadable_id = receipt.memory_id if table == "memories" else receipt.room_id
        assert f"row {unreadable_id} of {table} in the database cannot be read" in failed.reason
        assert "correct or delete it" in failed.reason
        assert await store.ledger.receipts(is_open=True) == []
    caplog.clear()
    async with reopen() as store, running_agent(store=store) as harness:
        assert (await store.ledger.receipt(receipt.id)) == failed
    assert "cannot be read" not in caplog.text


@pytest.mark.failure("I-16")
async def test_a_cached_value_that_cannot_be_read_counts_as_missing_and_is_named(
    reopen: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    key = f"colour {new_id()}"  # each problem is logged once
    async with reopen() as store:
        await store.cache.set(key, "blue")
        await change(store, f"UPDATE cache SET value = '{{' WHERE key = '{key}'")
        assert await store.cache.get(key) is None
        assert f"row {key} " in caplog.text
        await store.cache.set(key, "red")
        assert await store.cache.get(key) == "red"


async def test_a_room_that_cannot_be_read_counts_as_unknown_until_its_next_message(reopen: Reopen) -> None:
    async with reopen() as store, running_agent(model=ScriptedModel(model_answer("Hello.")), store=store) as harness:
        room_id = (await say(harness, "one")).room_id
        await change(store, "UPDATE rooms SET metadata = '{'")
        assert await store.worlds.room(room_id) is None
        await say(harness, "two")
        assert await store.worlds.room(room_id) is not None


@pytest.mark.long
async def test_an_unreadable_row_is_named_in_the_log_and_left_out_of_lists(
    reopen: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(model_answer("Hello."))
    async with reopen() as store, running_agent(model=model, store=store) as harness:
        first, second = await say(harness, "one"), await say(harness, "two")
        oldest = "(SELECT min(position) FROM receipts)"
        await change(store, f"UPDATE receipts SET outcome = 'answared' WHERE position = {oldest}")
        assert await store.ledger.receipts() == [second]
        assert f"row {first.id} of receipts in the database cannot be read (ValueError)" in caplog.text
        with pytest.raises(UnreadableRow, match=str(first.id)):
            await store.ledger.receipt(first.id)
        assert store.ledger.health.problem is None


@pytest.mark.long
@pytest.mark.failure("I-16")
async def test_a_text_that_is_no_utf_8_is_read_with_replacements_and_named_by_the_check(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite._report_invalid_text.cache_clear()
    model = ScriptedModel(model_answer("Hello."))
    async with OpenFiles().open_store(path, AGENT) as store, running_agent(model=model, store=store) as harness:
        receipt = await say(harness, "before")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE memories SET content = CAST(replace(content, 'before', x'626566FF') AS TEXT)")
    [problem] = check_file(path).problems
    assert problem.startswith(f"1 rows of memories hold what cannot be read ({receipt.memory_id}): ")
    async with OpenFiles().open_store(path, AGENT) as store, running_agent(model=model, store=store) as harness:
        assert (await say(harness, "after")).outcome is Outcome.ANSWERED
        texts = [memory.content.text for memory in await store.memories.recent(receipt.room_id)]
        assert texts == ["bef\ufffd", "Hello.", "after", "Hello."]
        assert "a text in the database is no UTF-8: it is read with replacement characters" in caplog.text
        assert store.ledger.health.problem is None
