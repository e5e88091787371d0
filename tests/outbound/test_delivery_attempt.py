"""One attempt to send a part."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import inf, nan

import pytest

from bot.adapter.adapter import Adapter
from bot.domain.content import Content
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import DeliveryHeld, DeliveryUnknown, NotSent, Undeliverable
from bot.outbound import sender as attempt_module
from bot.outbound.sender import DeliveryAttempt, attempt_delivery, retry_delay

PART = Delivery(
    "part",
    new_id(),
    new_id(),
    new_id(),
    "test",
    "account",
    "lobby",
    0,
    Content(text="Hello."),
    datetime(2026, 5, 4, tzinfo=UTC),
)


class AnsweringAdapter(Adapter):
    """Delivers with one function and reconciles with the other."""

    platform = "test"

    def __init__(self, answer: Callable[[], Awaitable[str]]) -> None:
        self._answer = answer

    async def deliver(self, delivery: Delivery) -> str:
        return await self._answer()


def raising(error: BaseException) -> AnsweringAdapter:
    async def answer() -> str:
        raise error

    return AnsweringAdapter(answer)


async def test_a_sent_part_has_the_id_of_the_platform() -> None:
    async def answer() -> str:
        return "x1"

    assert await attempt_delivery(AnsweringAdapter(answer), PART, False) == DeliveryAttempt(DeliveryState.SENT, "x1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotSent("busy", retry_after=64.5), DeliveryAttempt(DeliveryState.PENDING, "", "busy", 64.5)),
        (NotSent("refused"), DeliveryAttempt(DeliveryState.PENDING, "", "refused")),
        (Undeliverable("blocked"), DeliveryAttempt(DeliveryState.FAILED, "", "blocked")),
        (DeliveryUnknown("reset"), DeliveryAttempt(DeliveryState.ATTEMPTING, "", "reset")),
        (DeliveryUnknown("busy", retry_after=7), DeliveryAttempt(DeliveryState.ATTEMPTING, "", "busy", 7)),
        (DeliveryHeld("no way to ask"), DeliveryAttempt(DeliveryState.UNKNOWN, "", "no way to ask")),
        (ValueError("no JSON"), DeliveryAttempt(DeliveryState.ATTEMPTING, "", "ValueError: no JSON")),
        (asyncio.CancelledError(), DeliveryAttempt(DeliveryState.ATTEMPTING, "", "the adapter cancelled itself")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_each_error_maps_to_a_delivery_state(error: BaseException, expected: DeliveryAttempt) -> None:
    assert await attempt_delivery(raising(error), PART, False) == expected


async def test_a_timeout_of_the_adapter_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "ATTEMPT_TIMEOUT", 0)

    async def answer() -> str:
        await asyncio.Event().wait()
        return "never"

    assert (await attempt_delivery(AnsweringAdapter(answer), PART, False)).state is DeliveryState.ATTEMPTING


async def test_cancellation_is_not_an_outcome() -> None:
    started = asyncio.Event()

    async def answer() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.ensure_future(attempt_delivery(AnsweringAdapter(answer), PART, False))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_reconciliation_the_part_is_held() -> None:
    found = await attempt_delivery(raising(AssertionError("it must not be sent")), PART, True)

    assert found.state is DeliveryState.UNKNOWN
    assert PART.id in found.cause


def test_delays_between_attempts_grow_to_a_minute() -> None:
    assert [retry_delay(attempts) for attempts in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert retry_delay(10_000_000) == 60


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(0, 0), (0.5, 0.5), (64.57, 64.57), (3600, 3600), (1e300, 86_400), (nan, 1), (inf, 1), (-1, 1)],
)
def test_a_requested_delay_is_respected_up_to_a_limit(asked: float, expected: float) -> None:
    assert retry_delay(1, asked) == expected


def test_a_requested_delay_of_zero_is_replaced_after_a_few_attempts() -> None:
    assert [retry_delay(attempts, 0) for attempts in (1, 5, 6)] == [0, 0, 32]
