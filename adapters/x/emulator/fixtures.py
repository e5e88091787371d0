"""The emulated X as a fixture for the tests of plugins."""

from collections.abc import AsyncIterator

import pytest

from adapters.x.emulator.server import Emulator


@pytest.fixture
async def x_emulator() -> AsyncIterator[Emulator]:
    """Give an X on this machine, as long as the test lasts; `environment` leads a bot to it."""
    async with Emulator() as emulator:
        yield emulator
