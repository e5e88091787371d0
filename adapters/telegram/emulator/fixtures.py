"""The emulated Telegram as a fixture for the tests of plugins."""

from collections.abc import AsyncIterator

import pytest

from adapters.telegram.emulator.server import Emulator


@pytest.fixture
async def telegram_emulator() -> AsyncIterator[Emulator]:
    """Give a Telegram on this machine, as long as the test lasts; `settings` lead a character to it."""
    async with Emulator() as emulator:
        yield emulator
