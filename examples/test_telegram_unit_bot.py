"""Tests of a bot with python-telegram-bot against the emulator of Telegram."""

from collections.abc import AsyncIterator

import pytest
from telegram.ext import ApplicationBuilder
from telegram_unit_bot import build

from bot.testing import EmulatedChat, running_emulator


@pytest.fixture
async def chat() -> AsyncIterator[EmulatedChat]:
    """Run the emulator, and the bot on it."""
    async with running_emulator("telegram", "Units") as emulator:
        builder = ApplicationBuilder().token(emulator.settings["TELEGRAM_BOT_TOKEN"])
        builder = builder.base_url(f"{emulator.url}/bot").base_file_url(f"{emulator.url}/file/bot")
        async with build(builder) as application:
            await application.start()
            await application.updater.start_polling()
            yield emulator
            await application.updater.stop()
            await application.stop()


async def test_miles_are_converted_by_a_command(chat: EmulatedChat) -> None:
    await chat.say("/km 26.2")
    assert await chat.wait_for_answers() == ["26.2 miles are 42.2 km"]


async def test_the_button_replaces_the_answer(chat: EmulatedChat) -> None:
    await chat.say("/km 2")
    await chat.wait_for_answers()
    await chat.press("ten times")
    await chat.wait_until(lambda: chat.messages()[-1].text == "20 miles are 32.2 km")


async def test_what_is_no_number_is_explained(chat: EmulatedChat) -> None:
    await chat.say("/km far")
    [answer] = await chat.wait_for_answers()
    assert answer.startswith("Write the miles")
