"""The meter."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from bot.agent import Agent
from bot.costs.budget import Budget, Limit, Whose
from bot.costs.metering import Meter
from bot.costs.prices import read_prices
from bot.domain.costs import Spending
from bot.domain.ids import derived_id
from bot.domain.ledger import ModelCall
from bot.errors import StoreUnavailable
from bot.models.types import ImageRequest, ImageResult, ModelType
from bot.plugin_system.components import model
from bot.plugin_system.plugin import Plugin
from bot.runs import Run
from bot.store.inmemory.cache_logs_costs import InMemorySpending
from bot.testing import on_stage

DAY = date(2026, 5, 4)
HERE, ANN = derived_id("here"), derived_id("Ann")
RUN = Run(derived_id("run"), HERE, derived_id("message"), ANN)
CALL = ModelCall("TEXT_LARGE", "reply", "gpt-4o", 1_000_000, 100_000, 500_000)
LIMIT = Limit("BUDGET_USD", Whose.ALL, True, 5.0)


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


class Books(InMemorySpending):
    """Counts what is written, and is away where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_away = False
        self.written = asyncio.Event()

    async def add(self, spendings: Sequence[Spending]) -> None:
        if self.is_away:
            raise StoreUnavailable("it is away", cause="away")
        self.writes += 1
        await super().add(spendings)
        self.written.set()


def meter(store: InMemorySpending, *limits: Limit, every: float = 3600.0) -> tuple[Meter, Budget]:
    budget = Budget(limits, noon)
    return Meter(store, read_prices(), budget, clock=noon, every=every), budget


async def test_a_call_comes_back_with_its_cost_and_an_unknown_one_without() -> None:
    one, _ = meter(Books())
    assert one.book(CALL, RUN).cost == 1.25 + 0.625 + 1.0
    assert one.book(ModelCall("TEXT_LARGE", "reply", "my-own", 10, 10), RUN).cost is None


async def test_o02_a_limit_in_dollars_counts_pictures_of_a_model_without_a_price() -> None:
    @model(ModelType.IMAGE)
    async def draw(agent: Agent, request: ImageRequest) -> ImageResult:
        return ImageResult(data=b"\x89PNG", model="my-painter")

    painter = Plugin("painter", "Draws.", models=[draw])
    async with on_stage(painter, settings={"BUDGET_USD": "0.3"}) as stage:
        await stage.agent.models.draw(ImageRequest("a boat"))
        assert stage.agent.budget.reached(None, None) is None
        await stage.agent.models.draw(ImageRequest("a boat"))
        assert stage.agent.budget.reached(None, None) is not None


async def test_many_calls_are_one_write_and_a_line_for_each_room_person_and_model() -> None:
    store = Books()
    one, _ = meter(store)
    async with one:
        for _ in range(3):
            one.book(CALL, RUN)
        one.book(ModelCall("TEXT_LARGE", "reply", "my-own", 10, 20, is_estimate=True), None)
    assert store.writes == 1
    own, priced = sorted(await store.spent(DAY, DAY), key=lambda line: line.cost)
    assert priced == Spending(DAY, "gpt-4o", HERE, ANN, 3, 3_000_000, 1_500_000, 300_000, 8.625)
    assert own == Spending(DAY, "my-own", None, None, 1, 10, 0, 20, 0.0, unpriced=1, estimated=1)


async def test_a_failed_call_costs_nothing_unless_it_was_counted_or_called_off() -> None:
    store = Books()
    one, _ = meter(store)
    estimated = replace(CALL, is_estimate=True)
    async with one:
        one.book(replace(estimated, error="503"), RUN)
        one.book(replace(estimated, error="cancelled"), RUN)
        one.book(replace(CALL, error="refused, and paid for"), RUN)
    [line] = await store.spent(DAY, DAY)
    assert (line.calls, line.failed, line.estimated, line.tokens_in) == (3, 1, 1, 2_000_000)


async def test_sums_are_written_while_it_runs() -> None:
    store = Books()
    one, _ = meter(store, every=0.01)
    async with one:
        one.book(CALL, RUN)
        async with asyncio.timeout(30):
            await store.written.wait()
        assert len(await store.spent(DAY, DAY)) == 1


async def test_what_could_not_be_written_is_written_the_next_time() -> None:
    store = Books()
    one, _ = meter(store)
    async with one:
        one.book(CALL, RUN)
        store.is_away = True
        try:
            await one.write()
        except StoreUnavailable:
            store.is_away = False
        one.book(CALL, RUN)
    [line] = await store.spent(DAY, DAY)
    assert line.calls == 2


async def test_o02_a_budget_knows_after_a_restart_what_was_spent_before() -> None:
    store = Books()
    first, budget = meter(store, LIMIT)
    async with first:
        first.book(CALL, RUN)
        assert budget.reached(HERE, ANN) is None
    second, budget = meter(store, LIMIT)
    async with second:
        second.book(CALL, RUN)
        assert budget.reached(HERE, ANN) == LIMIT
