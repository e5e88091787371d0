"""Batches: items that come together are handled together, and all of them at the end."""

import asyncio
from collections.abc import Sequence

import pytest

from bot.concurrency import tasks as module
from bot.concurrency.tasks import Batcher


async def test_items_added_shortly_after_each_other_are_a_single_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 0)
    handled: asyncio.Queue[Sequence[int]] = asyncio.Queue()
    async with Batcher(handled.put, label="numbers") as numbers:
        numbers.add(1)
        numbers.add(2)
        assert await handled.get() == [1, 2]
        numbers.add(3)
        assert await handled.get() == [3]


async def test_the_end_of_the_context_flushes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 3600)
    handled: asyncio.Queue[Sequence[int]] = asyncio.Queue()
    async with Batcher(handled.put, label="numbers") as numbers:
        numbers.add(1)
    assert handled.get_nowait() == [1]


async def test_a_batch_that_fails_is_logged_and_the_next_is_handled(
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


async def test_a_flush_passes_on_at_once_also_what_its_cancelled_caller_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_DELAY_SECONDS", 3600)
    handled, may_end = list[int](), asyncio.Event()

    async def handle(numbers: Sequence[int]) -> None:
        await may_end.wait()
        handled.extend(numbers)

    async with Batcher(handle, label="numbers") as numbers:
        numbers.add(1)
        cancelled = asyncio.create_task(numbers.flush())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        numbers.add(2)
        may_end.set()
        await numbers.flush()
        assert handled == [1, 2]
