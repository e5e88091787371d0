"""Direct messages to the owner's accounts on the emulated platforms."""

from datetime import UTC, datetime

import pytest

from adapters.discord.emulator import Emulator as DiscordEmulator
from adapters.telegram.emulator import Emulator as TelegramEmulator
from bot.watchdog.channels import DirectChannel, NotReached, OwnerMessage
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.telegram.conftest import run_character

MESSAGE = OwnerMessage("1", "Ada: X is off.", "Ada: X is off. The keys are refused.", datetime(2026, 5, 4, tzinfo=UTC))


async def test_discord_opens_the_chat_with_the_owner() -> None:
    async with DiscordEmulator() as emulator:
        server = EmulatedServer(emulator)
        async with server.run_bot() as (harness, _):
            channel = DirectChannel([f"discord:{server.kim}"], [harness.agent], [harness.agent_runtime.handle])
            await channel.prepare()
            await channel.send(MESSAGE)
            assert emulator.recorder.texts() == [MESSAGE.text]


async def test_telegram_reaches_an_owner_who_has_written_to_the_bot_once() -> None:
    async with TelegramEmulator() as telegram, run_character(telegram) as harness:
        alice = harness.people.add_user("Alice")
        agents = [runtime.agent for runtime in harness.runtime.agents]
        channel = DirectChannel([f"telegram:{alice['id']}"], agents, harness.runtime.handles)
        with pytest.raises(NotReached, match="write to it there once"):
            await channel.send(MESSAGE)
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        await harness.wait_texts(1)
        await channel.send(MESSAGE)
        assert telegram.recorder.texts() == ["You said: Hello", MESSAGE.text]
