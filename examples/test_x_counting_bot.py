"""Tests of a bot with tweepy, which waits for each response in a thread, against the emulator of X."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import requests
import tweepy
from requests.adapters import HTTPAdapter
from x_counting_bot import CountingBot

from bot.testing import EmulatedChat, running_emulator


class ToEmulator(HTTPAdapter):
    """Sends to the emulator what is meant for X, whose host name stays in the request because it is signed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request."""
        request.headers["Host"] = urlsplit(request.url).netloc
        request.url = self.url + request.path_url
        return super().send(request, **options)


def connect(chat: EmulatedChat) -> CountingBot:
    """Return the bot with a client of the emulator."""
    client = tweepy.Client(
        consumer_key=chat.settings["X_API_KEY"],
        consumer_secret=chat.settings["X_API_SECRET"],
        access_token=chat.settings["X_ACCESS_TOKEN"],
        access_token_secret=chat.settings["X_ACCESS_TOKEN_SECRET"],
    )
    client.session.mount("https://", ToEmulator(chat.url))
    return CountingBot(client)


async def test_each_mention_is_answered_once() -> None:
    async with running_emulator("x", "Counter") as chat:
        bot = await asyncio.to_thread(connect, chat)
        await chat.say(f"{chat.mention} how long is this?")
        assert await asyncio.to_thread(bot.answer_mentions) == 1
        assert await asyncio.to_thread(bot.answer_mentions) == 0
        assert await chat.wait_for_answers() == ["26 characters, counted by @counter"]
        question, answer = chat.messages()
        assert answer.reply_to == question.id
