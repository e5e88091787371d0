"""The emulated hub, and a character that uses it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.farcaster.adapter import FarcasterAdapter
from adapters.farcaster.emulator import CastRecord, Emulator
from bot import Receipt
from bot.platform import Delivery, TimeSource
from bot.store import Store
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

DEADLINE = 60.0


class FarcasterHarness:
    """A running character on the emulated hub."""

    def __init__(self, harness: AgentHarness, adapter: FarcasterAdapter, emulator: Emulator) -> None:
        self.harness, self.adapter, self.emulator = harness, adapter, emulator
        self.handle = harness.agent_runtime.handle
        self.store = harness.agent.store

    async def settle(self) -> None:
        """Wait until two further looks for casts have begun, and what was read is answered and sent."""
        looks = self.emulator.count_looks()
        await self.emulator.wait_until(lambda: self.emulator.count_looks() >= looks + 2)
        for receipt in await self.store.ledger.receipts(limit=200):
            await self.harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await self.harness.agent.outbox.drain(DEADLINE)

    async def receipt_of(self, cast: CastRecord) -> Receipt:
        """Return the receipt of a cast."""
        receipts = await self.store.ledger.receipts(limit=200)
        return next(receipt for receipt in receipts if receipt.key.message_id == cast.id)

    async def texts(self) -> list[str]:
        """Return the texts of all stored messages of other accounts, oldest first."""
        rooms = await self.store.worlds.rooms()
        found = [message for room in rooms for message in await self.store.memories.recent(room.id, 100)]
        found = [message for message in found if message.entity_id != self.harness.agent.id]
        return [message.content.text for message in sorted(found, key=lambda message: message.created_at)]

    async def deliveries(self) -> list[Delivery]:
        """Return all deliveries."""
        return await self.store.ledger.deliveries()


RunFarcaster = Callable[..., AbstractAsyncContextManager[FarcasterHarness]]


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


async def sleep_shortly(seconds: float) -> None:
    """Return once others have run: a test does not wait for the interval between two looks."""
    await TimeSource().sleep(min(seconds, 0.01))


@pytest.fixture
def run_farcaster(emulator: Emulator, tmp_path: Path) -> RunFarcaster:
    """Return a context manager that runs a character on the emulated hub."""

    @asynccontextmanager
    async def run(*script: Any, store: Store | None = None, **settings: str) -> AsyncIterator[FarcasterHarness]:
        says = script[0] if script and callable(script[0]) else list(script)
        model = ScriptedModel(says or (lambda request: model_answer("Noted.")))
        values = {**emulator.environment, "BOT_DATA_DIR": str(tmp_path), **settings}
        async with (
            running_agent(model=model, settings=values, store=store) as harness,
            FarcasterAdapter([harness.agent_runtime.handle], time_source=TimeSource(sleep=sleep_shortly)) as adapter,
        ):
            harness.agent.outbox.connect(adapter)
            yield FarcasterHarness(harness, adapter, emulator)
            harness.agent.outbox.disconnect(adapter)

    return run
