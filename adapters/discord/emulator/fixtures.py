"""The emulated Discord as a fixture for the tests of plugins."""

from collections.abc import AsyncIterator

import pytest

from adapters.discord.emulator.server import Emulator


@pytest.fixture
async def discord_emulator() -> AsyncIterator[Emulator]:
    """Give a Discord on this machine, as long as the test lasts; `url` is for DISCORD_API_BASE_URL."""
    async with Emulator() as emulator:
        yield emulator
