"""A running character on an emulated platform of posts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from bot import Receipt
from bot.platform import Adapter, AgentHandle, Delivery
from bot.store import Store
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

DEADLINE = 60.0
E = TypeVar("E")


class PostingHarness(Generic[E]):
    """A running character with its adapter on an emulator."""

    def __init__(self, harness: AgentHarness, adapter: Any, emulator: E) -> None:
        self.harness, self.adapter, self.emulator = harness, adapter, emulator
        self.handle: AgentHandle = harness.agent_runtime.handle
        self.store = harness.agent.store

    async def finish(self) -> None:
        """Wait until what was read is answered and sent."""
        for receipt in await self.store.ledger.receipts(limit=200):
            await self.harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await self.harness.agent.outbox.drain(DEADLINE)

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


@asynccontextmanager
async def run_posting(
    script: Any, settings: dict[str, str], store: Store | None, build: Callable[[AgentHandle], Adapter]
) -> AsyncIterator[tuple[AgentHarness, Adapter]]:
    """Run a character with an adapter; its model answers by a script: a callable, or the answers in order."""
    says = script[0] if script and callable(script[0]) else list(script)
    model = ScriptedModel(says or (lambda request: model_answer("Noted.")))
    async with (
        running_agent(model=model, settings=settings, store=store) as harness,
        build(harness.agent_runtime.handle) as adapter,
    ):
        harness.agent.outbox.connect(adapter)
        yield harness, adapter
        harness.agent.outbox.disconnect(adapter)
