"""Notifications between processes that share the work: what is handed over, and what happens without them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from bot import Outcome, new_id
from bot.inbound import work_sharing
from bot.store.sql.core.base import AgentRow
from bot.store.sql.postgres.leases import MAX_PAYLOAD, Notice, NoticeQueue
from bot.store.sql.postgres.work_sharing import PostgresSharing
from bot.testing import ScriptedModel, make_message, model_answer, running_agent
from bot.testing.harness import AgentHarness
from tests.store.sql.postgres.stores import ADA, open_store


@asynccontextmanager
async def two_processes(url: str) -> AsyncIterator[tuple[AgentHarness, AgentHarness]]:
    """Run an agent twice, as two processes would."""
    async with (
        open_store(url) as first_store,
        open_store(url) as second_store,
        running_agent(store=first_store, model=ScriptedModel(model_answer("I hear you."))) as first,
        running_agent(store=second_store, model=ScriptedModel(model_answer("Not me."))) as second,
    ):
        yield first, second


@pytest.mark.long
async def test_what_another_process_receives_is_answered_and_reported_by_notifications(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_sharing, "POLL_SECONDS", 600.0)
    async with asyncio.timeout(10.0), two_processes(postgres_url) as (first, second):
        await first.send("This room is mine now")
        inbox = second.agent_runtime.inbox
        for number in range(3):
            message = make_message(f"And {number}?", sent_at=first.agent.clock(), message_id=f"m{number}")
            receipt = await inbox.submit(message)
            closed = await inbox.wait_outcome(receipt.id)
            assert closed.outcome is Outcome.ANSWERED
        assert first.texts == ["I hear you."] * 4
        assert second.texts == []


@pytest.mark.long
async def test_what_a_dead_process_left_is_answered_before_what_came_to_its_room_later(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_sharing, "POLL_SECONDS", 600.0)
    to_whom = re.compile(r"The next message is .+'s, to (\w+)")
    model = ScriptedModel(lambda request: model_answer(f"To {to_whom.findall(request.prompt)[-1]}."))
    async with (
        asyncio.timeout(10.0),
        open_store(postgres_url) as store,
        open_store(postgres_url) as other_store,
        running_agent(store=store, model=model, settings={"LATEST_RESPONSE": "queue"}) as harness,
    ):
        await harness.send("This room is mine now", author="Kim")
        now = harness.agent.clock()
        await other_store.ledger.receive([make_message("One", sent_at=now, author="Alice", message_id="m1")], now)
        message = make_message("Two", sent_at=now, author="Bob", message_id="m2")
        [event] = await other_store.ledger.receive([message], now)
        unclaimed = replace(event.receipt, outcome=Outcome.RECEIVED, turn_id=None, attempts=0, claimed_at=None)
        await other_store.ledger.save_receipts([unclaimed])

        sharing: Any = store.sharing
        looked, find_receipts = asyncio.Event(), sharing.receipts_to_claim

        async def find_and_note() -> Any:
            found = await find_receipts()
            looked.set()
            return found

        monkeypatch.setattr(sharing, "receipts_to_claim", find_and_note)
        connection = await asyncpg.connect(postgres_url)
        number = await connection.fetchval("SELECT agent_id FROM room_leases")
        notices = NoticeQueue(number)
        notices.add(Notice.MESSAGE, [event.receipt.room_id])
        for payload in (notices.take_payload(), ""):  # the second one has everything looked for
            await connection.execute("SELECT pg_notify('greenroom', $1)", payload)
            await looked.wait()
        await connection.close()
        assert await harness.adapter.wait_until_sent(3) == ["To Kim.", "To Alice.", "To Bob."]


@pytest.mark.long
async def test_without_notifications_polling_hands_the_work_over(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_sharing, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(PostgresSharing, "_on_notify", lambda *_: None)
    async with asyncio.timeout(10.0), two_processes(postgres_url) as (first, second):
        await first.send("This room is mine now")
        message = make_message("And now?", sent_at=first.agent.clock(), message_id="m1")
        receipt = await second.agent_runtime.inbox.submit(message)
        closed = await second.agent_runtime.inbox.wait_outcome(receipt.id)
        assert closed.outcome is Outcome.ANSWERED


def test_notices_are_sent_once_each_in_payloads_that_the_server_takes() -> None:
    agent = AgentRow(7, ADA)
    queue, rooms = NoticeQueue(agent.number), [new_id() for _ in range(500)]
    queue.add(Notice.MESSAGE, rooms)
    queue.add(Notice.MESSAGE, rooms)
    received = []
    while queue.requested.is_set():
        payload = queue.take_payload()
        assert len(payload) <= MAX_PAYLOAD
        received += queue.parse(payload) or []
    assert received == [(Notice.MESSAGE, room_id) for room_id in rooms]


def test_notices_of_another_agent_are_ignored_and_those_without_details_concern_everyone() -> None:
    other = NoticeQueue(8)
    other.add(Notice.MESSAGE, [new_id()])
    assert NoticeQueue(7).parse(other.take_payload()) == []
    assert NoticeQueue(7).parse("") is None  # of the previous version
