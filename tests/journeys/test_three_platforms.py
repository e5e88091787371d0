"""One character and one person on three platforms at once: an outage of one is felt on no other."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar, Self

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import Limits as DiscordLimits
from adapters.discord.emulator import Emulator as DiscordEmulator
from adapters.discord.emulator import Fault as DiscordFault
from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits as TelegramLimits
from adapters.telegram.emulator import Emulator as TelegramEmulator
from adapters.telegram.emulator import Fault as TelegramFault
from adapters.x.adapter import XAdapter
from adapters.x.emulator import Emulator as XEmulator
from adapters.x.emulator import Fault as XFault
from adapters.x.emulator.server import NEUTRAL_SETTINGS, FaultKind
from bot import AgentConfig, Character, Runtime, Settings, SettingsModel
from bot.platform import Adapter, AdapterSpec, AgentHandle, Delivery, TimeSource
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap

ALWAYS = 1_000_000
WAIT_SECONDS = 60.0


async def shorter_sleep(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.2))


class Platform(ABC):
    """An emulated platform on which Kim writes to the bot."""

    name: ClassVar[str]
    settings: Mapping[str, str]

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *error: object) -> None: ...

    @abstractmethod
    def build_adapter(self, handles: Sequence[AgentHandle]) -> Adapter: ...

    @abstractmethod
    async def write(self, number: int) -> None:
        """Write to the bot as Kim."""

    @abstractmethod
    async def go_down(self, *, is_hanging: bool) -> None:
        """Answer no call any more: let them wait, or break their connections."""

    @abstractmethod
    def come_back(self) -> None: ...

    @abstractmethod
    def answers(self) -> list[str]:
        """Return what the bot has written."""

    async def wait_for(self, count: int) -> None:
        """Wait until the bot has written so many messages."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.answers()) < count:  # noqa: ASYNC110  # the three emulators have no event in common
                await asyncio.sleep(0.02)


class Discord(Platform):
    name = "discord"

    def __init__(self) -> None:
        self._emulator = DiscordEmulator()

    async def __aenter__(self) -> Self:
        await self._emulator.__aenter__()
        bot, self._kim = self._emulator.add_bot("Ada", "only-for-tests"), self._emulator.state.add_user("Kim")
        self._channel = self._emulator.state.open_direct_channel(bot, self._kim)
        self.settings = {"DISCORD_API_TOKEN": "only-for-tests", "DISCORD_API_BASE_URL": self._emulator.url}
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    def build_adapter(self, handles: Sequence[AgentHandle]) -> Adapter:
        limits = DiscordLimits(guild_ready_timeout=0.02, request_timeout=1.0, sleep=shorter_sleep)
        return DiscordAdapter(handles, limits=limits)

    async def write(self, number: int) -> None:
        await self._emulator.recorder.wait_until(lambda: self._emulator.recorder.counts["ready"] > 0)
        await self._emulator.people.say(self._channel, self._kim, f"hello {number}")

    async def go_down(self, *, is_hanging: bool) -> None:
        match = "/api/" if is_hanging else ".*"  # a gateway that hangs is waited for a minute
        self._emulator.faults.append(DiscordFault(match, times=ALWAYS, is_hanging=is_hanging))
        await self._emulator.gateway.drop()

    def come_back(self) -> None:
        self._emulator.faults.clear()

    def answers(self) -> list[str]:
        return self._emulator.recorder.texts()


class Telegram(Platform):
    name = "telegram"

    def __init__(self) -> None:
        self._emulator = TelegramEmulator()
        self.recorder = self._emulator.recorder

    async def __aenter__(self) -> Self:
        await self._emulator.__aenter__()
        self.settings = self._emulator.settings(self._emulator.add_bot("4711:only-for-tests"))
        self._kim = self._emulator.people.add_user("Kim")
        self._chat = self._emulator.people.open_private_chat(self._kim)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    def build_adapter(self, handles: Sequence[AgentHandle]) -> Adapter:
        limits = TelegramLimits(response_timeout=1.0, poll_seconds=1, grace_seconds=1.0, max_retry_delay=0.5)
        return TelegramAdapter(handles, limits=limits)

    async def write(self, number: int) -> None:
        self._emulator.people.say(self._chat, self._kim, f"hello {number}")

    async def go_down(self, *, is_hanging: bool) -> None:
        self._emulator.faults.append(TelegramFault("*", times=ALWAYS, is_hanging=is_hanging))

    def come_back(self) -> None:
        self._emulator.faults.clear()

    def answers(self) -> list[str]:
        return self._emulator.recorder.texts()


class X(Platform):
    name = "x"

    def __init__(self) -> None:
        self._emulator = XEmulator()

    async def __aenter__(self) -> Self:
        await self._emulator.__aenter__()
        self.settings = {**NEUTRAL_SETTINGS, **self._emulator.environment}
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    def build_adapter(self, handles: Sequence[AgentHandle]) -> Adapter:
        return XAdapter(handles, time_source=TimeSource(sleep=shorter_sleep))

    async def write(self, number: int) -> None:
        self._emulator.say("kim", f"@greenroom_bot hello {number}")

    async def go_down(self, *, is_hanging: bool) -> None:
        endpoints = ("GET /2/users/me", "GET /2/users/:id/mentions", "GET /2/users/:id/tweets", "POST /2/tweets")
        self._emulator.add_faults(*(XFault(name, FaultKind.CUT) for name in endpoints for _ in range(1000)))

    def come_back(self) -> None:
        self._emulator.faults.clear()

    def answers(self) -> list[str]:
        return self._emulator.bot_texts


@asynccontextmanager
async def on_all() -> AsyncIterator[list[Platform]]:
    """Run the bot on three emulated platforms."""
    async with AsyncExitStack() as stack:
        platforms: list[Platform] = [await stack.enter_async_context(kind()) for kind in (Discord, Telegram, X)]
        values = {name: value for platform in platforms for name, value in platform.settings.items()}
        settings = Settings([Layer("the test", {**values, "STREAMING": "false", "AI_NOTICE": "off"})])
        model = ScriptedModel(model_answer("Aye."))
        config = AgentConfig(Character(name="Ada"), (bootstrap, model.plugin), settings, InMemoryStore())
        runtime = await stack.enter_async_context(Runtime([config]))
        for platform in platforms:
            await runtime.connect(platform.build_adapter(runtime.handles))
        yield platforms


@pytest.mark.long
@pytest.mark.parametrize("is_hanging", [True, False], ids=["hanging", "reset"])
async def test_while_two_platforms_are_down_the_third_answers_and_later_all_do(is_hanging: bool) -> None:
    async with on_all() as platforms:
        for platform in platforms:
            await platform.write(0)
        for platform in platforms:
            await platform.wait_for(1)
        for number, working in enumerate(platforms, 1):
            down = [platform for platform in platforms if platform is not working]
            for platform in down:
                await platform.go_down(is_hanging=is_hanging)
            for platform in (*down, working):
                await platform.write(number)
            await working.wait_for(number + 1)
            assert all(len(platform.answers()) == number for platform in down)
            for platform in down:
                platform.come_back()
            for platform in down:
                await platform.wait_for(number + 1)
        for platform in platforms:
            assert len(platform.answers()) == 4, platform.name  # each message once


class Slow(Adapter):
    """A platform that does not finish connecting before `may_connect` is set."""

    platform = "slow"

    def __init__(self, may_connect: asyncio.Event) -> None:
        self._may_connect = may_connect

    async def __aenter__(self) -> Self:
        await self._may_connect.wait()
        return self

    async def deliver(self, delivery: Delivery) -> str:
        return "1"


async def test_no_platform_waits_at_the_start_until_another_platform_is_connected() -> None:
    may_connect = asyncio.Event()
    async with Discord() as discord:
        settings = Settings([Layer("the test", {**discord.settings, "STREAMING": "false", "AI_NOTICE": "off"})])
        model = ScriptedModel(model_answer("Aye."))
        config = AgentConfig(Character(name="Ada"), (bootstrap, model.plugin), settings, InMemoryStore())
        specs = [
            AdapterSpec("slow", lambda handles: Slow(may_connect), SettingsModel),
            AdapterSpec("discord", discord.build_adapter, SettingsModel),
        ]

        async def run() -> None:
            async with Runtime([config], specs):
                await discord.wait_for(1)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run())
            await discord.write(0)
            await discord.wait_for(1)
            may_connect.set()
