"""A running agent for tests, and inbound messages and turns for it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.concurrency.clock import Clock, system_clock
from bot.domain.character import Character
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Role, Room, World
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import Receipt
from bot.errors import PluginError
from bot.plugin_system.loading import PluginPurpose, bundled_names, find_plugin, sort_plugins
from bot.plugin_system.plugin import Plugin
from bot.runtime.agent_runtime import AgentRuntime
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.store.ledger import ProcessRole
from bot.store.protocols import Store
from bot.testing.recording_adapter import RecordingAdapter
from bot.testing.scripted_model import ScriptedModel
from bot.turn import Agent, Turn, TurnInput

PLUGIN_TEST_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class AgentHarness:
    """A running agent with its model and its adapter; valid inside `running_agent`."""

    agent_runtime: AgentRuntime
    model: ScriptedModel
    adapter: RecordingAdapter

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self.agent_runtime.agent

    @property
    def texts(self) -> list[str]:
        """The texts that the agent has sent so far."""
        return self.adapter.texts

    async def submit(self, text: str | Content, **details: Any) -> Receipt:
        """Submit a message made by `make_message`; return its receipt without waiting for the outcome."""
        return await self.agent_runtime.inbox.submit(make_message(text, sent_at=self.agent.clock(), **details))

    async def send(self, text: str | Content, **details: Any) -> Receipt:
        """Submit a message; return its final receipt after the replies are sent."""
        receipt = await self.submit(text, **details)
        closed_receipt = await self.agent_runtime.inbox.wait_outcome(receipt.id)
        await self.agent.outbox.drain(5.0)
        return closed_receipt


@asynccontextmanager
async def running_agent(
    *plugins: Plugin,
    model: ScriptedModel | None = None,
    character: Character | None = None,
    settings: Mapping[str, str] | None = None,
    adapter: RecordingAdapter | None = None,
    store: Store | None = None,
    clock: Clock = system_clock,
    folder: Path | None = None,
    role: ProcessRole = ProcessRole.ALL,
) -> AsyncIterator[AgentHarness]:
    """Run an agent with bootstrap, these plugins, the plugins they require and a scripted model.

    It sends no AI notices, unless AI_NOTICE is among the settings.

    Raises PluginError if a required plugin is not installed, for two plugins of one name and for plugins that require
    each other, as the loader does.
    """
    model, adapter = model or ScriptedModel(), adapter or RecordingAdapter()
    character = character or Character(name="Ada")
    layers = [Layer("the test", {"AI_NOTICE": "off", **(settings or {})})]
    all_plugins = sort_plugins((*add_required(plugins), model.plugin))
    config = AgentConfig(character, all_plugins, Settings(layers), store, clock, folder, role=role)
    async with Runtime([config], is_strict=True) as runtime:
        await runtime.connect(adapter)
        yield AgentHarness(runtime.agents[0], model, adapter)


@dataclass(frozen=True, slots=True)
class PluginTestResult:
    """The outcome of one test of a plugin: `failure` is what it raised; None if it passed."""

    suite: str
    test: str
    failure: BaseException | None = None


async def run_plugin_tests(plugin: Plugin) -> list[PluginTestResult]:
    """Run the `tests` of a plugin, each with a running agent of its own, and return their results.

    The plugins in its `test_requires` are loaded too. A test fails after a minute.
    """
    tested = replace(plugin, requires=(*plugin.requires, *plugin.test_requires))
    results = []
    for suite in plugin.tests:
        for test in suite.tests:
            failure: BaseException | None = None
            try:
                async with (
                    asyncio.timeout(PLUGIN_TEST_TIMEOUT),
                    running_agent(tested, settings=suite.settings) as harness,
                ):
                    await test.run(harness)
            except Exception as error:  # of the plugin or its test: the result says so
                failure = error
            results.append(PluginTestResult(suite.name, test.name, failure))
    return results


def add_required(plugins: Sequence[Plugin]) -> list[Plugin]:
    """Return the plugins, preceded by the base plugin and the plugins they require."""
    given_names = {plugin.name for plugin in plugins}
    required = [*bundled_names(PluginPurpose.BASE), *(name for plugin in plugins for name in plugin.requires)]
    required_plugins = []
    for name in dict.fromkeys(name for name in required if name not in given_names):
        plugin = find_plugin(name)
        if plugin is None:
            raise PluginError(f"the {name} plugin is not installed")
        required_plugins.append(plugin)
    return [*required_plugins, *plugins]


def make_message(
    text: str | Content,
    *,
    sent_at: datetime,
    author: str = "Alice",
    room: str = "lobby",
    kind: ChannelType = ChannelType.DM,
    role: Role = Role.MEMBER,
    message_id: str = "",
    is_bot: bool = False,
    platform: str = "test",
) -> InboundMessage:
    """Return an inbound message as an adapter submits it; equal names give equal entities and rooms."""
    content = Content(text=text, source=platform) if isinstance(text, str) else text
    author_entity = Entity(derived_id(platform, "entity", author), platform, author, (author,), is_bot)
    world = World(derived_id(platform, "world"), platform, "world", "The World", {author_entity.id: role})
    room_entity = Room(derived_id(platform, "room", room), world.id, kind, platform, room, "account", room)
    external_id = message_id or new_id().hex
    event_id = f"event-{external_id}"
    return InboundMessage.build(
        world, room_entity, author_entity, content, created_at=sent_at, message_id=external_id, event_id=event_id
    )


def make_turn(agent: Agent, text: str | Content = "Hello", **details: object) -> Turn:
    """Return a turn with one message, to call an action, a provider or an evaluator directly.

    `details` are passed to `make_message`.
    """
    inbound = make_message(text, sent_at=agent.clock(), **details)  # type: ignore[arg-type]  # passed on unchanged
    receipt = Receipt(new_id(), inbound.key, inbound.room.id, inbound.author.id, inbound.message.id, agent.clock())
    turn_input = TurnInput(receipt, inbound.message, inbound.author, time.monotonic(), lambda receipt: None)
    actions = agent.catalog.actions
    return Turn(agent, new_id(), inbound.room, inbound.world, [turn_input], actions=actions)
