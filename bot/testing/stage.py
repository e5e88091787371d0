"""A running agent to talk to in a test: everything real but the platform and the model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.agent import Agent
from bot.concurrency.clock import Clock, system_clock
from bot.domain.character import Character
from bot.domain.content import Content
from bot.domain.ledger import Receipt
from bot.errors import PluginError
from bot.plugin_system.loading import BOOTSTRAP, find_plugin
from bot.plugin_system.plugin import Plugin
from bot.runtime.agent_runtime import Blueprint, Resident
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.store.protocols import Store
from bot.testing.adapter import RecordingAdapter
from bot.testing.making import make_arrival
from bot.testing.model import ScriptedModel


@dataclass(frozen=True, slots=True)
class Stage:
    """An agent that runs, the model that writes for it and the platform it speaks through."""

    resident: Resident
    model: ScriptedModel
    adapter: RecordingAdapter

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self.resident.agent

    @property
    def texts(self) -> list[str]:
        """What it has said so far."""
        return self.adapter.texts

    async def put(self, text: str | Content, **details: Any) -> Receipt:
        """Hand it a message, as `make_arrival` makes one, without waiting for what becomes of it."""
        return await self.resident.inbox.put(make_arrival(text, at=self.agent.clock(), **details))

    async def say(self, text: str | Content, **details: Any) -> Receipt:
        """Hand it a message and wait for its outcome and for what it says to be sent."""
        receipt = await self.put(text, **details)
        settled = await self.resident.inbox.settled(receipt.id)
        await self.agent.outbox.drain(5.0)
        return settled


@asynccontextmanager
async def on_stage(
    *plugins: Plugin,
    model: ScriptedModel | None = None,
    character: Character | None = None,
    settings: Mapping[str, str] | None = None,
    adapter: RecordingAdapter | None = None,
    store: Store | None = None,
    clock: Clock = system_clock,
    folder: Path | None = None,
) -> AsyncIterator[Stage]:
    """Run an agent with bootstrap, these plugins and a scripted model, as long as the block lasts.

    What a plugin requires comes with it, where it is installed.
    """
    model, adapter = model or ScriptedModel(), adapter or RecordingAdapter()
    character = character or Character(name="Ada")
    layers = [Layer("the test", settings or {})]
    brought = (*_with_required(plugins), model.plugin)
    plan = Blueprint(character, brought, Settings(layers), store, clock, folder)
    async with Runtime([plan], is_strict=True) as runtime:
        await runtime.connect(adapter)
        yield Stage(runtime.residents[0], model, adapter)


def _with_required(plugins: Sequence[Plugin]) -> list[Plugin]:
    """Put bootstrap and whatever they require before these plugins."""
    given = {plugin.name for plugin in plugins}
    required = [BOOTSTRAP, *(name for plugin in plugins for name in plugin.requires)]
    found = []
    for name in dict.fromkeys(name for name in required if name not in given):
        plugin = find_plugin(name)
        if plugin is None:
            raise PluginError(f"the {name} plugin is not installed")
        found.append(plugin)
    return [*found, *plugins]
