"""The emulated Mastodon, and a character that uses it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.mastodon.adapter import MastodonAdapter
from adapters.mastodon.emulator import Emulator
from bot.platform import AgentHandle
from bot.store import Store
from tests.adapters.posting import PostingHarness, run_posting


class MastodonHarness(PostingHarness[Emulator]):
    """A running character on the emulated Mastodon."""

    async def settle(self) -> None:
        """Wait until every notification is read, and what it asked for is answered and sent."""
        items = self.emulator.notifications.get(self.emulator.username, [])
        newest = int(items[-1]["id"]) if items else 0
        await self.emulator.wait_until(lambda: any(bound >= newest for bound in self.bounds()))
        await self.finish()

    def bounds(self) -> list[int]:
        """Return the notification after which each call asked for newer ones."""
        calls = self.emulator.calls
        return [int(call.query.get("min_id", "-1")) for call in calls if call.endpoint == "GET /api/v1/notifications"]


RunMastodon = Callable[..., AbstractAsyncContextManager[MastodonHarness]]


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


@pytest.fixture
def run_mastodon(emulator: Emulator, tmp_path: Path) -> RunMastodon:
    """Return a context manager that runs a character on the emulated Mastodon."""

    @asynccontextmanager
    async def run(*script: Any, store: Store | None = None, **settings: str) -> AsyncIterator[MastodonHarness]:
        def build(handle: AgentHandle) -> MastodonAdapter:
            return MastodonAdapter([handle])

        values = {**emulator.environment, "BOT_DATA_DIR": str(tmp_path), **settings}
        async with run_posting(script, values, store, build) as (harness, adapter):
            yield MastodonHarness(harness, adapter, emulator)

    return run
