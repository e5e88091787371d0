"""The emulated X, a manual clock, and a character that uses both."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.x.adapter import XAccount, XAdapter
from adapters.x.emulator import Emulator
from bot import Agent, AgentConfig, Character, Plugin, Receipt, Runtime, Settings
from bot.platform import Delivery, DeliveryState
from bot.plugin_system.loading import find_plugin
from bot.settings import Layer
from bot.store import InMemoryStore, Store
from bot.testing import ManualClock, ScriptedModel, model_answer
from tests.adapters.api_description import find_violations, read_description

DEADLINE = 60.0


def bundled_plugins() -> list[Plugin]:
    """Find bootstrap and x_actions as the loader does: only then are they trusted."""
    return [plugin for name in ("bootstrap", "x_actions") if (plugin := find_plugin(name)) is not None]


class XHarness:
    """A running character on the emulated X."""

    def __init__(self, runtime: Runtime, adapter: XAdapter, emulator: Emulator, clock: ManualClock) -> None:
        self.runtime, self.adapter, self.emulator, self.clock = runtime, adapter, emulator, clock
        self.agent_runtime = runtime.agents[0]

    @property
    def agent(self) -> Agent:
        return self.agent_runtime.agent

    @property
    def account(self) -> XAccount:
        account = self.adapter.account_of(self.agent.id)
        assert account is not None
        return account

    async def poll(self) -> None:
        """Read the mentions once more, and wait until all resulting work is done."""
        rest = await self.clock.wait_for_sleepers()
        self.clock.advance(rest)
        await self.wait_idle()

    async def wait_idle(self) -> None:
        """Wait until nothing is under way: the mentions are read, answered, and the answers sent."""
        await self.clock.wait_for_sleepers()
        for receipt in await self.agent.store.ledger.receipts(limit=200):
            await self.agent_runtime.inbox.wait_outcome(receipt.id)
        await self.agent.outbox.drain(DEADLINE)

    async def receipts(self) -> dict[str, Receipt]:
        return {receipt.key.message_id: receipt for receipt in await self.agent.store.ledger.receipts(limit=200)}

    async def unsent(self) -> list[Delivery]:
        return [
            delivery
            for delivery in await self.agent.store.ledger.undelivered(100)
            if delivery.state is not DeliveryState.SENT
        ]


RunX = Callable[..., AbstractAsyncContextManager[XHarness]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[Emulator]:
    async with Emulator(clock=clock.now) as running:
        yield running
        if (description := read_description("X_API_DESCRIPTION")) is not None:
            calls = [(call.endpoint.partition(" ")[0], call.path, call.body) for call in running.calls]
            assert [problem for call in calls for problem in find_violations(description, *call)] == []


@pytest.fixture
def run_x(emulator: Emulator, clock: ManualClock, tmp_path: Path) -> RunX:
    """Return a context manager that runs a character on the emulated X."""

    @asynccontextmanager
    async def run(
        *script: Any,
        store: Store | None = None,
        character: Character | None = None,
        plugins: Sequence[Plugin] = (),
        is_at_rest: bool = False,
        **settings: str,
    ) -> AsyncIterator[XHarness]:
        says = script[0] if script and callable(script[0]) else list(script)
        model = ScriptedModel(says or (lambda request: model_answer("Noted.")))
        values = {
            **emulator.environment,
            "BOT_DATA_DIR": str(tmp_path),
            "AI_NOTICE": "off",
            "X_TIME_ZONE": "UTC",
            "X_MONTHLY_READS": "10000",
            **settings,
        }
        plan = AgentConfig(
            character or Character(name="Ada"),
            (*bundled_plugins(), *plugins, model.plugin),
            Settings([Layer("the test", values)]),
            store or InMemoryStore(clock.now),
            clock.now,
            is_idle=is_at_rest,
        )
        async with Runtime([plan]) as runtime:
            adapter = XAdapter(runtime.handles, time_source=clock.time_source)
            await runtime.connect(adapter)
            harness = XHarness(runtime, adapter, emulator, clock)
            if values.get("X_REPLY_ENABLE") != "false":
                await harness.wait_idle()
            yield harness

    return run


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """Return the URL of a server that accepts requests and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
