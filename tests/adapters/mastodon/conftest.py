"""The emulated Mastodon, and a character that uses it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.mastodon.adapter import MastodonAdapter
from adapters.mastodon.emulator import Emulator
from bot import Receipt
from bot.platform import Delivery
from bot.store import Store
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

DEADLINE = 60.0


class MastodonHarness:
    """A running character on the emulated Mastodon."""

    def __init__(self, harness: AgentHarness, adapter: MastodonAdapter, emulator: Emulator) -> None:
        self.harness, self.adapter, self.emulator = harness, adapter, emulator
        self.handle = harness.agent_runtime.handle
        self.store = harness.agent.store

    async def settle(self) -> None:
        """Wait until every notification is read, and what it asked for is answered and sent."""
        items = self.emulator.notifications.get(self.emulator.username, [])
        newest = int(items[-1]["id"]) if items else 0
        await self.emulator.wait_until(lambda: any(bound >= newest for bound in self.bounds()))
        for receipt in await self.store.ledger.receipts(limit=200):
            await self.harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await self.harness.agent.outbox.drain(DEADLINE)

    def bounds(self) -> list[int]:
        """Return the notification after which each call asked for newer ones."""
        calls = self.emulator.calls
        return [int(call.query.get("min_id", "-1")) for call in calls if call.endpoint == "GET /api/v1/notifications"]

    async def receipt_of(self, post_id: str) -> Receipt:
        """Return the latest receipt of a post."""
        receipts = await self.store.ledger.receipts(limit=200)
        return next(receipt for receipt in receipts if receipt.key.message_id == post_id)

    async def texts(self) -> list[str]:
        """Return the texts of all stored messages of other accounts, oldest first."""
        rooms = await self.store.worlds.rooms()
        found = [message for room in rooms for message in await self.store.memories.recent(room.id, 100)]
        found = [message for message in found if message.entity_id != self.harness.agent.id]
        return [message.content.text for message in sorted(found, key=lambda message: message.created_at)]

    async def deliveries(self) -> list[Delivery]:
        """Return all deliveries."""
        return await self.store.ledger.deliveries()


RunMastodon = Callable[..., AbstractAsyncContextManager[MastodonHarness]]


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


@pytest.fixture
def run_mastodon(emulator: Emulator, tmp_path: Path) -> RunMastodon:
    """Return a context manager that runs a character on the emulated Mastodon."""

    @asynccontextmanager
    async def run(*script: Any, store: Store | None = None, **settings: str) -> AsyncIterator[MastodonHarness]:
        says = script[0] if script and callable(script[0]) else list(script)
        model = ScriptedModel(says or (lambda request: model_answer("Noted.")))
        values = {**emulator.environment, "BOT_DATA_DIR": str(tmp_path), **settings}
        async with (
            running_agent(model=model, settings=values, store=store) as harness,
            MastodonAdapter([harness.agent_runtime.handle]) as adapter,
        ):
            harness.agent.outbox.connect(adapter)
            yield MastodonHarness(harness, adapter, emulator)
            harness.agent.outbox.disconnect(adapter)

    return run
