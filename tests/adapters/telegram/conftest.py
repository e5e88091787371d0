"""Harness: a character on an emulated Telegram with a scripted model."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from adapters.telegram.adapter import TelegramAdapter, open_telegram
from adapters.telegram.config import Limits, TimeSource
from adapters.telegram.emulator import ApiSchema, Emulator
from adapters.telegram.emulator.people import People
from adapters.telegram.emulator.state import BotRecord
from bot import AgentConfig, Character, Plugin, Receipt, Runtime, Settings
from bot.models import Purpose, TextRequest
from bot.pipeline import process_message
from bot.platform import Delivery
from bot.prompts import parse_history
from bot.settings import Layer
from bot.store import InMemoryStore, Store
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap

TOKEN = "1000001:not-a-real-token"
START = datetime(2026, 6, 1, 12, tzinfo=UTC)
DESCRIPTION = "TELEGRAM_API_DESCRIPTION"  # path of the published description, if available
BESIDE = Path(__file__).parents[4] / "shared" / "specs" / "telegram-api.min.json"


@dataclass
class Hours:
    """Time that passes as soon as somebody waits for it, but for waits that are `held`."""

    now: float = 0.0
    held: frozenset[float] = frozenset({Limits().typing_seconds, Limits().webhook_check_seconds})
    pauses: list[float] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds in self.held:
            await self.released.wait()
        self.now += seconds
        await asyncio.sleep(0)

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now)

    @property
    def moments(self) -> TimeSource:
        return TimeSource(self.wall, lambda: self.now, self.pause)


def echo(request: TextRequest) -> str:
    """Echo the last message, and decide to answer every message."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>why not</reasoning><action>RESPOND</action></response>"
    said = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    return model_answer(f"You said: {said[-1]}" if said else "Hello.")


@dataclass
class House:
    """A running character and the emulator to which it is connected."""

    runtime: Runtime
    telegram: Emulator
    bot: BotRecord
    adapter: TelegramAdapter
    model: ScriptedModel
    hours: Hours

    @property
    def people(self) -> People:
        return self.telegram.people

    @property
    def store(self) -> Store:
        return self.runtime.agents[0].agent.store

    async def said(self, count: int, chat: Mapping[str, Any] | None = None) -> list[str]:
        """Wait until the bot has sent `count` messages and return their texts."""
        number = chat["id"] if chat is not None else None
        await self.telegram.recorder.wait_until(lambda: len(self.telegram.recorder.texts(number)) >= count)
        return self.telegram.recorder.texts(number)

    async def taken(self) -> None:
        """Wait until the bot has confirmed every update."""
        await self.telegram.recorder.wait_until(lambda: not self.bot.queue)

    async def settled(self) -> list[Receipt]:
        """Wait until every message has its outcome and return the receipts, oldest first."""
        await self.taken()
        inbox = self.runtime.agents[0].inbox
        receipts = await self.store.ledger.receipts(limit=1000)
        return [await inbox.wait_outcome(receipt.id) for receipt in reversed(receipts)]

    async def sent(self) -> list[Delivery]:
        """Wait until nothing is pending and return all deliveries, oldest first."""
        await self.settled()
        await self.runtime.agents[0].agent.outbox.drain(60.0)
        deliveries = await self.store.ledger.deliveries()
        return sorted(deliveries, key=lambda part: part.seq)


Opened = Callable[..., AbstractAsyncContextManager[House]]


def description() -> ApiSchema | None:
    path = Path(os.environ.get(DESCRIPTION, BESIDE))
    return ApiSchema.load(path) if path.is_file() else None


@asynccontextmanager
async def living(
    telegram: Emulator,
    script: Any = echo,
    *,
    settings: Mapping[str, str] | None = None,
    rules: Mapping[str, Any] | None = None,
    store: Any = None,
    hours: Hours | None = None,
    limits: Limits | None = None,
    reads_all: bool = True,
    plugins: tuple[Plugin, ...] = (),
    token: str = TOKEN,
) -> AsyncIterator[House]:
    """Run Ada on an emulator while the block runs."""
    bot = telegram.state.bots.get(token) or telegram.add_bot(token, reads_all=reads_all)
    model, hours = ScriptedModel(script), hours or Hours()
    layers = [Layer("the test", {**telegram.settings(bot), "STREAMING": "false", **(settings or {})})]
    character = Character(name="Ada", settings=dict(rules or {}))
    plan = AgentConfig(
        character, (bootstrap, model.plugin, *plugins), Settings(layers), store or InMemoryStore()
    )
    async with Runtime([plan]) as runtime:
        open_telegram(runtime.handles)  # what `bot run` does, and what it refuses
        adapter = TelegramAdapter(runtime.handles, limits=limits, time_source=hours.moments)
        await runtime.connect(adapter)
        yield House(runtime, telegram, bot, adapter, model, hours)


@asynccontextmanager
async def opened(script: Any = echo, **details: Any) -> AsyncIterator[House]:
    """Run an emulator that checks calls against the published description, with Ada on it."""
    async with Emulator(schema=description()) as telegram, living(telegram, script, **details) as house:
        yield house
        assert telegram.recorder.problems == []


@pytest.fixture(autouse=True)
def no_pace_of_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer edits without a pause."""
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)


@pytest.fixture
def open_house() -> Opened:
    return opened


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with opened() as one:
        yield one
