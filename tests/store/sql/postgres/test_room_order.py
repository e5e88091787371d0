"""Messages of one room that several processes receive are answered in the order in which they were stored."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from bot import Outcome, Rule
from bot.inbound import work_sharing
from bot.platform import Delivery, InboundMessage
from bot.store import StoreUnavailable
from bot.store.sql.postgres import heartbeat
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.testing.harness import AgentHarness
from tests.store.sql.postgres.stores import open_store

TO_WHOM = re.compile(r"The next message is .+'s, to (\w+)")
SETTINGS = {"LATEST_RESPONSE": "queue", "BURST_PAUSE": "0"}


class HeldAdapter(RecordingAdapter):
    """A platform on which messages end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held, self.may_end = asyncio.Event(), asyncio.Event()

    async def deliver(self, delivery: Delivery) -> str:
        self.is_held.set()
        await self.may_end.wait()
        return await super().deliver(delivery)


@asynccontextmanager
async def process(url: str, adapter: RecordingAdapter | None = None) -> AsyncIterator[AgentHarness]:
    """Run an agent that answers every message of its own by the name of its author."""
    model = ScriptedModel(lambda request: model_answer(f"To {TO_WHOM.findall(request.prompt)[-1]}."))
    async with (
        open_store(url) as store,
        running_agent(store=store, model=model, settings=SETTINGS, adapter=adapter) as harness,
    ):
        yield harness


@asynccontextmanager
async def two_processes(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[AgentHarness, AgentHarness]]:
    """Run the process that owns the room, where Kim and Bob are known, and another one; neither looks by the clock."""
    monkeypatch.setattr(work_sharing, "POLL_SECONDS", 600.0)
    async with asyncio.timeout(10.0), process(url) as owner, process(url) as other:
        for author in ("Kim", "Bob"):
            await owner.send("Hello", author=author)
        yield owner, other


def message(harness: AgentHarness, author: str) -> InboundMessage:
    return make_message(f"I am {author}", sent_at=harness.agent.clock(), author=author, message_id=f"of {author}")


def hold_notifications(harness: AgentHarness, patch: pytest.MonkeyPatch) -> None:
    """Delay the notifications of other processes."""
    sharing: Any = harness.agent.store.sharing
    patch.setattr(sharing._member, "on_notify", lambda payload: None)


async def notify_everyone(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT pg_notify('greenroom', '')")
    await connection.close()


@pytest.mark.long
async def test_a_message_waits_for_an_earlier_message_that_another_process_received(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_processes(postgres_url, monkeypatch) as (owner, other):
        with monkeypatch.context() as patch:
            hold_notifications(owner, patch)
            await other.agent_runtime.inbox.submit(message(owner, "Alice"))
            await owner.agent_runtime.inbox.submit(message(owner, "Bob"))
        await notify_everyone(postgres_url)
        assert await owner.adapter.wait_until_sent(4) == ["To Kim.", "To Bob.", "To Alice.", "To Bob."]


@pytest.mark.long
async def test_a_message_that_cannot_be_read_keeps_no_other_from_being_claimed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_processes(postgres_url, monkeypatch) as (owner, other):
        with monkeypatch.context() as patch:
            hold_notifications(owner, patch)
            receipt = await other.agent_runtime.inbox.submit(message(owner, "Alice"))
            connection = await asyncpg.connect(postgres_url)
            await connection.execute("UPDATE memories SET content = '{' WHERE id = $1", receipt.memory_id.bytes)
            await connection.close()
            await other.agent_runtime.inbox.submit(message(owner, "Bob"))
        await notify_everyone(postgres_url)
        assert await owner.adapter.wait_until_sent(3) == ["To Kim.", "To Bob.", "To Bob."]
        failed = await owner.agent_runtime.inbox.wait_outcome(receipt.id)
        assert (failed.outcome, failed.rule) == (Outcome.FAILED, Rule.INTERNAL_ERROR)


@pytest.mark.long
async def test_a_message_that_comes_while_an_earlier_message_is_claimed_is_answered_after_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_processes(postgres_url, monkeypatch) as (owner, other):
        ledger, inbox = owner.agent.store.ledger, owner.agent_runtime.inbox
        save_receipts = ledger.save_receipts

        async def save_then_receive(receipts: Any) -> None:
            await save_receipts(receipts)
            monkeypatch.setattr(ledger, "save_receipts", save_receipts)
            await inbox.submit(message(owner, "Bob"))

        monkeypatch.setattr(ledger, "save_receipts", save_then_receive)
        await other.agent_runtime.inbox.submit(message(owner, "Alice"))
        assert await owner.adapter.wait_until_sent(4) == ["To Kim.", "To Bob.", "To Alice.", "To Bob."]


@pytest.mark.long
async def test_a_message_waits_for_an_earlier_message_whose_storing_was_not_confirmed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_processes(postgres_url, monkeypatch) as (owner, other):
        await owner.send("Hello", author="Alice")
        ledger: Any = owner.agent.store.ledger
        receive_single = ledger._receive_single

        async def receive_and_fail(*arguments: Any) -> None:
            await receive_single(*arguments)
            raise StoreUnavailable("the connection was cut", cause="test")

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_receive_single", receive_and_fail)
            with pytest.raises(StoreUnavailable):
                await owner.agent_runtime.inbox.submit(message(owner, "Alice"))
        await other.agent_runtime.inbox.submit(message(owner, "Alice"))  # the platform hands it out again
        await owner.agent_runtime.inbox.submit(message(owner, "Bob"))
        assert await owner.adapter.wait_until_sent(5) == ["To Kim.", "To Bob.", "To Alice.", "To Alice.", "To Bob."]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("is_claimed", [True, False], ids=["was under way", "was not claimed"])
@pytest.mark.parametrize("read", [1, 2, 3], ids=["first", "second", "third"])
async def test_what_a_dead_process_left_is_answered_before_a_message_that_comes_at_the_take_over(
    read: int, is_claimed: bool, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_sharing, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(work_sharing, "HEARTBEAT_SECONDS", 600.0)
    monkeypatch.setattr(heartbeat, "MIN_INTERVAL_SECONDS", 0.0)
    async with asyncio.timeout(10.0), process(postgres_url) as survivor, open_store(postgres_url) as dead_store:
        for author in ("Kim", "Bob"):
            await survivor.send("Hello", author=author)
        sharing: Any = survivor.agent.store.sharing
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("UPDATE room_leases SET owner = -1")
        sharing.remove(list(sharing._rooms))
        await dead_store.ledger.receive([message(survivor, "Alice")], survivor.agent.clock())
        if not is_claimed:
            await connection.execute(
                "UPDATE receipts SET outcome = 'received', turn_id = NULL, attempts = 0, claimed_at = NULL "
                "WHERE is_open = 1"
            )
        await connection.close()

        reads = count(1)

        def then_receive(find_receipts: Any) -> Any:
            async def find(**conditions: Any) -> Any:
                found = await find_receipts(**conditions)
                if next(reads) == read:
                    await survivor.agent_runtime.inbox.submit(message(survivor, "Bob"))
                return found

            return find

        for owner, name in ((survivor.agent.store.ledger, "receipts"), (sharing, "receipts_to_claim")):
            monkeypatch.setattr(owner, name, then_receive(getattr(owner, name)))
        await sharing.heartbeat()
        assert await survivor.adapter.wait_until_sent(4) == ["To Kim.", "To Bob.", "To Alice.", "To Bob."]


@pytest.mark.long
async def test_the_first_message_of_a_room_whose_storing_was_not_confirmed_is_answered(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(10.0), process(postgres_url) as harness:
        await harness.send("Hello", author="Alice", room="elsewhere")
        ledger: Any = harness.agent.store.ledger
        receive_single = ledger._receive_single

        async def receive_and_fail(*arguments: Any) -> None:
            await receive_single(*arguments)
            raise StoreUnavailable("the connection was cut", cause="test")

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_receive_single", receive_and_fail)
            with pytest.raises(StoreUnavailable):
                await harness.agent_runtime.inbox.submit(message(harness, "Alice"))
        receipt = await harness.agent_runtime.inbox.submit(message(harness, "Alice"))  # the platform brings it again
        assert (await harness.agent_runtime.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED


@pytest.mark.long
async def test_what_waited_in_a_lost_room_is_not_sent_when_the_room_is_back(postgres_url: str) -> None:
    adapter = HeldAdapter()
    async with asyncio.timeout(20.0), process(postgres_url, adapter) as harness:
        inbox, outbox = harness.agent_runtime.inbox, harness.agent.outbox
        for author in ("Alice", "Bob"):
            receipt = await inbox.submit(message(harness, author))
            await inbox.wait_outcome(receipt.id)
        await adapter.is_held.wait()
        connection = await asyncpg.connect(postgres_url)
        new_owner = await connection.fetchval(
            "INSERT INTO workers (agent_id, alive_until) "
            "SELECT agent_id, alive_until + 600000000 FROM workers LIMIT 1 RETURNING position"
        )
        await connection.execute("UPDATE room_leases SET owner = $1", new_owner)
        adapter.may_end.set()
        await outbox.drain(5.0)
        await connection.execute("UPDATE deliveries SET state = 'sent', is_open = 0 WHERE is_open = 1")  # by that one
        await connection.execute("DELETE FROM workers WHERE position = $1", new_owner)
        await connection.close()
        await inbox.wait_outcome((await inbox.submit(message(harness, "Carol"))).id)
        await outbox.drain(5.0)
        assert harness.texts == ["To Alice.", "To Carol."]
