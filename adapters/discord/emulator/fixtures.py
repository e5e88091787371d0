"""The emulated Discord as a pytest fixture for plugin tests."""

from collections.abc import AsyncIterator

import pytest

from adapters.discord.emulator.server import Emulator


@pytest.fixture
async def discord_emulator() -> AsyncIterator[Emulator]:
    """Run an emulated Discord for one test; its `url` is the value of DISCORD_API_BASE_URL."""
    async with Emulator() as emulator:
        yield emulator
