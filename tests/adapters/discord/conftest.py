"""An emulated Discord for every test."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from adapters.discord.emulator import Emulator
from adapters.discord.emulator.rest import API
from tests.adapters.api_description import find_violations, read_description
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.tls import HOST

ELSEWHERE = ("discord.test", "cdn.discord.test")  # to which only a proxy leads


class CheckedEmulator(Emulator):
    """An emulator that checks each call against Discord's OpenAPI document, if DISCORD_API_DESCRIPTION names it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.violations: list[str] = []

    def middlewares(self) -> Sequence[Middleware]:
        """Return the emulator's own, after the check."""
        return [self._check_call, *super().middlewares()]

    @web.middleware
    async def _check_call(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        description = read_description("DISCORD_API_DESCRIPTION")
        is_library = "DiscordBot" in request.headers.get("User-Agent", "")  # not a test of the emulator alone
        if description is not None and is_library and request.path.startswith(API):
            is_json = request.content_type == "application/json" and request.can_read_body
            body = await request.json() if is_json else None
            path = request.path_qs.removeprefix(API)
            self.violations += find_violations(description, request.method, path, body)
        return await handler(request)


@pytest.fixture
async def server() -> AsyncIterator[EmulatedServer]:
    """Run an emulated Discord with one server and one channel."""
    async with CheckedEmulator(hosts=[HOST, *ELSEWHERE]) as emulator:
        yield EmulatedServer(emulator)
        bot_messages = [message.message for message in emulator.recorder.messages if "nonce" in message.message]
        assert all(
            bot_message["allowed_mentions"]["parse"] == [] for bot_message in bot_messages
        )  # G-S8: in every test
        assert emulator.violations == []
