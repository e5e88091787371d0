"""Harness: a character on a real Synapse with a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.matrix.adapter import MatrixAdapter, open_matrix
from bot import AgentConfig, Character, Receipt, Runtime, Settings
from bot.models import Purpose, TextRequest
from bot.pipeline import process_message
from bot.prompts import parse_history
from bot.settings import Layer
from bot.store import InMemoryStore, Store
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.matrix.synapse import Person, Synapse, is_installed, running_synapse

WAIT_TIMEOUT, POLL_SECONDS = 60.0, 0.05


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    """Run a server for all tests of the process."""
    if not is_installed():
        pytest.skip("no Synapse here: `make .synapse` installs it")
    with running_synapse(tmp_path_factory.mktemp("synapse")) as server:
        yield server


def echo(request: TextRequest) -> str:
    """Echo the last message, and decide to answer every message that the rules leave open."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>why not</reasoning><action>RESPOND</action></response>"
    lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    return model_answer(f"You said: {lines[-1]}" if lines else "Hello.")


def matrix_settings(bot: Person) -> dict[str, str]:
    """Return the variables that connect a character to an account, which every local user may invite."""
    return {
        "MATRIX_HOMESERVER": bot.server.url,
        "MATRIX_USER": bot.user_id,
        "MATRIX_TOKEN": bot.token,
        "MATRIX_ALLOWED_INVITERS": "*:localhost",
    }


@dataclass
class MatrixHarness:
    """A running character with its account, and a person on the same server."""

    runtime: Runtime
    adapter: MatrixAdapter
    bot: Person
    kim: Person
    model: ScriptedModel

    @property
    def store(self) -> Store:
        return self.runtime.agents[0].agent.store

    async def texts(self, room_id: str, number: int) -> list[str]:
        """Wait until the bot has sent so many messages to a room, and return their bodies."""
        return [event["content"]["body"] for event in await self.kim.wait_for(room_id, self.bot.user_id, number)]

    async def receipts(self) -> list[Receipt]:
        """Return all receipts with their outcomes, oldest first."""
        inbox = self.runtime.agents[0].inbox
        receipts = await self.store.ledger.receipts(limit=1000)
        return [await inbox.wait_outcome(receipt.id) for receipt in reversed(receipts)]


OpenHarness = Callable[..., AbstractAsyncContextManager[MatrixHarness]]


async def wait_until(
    is_done: Callable[[], Awaitable[object]], *, timeout: float = WAIT_TIMEOUT, pause: float = POLL_SECONDS
) -> None:
    """Wait until what a server of others and the bot do has happened: neither tells of it."""
    async with asyncio.timeout(timeout):
        while True:
            if await is_done():
                return
            await asyncio.sleep(pause)


@asynccontextmanager
async def run_ada(
    bot: Person,
    kim: Person,
    script: Any = echo,
    *,
    settings: Mapping[str, str] | None = None,
    rules: Mapping[str, Any] | None = None,
    store: InMemoryStore | None = None,
) -> AsyncIterator[MatrixHarness]:
    """Run Ada with an account while the block runs."""
    model = ScriptedModel(script)
    values = {**matrix_settings(bot), "STREAMING": "false", "AI_NOTICE": "off", **(settings or {})}
    character = Character(name="Ada", settings=dict(rules or {}))
    layers = [Layer("the test", values)]
    plan = AgentConfig(character, (bootstrap, model.plugin), Settings(layers), store or InMemoryStore())
    async with Runtime([plan]) as runtime:
        adapter = open_matrix(runtime.handles)
        await runtime.connect(adapter)
        yield MatrixHarness(runtime, adapter, bot, kim, model)


@pytest.fixture(autouse=True)
def answer_edits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer edits without a pause."""
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)


@pytest.fixture
async def bot(synapse: Synapse) -> Person:
    return await synapse.register("Ada")


@pytest.fixture
async def kim(synapse: Synapse) -> Person:
    return await synapse.register("Kim")


@pytest.fixture
async def harness(bot: Person, kim: Person) -> AsyncIterator[MatrixHarness]:
    async with run_ada(bot, kim) as item:
        yield item
