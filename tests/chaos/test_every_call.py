"""Each database call fails once: nothing is lost or doubled (I1, I2, I5, I8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import copyfile

import pytest

from bot import ActionResult, Effect, Outcome, Plugin, TemporaryError, Turn, action, derived_id, system_clock
from bot.platform import Delivery, InboundMessage, InboxClosed
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from tests.chaos.database import BotDatabase
from tests.chaos.failing_database import Fault, failing

pytestmark = pytest.mark.long

AGENT = derived_id("agent", "Ada")
MOST_CALLS, SIDE_BY_SIDE = 300, 25
SECONDS = 30.0


class IdempotentAdapter(RecordingAdapter):
    """A platform that knows every part by its id, across restarts of the bot."""

    async def deliver(self, delivery: Delivery) -> str:
        if all(part.id != delivery.id for part in self.sent):
            return await super().deliver(delivery)
        return delivery.id

    async def reconcile(self, delivery: Delivery) -> str:
        return await self.deliver(delivery)


class Counters:
    """How often something unsafe was done, and how often the model was asked."""

    def __init__(self) -> None:
        self.shouts = 0
        self.platform = IdempotentAdapter()
        self.model = ScriptedModel([model_answer("Done.", actions=["SHOUT"]), model_answer("Done, I think.")])

        @action("SHOUT", "Shout.", effect=Effect.UNSAFE)
        async def shout(turn: Turn) -> ActionResult:
            self.shouts += 1
            return ActionResult(text="it is shouted")

        self.plugin = Plugin("shouting", "Shouts.", actions=[shout])


@asynccontextmanager
async def run_with_fault(path: Path, counters: Counters, fault: Fault) -> AsyncIterator[AgentHarness]:
    """Run an agent on a database file with the fault."""
    async with (
        OpenFiles(failing(fault)).open_store(path, AGENT) as store,
        running_agent(counters.plugin, model=counters.model, adapter=counters.platform, store=store) as harness,
    ):
        fault.is_armed = True
        yield harness


async def submit_and_wait(harness: AgentHarness, arrival: InboundMessage) -> None:
    """Submit a message and wait for its outcome, or for the store's fault."""
    with suppress(TemporaryError, InboxClosed):
        async with asyncio.timeout(SECONDS):
            receipt = await harness.agent_runtime.inbox.submit(arrival)
            await harness.agent_runtime.inbox.wait_outcome(receipt.id)


async def answer_with_fault(path: Path, at: int, *, is_late: bool) -> bool:
    """Run with a fault, then without one; return whether there were that many calls."""
    counters, fault = Counters(), Fault(at, is_late)
    arrival = make_message("Shout!", sent_at=system_clock(), message_id="m1")
    async with run_with_fault(path, counters, fault) as harness:
        await submit_and_wait(harness, arrival)
    async with run_with_fault(path, counters, Fault(at=0)) as harness:
        await submit_and_wait(harness, arrival)  # the platform did not receive it, or has forgotten it
        await counters.platform.wait_until_sent(1)
        await harness.agent.outbox.drain(SECONDS)
        [receipt] = await harness.agent.store.ledger.receipts()
        parts = await harness.agent.store.ledger.deliveries()
    where = f"call {at}"
    assert receipt.outcome is Outcome.ANSWERED, where
    assert [part.state for part in parts] == ["sent"], where
    assert len(counters.platform.sent) == 1, where
    assert counters.shouts <= 1, where
    assert BotDatabase(path).integrity_errors() == [], where
    return fault.is_reached


@pytest.fixture
async def empty(tmp_path: Path) -> Path:
    """Return a database that holds only its schema."""
    path = tmp_path / "empty.db"
    async with OpenFiles().use(path):
        pass
    return path


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after the commit"])
async def test_nothing_is_lost_or_doubled_if_any_database_call_fails(
    tmp_path: Path, empty: Path, is_late: bool
) -> None:
    for first in range(1, MOST_CALLS, SIDE_BY_SIDE):
        files = {at: tmp_path / f"{at}.db" for at in range(first, first + SIDE_BY_SIDE)}
        for path in files.values():
            copyfile(empty, path)
        results = [answer_with_fault(path, at, is_late=is_late) for at, path in files.items()]
        if not all(await asyncio.gather(*results)):  # each waits for its database to come back
            return
    pytest.fail(f"more than {MOST_CALLS} calls for one message")
