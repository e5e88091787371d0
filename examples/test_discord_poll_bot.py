"""Tests of a bot with discord.py against the emulator of Discord."""

import asyncio
from collections.abc import AsyncIterator

from adapters.discord.library import discord  # first, so that it does not warn of `audioop` on Python 3.11 and 3.12

# isort: split
import pytest
import yarl
from discord_poll_bot import PollBot, intents

from bot.testing import EmulatedChat, running_emulator


@pytest.fixture
async def chat(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmulatedChat]:
    """Run the emulator, and the bot on it."""
    async with running_emulator("discord", "Poll") as emulator:
        monkeypatch.setattr(discord.http.Route, "BASE", f"{emulator.url}/api/v10")
        gateway = yarl.URL(f"{emulator.url}/gateway/")
        monkeypatch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", gateway.with_scheme("ws"))
        async with PollBot(intents=intents) as bot:
            running = asyncio.create_task(bot.start(emulator.settings["DISCORD_API_TOKEN"]))
            yield emulator
            await bot.close()
            await running


async def test_a_poll_is_posted_with_two_reactions(chat: EmulatedChat) -> None:
    await chat.say("!poll Tea or coffee?", room="#general")
    assert await chat.wait_for_answers(room="#general") == ["Poll: Tea or coffee?"]
    await chat.wait_until(lambda: len(chat.messages("#general")[-1].reactions) == 2)
    assert [emoji for emoji, _ in chat.messages("#general")[-1].reactions] == ["👍", "👎"]


async def test_a_poll_without_a_question_is_explained_in_a_reply(chat: EmulatedChat) -> None:
    await chat.say("!poll")
    await chat.wait_for_answers()
    command, answer = chat.messages()
    assert answer.text.startswith("Write the question")
    assert answer.reply_to == command.id
