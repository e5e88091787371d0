"""What a call may take is held back before it is made, so that many at once spend no more than one by one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import pytest

from bot.concurrency import isolation
from bot.costs.budget import Budget, Limit, Whose
from bot.costs.metering import Meter, Till
from bot.costs.prices import read_prices
from bot.domain.ids import derived_id
from bot.domain.ledger import ModelCall
from bot.errors import BudgetSpent, ModelError
from bot.event_bus import EventBus
from bot.models.handler import ModelHandler
from bot.models.router import ModelRouter
from bot.models.types import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    ModelRequest,
    ModelType,
    TextRequest,
    TextResult,
    Usage,
)
from bot.models.usage import expected
from bot.runs import Run, current_run, recorder
from bot.store.inmemory.cache_logs_costs import InMemorySpending

HERE, ANN, BO = (derived_id(name) for name in ("here", "Ann", "Bo"))
REQUEST = TextRequest("x" * 300, max_tokens=100)  # held to be 200 tokens
PRICES = ("scripted=1000/1000", "dearest=4000/4000")  # a thousand tokens are a dollar, or four


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


@dataclass
class Provider:
    """Answers once it may, and says what it has counted."""

    usage: Usage = field(default_factory=lambda: Usage(100, 100))
    asked: int = 0
    at_work: int = 0
    most_at_work: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    error: Exception | None = None

    async def answer(self, request: TextRequest) -> TextResult:
        self.asked += 1
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self.begun.release()
        try:
            await self.go.wait()
        finally:
            self.at_work -= 1
        if self.error is not None:
            raise self.error
        return TextResult("So.", "scripted", self.usage)


class Shop:
    """A router whose calls are paid for, within limits."""

    def __init__(self, provider: Provider, *limits: Limit) -> None:
        self.budget = Budget(limits, noon)
        prices = read_prices(PRICES)
        meter = Meter(InMemorySpending(), prices, self.budget, clock=noon)
        record = recorder(EventBus(), derived_id("agent"), meter.book)
        self.router = ModelRouter(record=record, reserve=Till(self.budget, prices, record).reserve)
        self.router.register(ModelHandler(ModelType.TEXT_LARGE, provider.answer, "shop"))

    async def ask(self, person: UUID | None = None) -> bool:
        """Ask once; tells whether it could be paid for."""
        with running(person):
            try:
                await self.router.text(REQUEST)
            except BudgetSpent:
                return False
        return True


@contextmanager
def running(person: UUID | None) -> Iterator[None]:
    run = Run(derived_id("run"), HERE, derived_id("message"), person) if person else None
    token = current_run.set(run)
    try:
        yield
    finally:
        current_run.reset(token)


def tokens(most: float, whose: Whose = Whose.ALL) -> Limit:
    return Limit("BUDGET_TOKENS", whose, False, most)


def dollars(most: float) -> Limit:
    return Limit("BUDGET_USD", Whose.ALL, True, most)


async def begun(provider: Provider, count: int) -> None:
    async with asyncio.timeout(60):
        for _ in range(count):
            await provider.begun.acquire()


async def test_o02_of_fifty_calls_at_once_on_a_limit_that_fits_three_three_are_made() -> None:
    provider = Provider()
    shop = Shop(provider, tokens(600))
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(shop.ask()) for _ in range(50)]
        await begun(provider, 3)
        assert provider.asked == 3
        provider.go.set()
    assert (provider.asked, provider.most_at_work) == (3, 3)
    assert sum(one.result() for one in asked) == 3


async def test_o02_what_an_answer_did_not_take_is_given_back_to_those_who_wait() -> None:
    provider = Provider(Usage(50, 10))
    shop = Shop(provider, tokens(600))
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.ask())
        await begun(provider, 3)
        provider.go.set()
    assert (provider.asked, provider.most_at_work) == (10, 3)  # 600 tokens of 60 each


async def test_o02_in_dollars_the_first_call_may_be_the_dearest_as_nobody_knows_its_model() -> None:
    provider = Provider()
    shop = Shop(provider, dollars(0.8))
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.ask())
        await begun(provider, 1)
        assert provider.asked == 1
        provider.go.set()
    assert provider.asked == 4


async def test_o02_the_last_call_of_a_day_goes_alone_and_passes_the_limit_by_a_part_of_itself() -> None:
    provider = Provider()
    provider.go.set()
    shop = Shop(provider, tokens(500))
    made = await asyncio.gather(*(shop.ask() for _ in range(50)))
    assert sum(made) == provider.asked == 3  # 600 tokens: the third had room for half of it


async def test_o02_a_limit_that_is_smaller_than_any_call_pays_for_one() -> None:
    provider = Provider()
    provider.go.set()
    shop = Shop(provider, tokens(1))
    assert [await shop.ask() for _ in range(3)] == [True, False, False]


async def test_o02_what_a_call_that_fails_held_back_is_there_for_the_next() -> None:
    provider = Provider(error=ModelError("no"))
    provider.go.set()
    shop = Shop(provider, tokens(200))
    for _ in range(5):
        with pytest.raises(ModelError, match="no"):
            await shop.ask()
    provider.error = None
    assert await shop.ask()


async def test_o02_what_a_call_that_is_called_off_held_back_is_there_for_who_waits() -> None:
    provider = Provider()
    shop = Shop(provider, tokens(300))
    first = asyncio.ensure_future(shop.ask())
    await begun(provider, 1)
    second = asyncio.ensure_future(shop.ask())
    first.cancel()
    await asyncio.wait([first])
    await begun(provider, 1)
    provider.go.set()
    assert await second


async def test_o02_what_a_call_that_is_ended_by_force_held_back_is_there_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "GRACE", 0)
    provider = Provider()
    shop = Shop(provider, tokens(300))

    async def cling() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await shop.router.text(REQUEST)

    assert await isolation.contained(cling(), what="code", deadline=0.01) == isolation.Failure(
        "no answer within 0.01 s"
    )
    provider.go.set()
    async with asyncio.timeout(60):
        assert await shop.ask()


async def test_o02_who_is_called_off_while_waiting_holds_nothing_back() -> None:
    provider = Provider()
    shop = Shop(provider, tokens(400))
    first = asyncio.ensure_future(shop.ask())
    second = asyncio.ensure_future(shop.ask())
    await begun(provider, 2)
    third = asyncio.ensure_future(shop.ask())
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.wait([third])
    provider.usage = Usage(10, 10)
    provider.go.set()
    assert await first
    assert await second
    assert all([await shop.ask() for _ in range(18)])
    assert not await shop.ask()


async def test_o02_one_persons_limit_holds_nobody_else_up() -> None:
    provider = Provider()
    shop = Shop(provider, tokens(200, Whose.PERSON))
    async with asyncio.TaskGroup() as group:
        anns = [group.create_task(shop.ask(ANN)) for _ in range(20)]
        bos = [group.create_task(shop.ask(BO)) for _ in range(20)]
        await begun(provider, 2)
        assert provider.asked == 2
        provider.go.set()
    assert [sum(one.result() for one in theirs) for theirs in (anns, bos)] == [1, 1]


async def test_a_handler_that_asks_another_model_does_not_wait_for_itself() -> None:
    provider = Provider()
    provider.go.set()
    shop = Shop(provider, tokens(300))

    async def describe(request: ImageDescriptionRequest) -> TextResult:
        return await shop.router.text(REQUEST)

    shop.router.register(ModelHandler(ModelType.IMAGE_DESCRIPTION, describe, "shop"))
    async with asyncio.timeout(30):
        told = await shop.router.describe(ImageDescriptionRequest(b"\x89PNG", "image/png"))
    assert told.text == "So."
    assert provider.asked == 1


async def test_without_a_limit_nothing_is_held_back() -> None:
    provider = Provider()
    shop = Shop(provider)
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.ask())
        await begun(provider, 50)
        provider.go.set()
    assert provider.most_at_work == 50


@pytest.mark.parametrize(
    ("kind", "request_", "tokens_in", "tokens_out"),
    [
        (ModelType.TEXT_LARGE, TextRequest("x" * 3000), 1000, 1024),
        (ModelType.TEXT_LARGE, TextRequest("x" * 300, system="y" * 300, max_tokens=50), 200, 50),
        (ModelType.TEXT_EMBEDDING, EmbeddingRequest(("x" * 30, "y" * 30)), 20, 0),
        (ModelType.IMAGE_DESCRIPTION, ImageDescriptionRequest(b"\x89PNG", "image/png"), 1500, 1024),
    ],
)
def test_a_call_is_estimated_by_its_bytes_and_the_longest_answer(
    kind: ModelType, request_: ModelRequest, tokens_in: int, tokens_out: int
) -> None:
    call = expected(kind, request_)
    assert (call.tokens_in, call.tokens_out, call.is_estimate) == (tokens_in, tokens_out, True)


def test_a_model_that_nobody_knows_yet_may_be_the_dearest() -> None:
    call = ModelCall("TEXT_LARGE", "reply", "", 1_000_000, 1_000_000)
    prices = read_prices(("mine=5000/5000",))
    assert prices.most(call) == 10_000
