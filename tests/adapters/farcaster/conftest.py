"""The emulated hub, and a character that uses it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.farcaster.adapter import FarcasterAdapter
from adapters.farcaster.emulator import Emulator
from bot.platform import AgentHandle, TimeSource
from bot.store import Store
from tests.adapters.posting import PostingHarness, run_posting


class FarcasterHarness(PostingHarness[Emulator]):
    """A running character on the emulated hub."""

    async def settle(self) -> None:
        """Wait until two further looks for casts have begun, and what was read is answered and sent."""
        looks = self.emulator.count_looks()
        await self.emulator.wait_until(lambda: self.emulator.count_looks() >= looks + 2)
        await self.finish()


RunFarcaster = Callable[..., AbstractAsyncContextManager[FarcasterHarness]]


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


async def sleep_shortly(seconds: float) -> None:
    """Return once others have run: a test does not wait for the interval between two looks."""
    await TimeSource().sleep(min(seconds, 0.01))


@pytest.fixture
def run_farcaster(emulator: Emulator, tmp_path: Path) -> RunFarcaster:
    """Return a context manager that runs a character on the emulated hub."""

    @asynccontextmanager
    async def run(*script: Any, store: Store | None = None, **settings: str) -> AsyncIterator[FarcasterHarness]:
        def build(handle: AgentHandle) -> FarcasterAdapter:
            return FarcasterAdapter([handle], time_source=TimeSource(sleep=sleep_shortly))

        values = {**emulator.environment, "BOT_DATA_DIR": str(tmp_path), **settings}
        async with run_posting(script, values, store, build) as (harness, adapter):
            yield FarcasterHarness(harness, adapter, emulator)

    return run
