"""pytest fixture of the emulator for the tests of plugins."""

from collections.abc import AsyncIterator

import pytest

from adapters.telegram.emulator.server import Emulator


@pytest.fixture
async def telegram_emulator() -> AsyncIterator[Emulator]:
    """Run an emulator for the test; `settings` returns the variables that connect a character to it."""
    async with Emulator() as emulator:
        yield emulator
