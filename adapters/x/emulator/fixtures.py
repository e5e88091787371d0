"""The emulated X as a pytest fixture for plugin tests."""

from collections.abc import AsyncIterator

import pytest

from adapters.x.emulator.server import Emulator


@pytest.fixture
async def x_emulator() -> AsyncIterator[Emulator]:
    """Run an emulated X for one test; `environment` has the variables of a bot that uses it."""
    async with Emulator() as emulator:
        yield emulator
