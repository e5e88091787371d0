"""An emulated Discord for every test."""

from collections.abc import AsyncIterator

import pytest

from adapters.discord.emulator import Emulator
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.tls import HOST

ELSEWHERE = ("discord.test", "cdn.discord.test")  # to which only a proxy leads


@pytest.fixture
async def server() -> AsyncIterator[EmulatedServer]:
    """Run an emulated Discord with one server and one channel."""
    async with Emulator(hosts=[HOST, *ELSEWHERE]) as emulator:
        yield EmulatedServer(emulator)
        bot_said = [one.message for one in emulator.recorder.messages if "nonce" in one.message]
        assert all(one["allowed_mentions"]["parse"] == [] for one in bot_said)  # G-S8: in every test
