"""Rules of gathering: together, soon, and all of it at the end."""

import asyncio
from collections.abc import Sequence

import pytest

from bot.concurrency import tasks as module
from bot.concurrency.tasks import Batcher


async def test_what_comes_within_a_moment_is_handled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 0)
    handled: asyncio.Queue[Sequence[int]] = asyncio.Queue()
    async with Batcher(handled.put, label="numbers") as numbers:
        numbers.add(1)
        numbers.add(2)
        assert await handled.get() == [1, 2]
        numbers.add(3)
        assert await handled.get() == [3]


async def test_at_the_end_what_is_left_is_handled_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 3600)
    handled: asyncio.Queue[Sequence[int]] = asyncio.Queue()
    async with Batcher(handled.put, label="numbers") as numbers:
        numbers.add(1)
    assert handled.get_nowait() == [1]


async def test_what_cannot_be_handled_is_lost_and_told_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 0)
    tried: asyncio.Queue[Sequence[int]] = asyncio.Queue()

    async def handle(numbers: Sequence[int]) -> None:
        await tried.put(numbers)
        raise OSError("locked")

    caplog.set_level("INFO")
    async with Batcher(handle, label="numbers") as numbers:
        numbers.add(1)
        assert await tried.get() == [1]
        numbers.add(2)
        assert await tried.get() == [2]
    assert "1 numbers are lost: locked" in caplog.text
