"""Harness: a character on an emulated Telegram with a scripted model."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from adapters.telegram.adapter import TelegramAdapter, open_telegram
from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator
from adapters.telegram.emulator.people import People
from adapters.telegram.emulator.server import CallCheck
from adapters.telegram.emulator.state import BotRecord
from bot import AgentConfig, Character, Plugin, Receipt, Runtime, Settings
from bot.domain.ledger import EventOrigin
from bot.models import Purpose, TextRequest
from bot.pipeline import process_message
from bot.platform import Delivery
from bot.prompts import parse_history
from bot.settings import Layer
from bot.store import InMemoryStore, Store
from bot.testing import ManualClock, ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.telegram.api_schema import ApiSchema

TOKEN = "1000001:not-a-real-token"
START = datetime(2026, 6, 1, 12, tzinfo=UTC)
TYPING_SECONDS, WEBHOOK_CHECK_SECONDS = Limits().typing_seconds, Limits().webhook_check_seconds
DESCRIPTION = "TELEGRAM_API_DESCRIPTION"  # path of the published description, if available
DEFAULT_DESCRIPTION_PATH = Path(__file__).parents[4] / "shared" / "specs" / "telegram-api.min.json"


class SkippingClock(ManualClock):
    """A clock that skips every sleep at once, except sleeps of `held` seconds, which wait for `released`."""

    def __init__(
        self, elapsed: float = 0.0, held: frozenset[float] = frozenset({TYPING_SECONDS, WEBHOOK_CHECK_SECONDS})
    ) -> None:
        super().__init__(START + timedelta(seconds=elapsed))
        self.held = held
        self.pauses: list[float] = []
        self.released = asyncio.Event()

    @property
    def elapsed(self) -> float:
        """The seconds since START."""
        return (self.now() - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds in self.held:
            await self.released.wait()
        self.advance(seconds)
        await asyncio.sleep(0)


def echo(request: TextRequest) -> str:
    """Echo the last message, and decide to answer every message."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>why not</reasoning><action>RESPOND</action></response>"
    lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    return model_answer(f"You said: {lines[-1]}" if lines else "Hello.")


@dataclass
class TelegramHarness:
    """A running character and the emulator to which it is connected."""

    runtime: Runtime
    telegram: Emulator
    bot: BotRecord
    adapter: TelegramAdapter
    model: ScriptedModel
    clock: SkippingClock

    @property
    def people(self) -> People:
        return self.telegram.people

    @property
    def store(self) -> Store:
        return self.runtime.agents[0].agent.store

    async def wait_texts(self, count: int, chat: Mapping[str, Any] | None = None) -> list[str]:
        """Wait until the bot has sent `count` messages and return their texts."""
        number = chat["id"] if chat is not None else None
        await self.telegram.recorder.wait_until(lambda: len(self.telegram.recorder.texts(number)) >= count)
        return self.telegram.recorder.texts(number)

    async def wait_confirmed(self) -> None:
        """Wait until the bot has confirmed every update."""
        await self.telegram.recorder.wait_until(lambda: not self.bot.queue)

    async def wait_receipts(self) -> list[Receipt]:
        """Wait until every message has its outcome and return their receipts, oldest first."""
        await self.wait_confirmed()
        inbox = self.runtime.agents[0].inbox
        receipts = await self.store.ledger.receipts(limit=1000)
        messages = [item for item in reversed(receipts) if item.origin is not EventOrigin.COMMAND]
        return [await inbox.wait_outcome(receipt.id) for receipt in messages]

    async def wait_deliveries(self) -> list[Delivery]:
        """Wait until nothing is pending and return all deliveries, oldest first."""
        await self.wait_receipts()
        await self.runtime.agents[0].agent.outbox.drain(60.0)
        deliveries = await self.store.ledger.deliveries()
        return sorted(deliveries, key=lambda part: part.seq)


OpenHarness = Callable[..., AbstractAsyncContextManager[TelegramHarness]]


def load_schema() -> ApiSchema | None:
    """Return the published description of the Bot API; None where it is not available."""
    path = Path(os.environ.get(DESCRIPTION, DEFAULT_DESCRIPTION_PATH))
    return ApiSchema.load(path) if path.is_file() else None


def description() -> CallCheck | None:
    schema = load_schema()
    return schema.find_problems if schema is not None else None


@asynccontextmanager
async def run_character(
    telegram: Emulator,
    script: Any = echo,
    *,
    settings: Mapping[str, str] | None = None,
    rules: Mapping[str, Any] | None = None,
    store: Any = None,
    clock: SkippingClock | None = None,
    limits: Limits | None = None,
    reads_all: bool = True,
    plugins: tuple[Plugin, ...] = (),
    token: str = TOKEN,
) -> AsyncIterator[TelegramHarness]:
    """Run Ada on an emulator while the block runs."""
    bot = telegram.state.bots.get(token) or telegram.add_bot(token, reads_all=reads_all)
    model, clock = ScriptedModel(script), clock or SkippingClock()
    values = {**telegram.settings(bot), "STREAMING": "false", "AI_NOTICE": "off", **(settings or {})}
    layers = [Layer("the test", values)]
    character = Character(name="Ada", settings=dict(rules or {}))
    plan = AgentConfig(character, (bootstrap, model.plugin, *plugins), Settings(layers), store or InMemoryStore())
    async with Runtime([plan]) as runtime:
        open_telegram(runtime.handles)  # what `bot run` does, and what it refuses
        adapter = TelegramAdapter(runtime.handles, limits=limits, time_source=clock.time_source)
        await runtime.connect(adapter)
        yield TelegramHarness(runtime, telegram, bot, adapter, model, clock)


@asynccontextmanager
async def run_harness(script: Any = echo, *, is_checked: bool = True, **details: Any) -> AsyncIterator[TelegramHarness]:
    """Run an emulator that checks calls against the published description, with Ada on it."""
    checks = description() if is_checked else None
    async with Emulator(find_problems=checks) as telegram, run_character(telegram, script, **details) as harness:
        yield harness
        assert telegram.recorder.problems == []


@pytest.fixture(autouse=True)
def answer_edits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer edits without a pause."""
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)


@pytest.fixture
def open_harness() -> OpenHarness:
    return run_harness


@pytest.fixture
async def harness() -> AsyncIterator[TelegramHarness]:
    async with run_harness() as item:
        yield item
