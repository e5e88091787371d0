"""The cost meter."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from bot.costs.budget import Budget, CostMeter, load_prices
from bot.domain.ids import derived_id
from bot.domain.ledger import CostEntry, Limit, LimitScope, ModelCall
from bot.errors import StoreUnavailable
from bot.models.types import ImageRequest, ImageResult, ModelType
from bot.plugin_system.components import model
from bot.plugin_system.plugin import Plugin
from bot.runs import Run
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.cache_logs_costs import SqlCosts
from bot.testing import running_agent
from bot.turn import Agent

DAY = date(2026, 5, 4)
ROOM, PERSON = derived_id("here"), derived_id("Ann")
RUN = Run(derived_id("run"), ROOM, derived_id("message"), PERSON)
CALL = ModelCall("TEXT_LARGE", "reply", "gpt-4o", 1_000_000, 100_000, 500_000)
LIMIT = Limit("BUDGET_USD", LimitScope.ALL, True, 5.0)


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


class CountingCosts(SqlCosts):
    """A cost store that counts writes, and fails while `is_unavailable`."""

    def __init__(self) -> None:
        super().__init__(InMemoryStore().database, ALL_AGENTS)
        self.writes = 0
        self.is_unavailable = False
        self.written = asyncio.Event()

    async def add(self, entries: Sequence[CostEntry]) -> None:
        if self.is_unavailable:
            raise StoreUnavailable("it is away", cause="away")
        self.writes += 1
        await super().add(entries)
        self.written.set()


def build_meter(store: SqlCosts, *limits: Limit, interval: float = 3600.0) -> tuple[CostMeter, Budget]:
    budget = Budget(limits, noon)
    return CostMeter(store, load_prices(), budget, clock=noon, interval=interval), budget


async def test_a_call_is_returned_with_its_cost_unless_the_price_is_unknown() -> None:
    meter, _ = build_meter(CountingCosts())
    assert meter.record(CALL, RUN).cost == 1.25 + 0.625 + 1.0
    assert meter.record(ModelCall("TEXT_LARGE", "reply", "my-own", 10, 10), RUN).cost is None


@pytest.mark.failure("O-02")
async def test_a_limit_in_dollars_counts_pictures_of_a_model_without_a_price() -> None:
    @model(ModelType.IMAGE)
    async def draw(agent: Agent, request: ImageRequest) -> ImageResult:
        return ImageResult(data=b"\x89PNG", model="my-painter")

    painter = Plugin("painter", "Draws.", models=[draw])
    async with running_agent(painter, settings={"BUDGET_USD": "0.4"}) as harness:
        await harness.agent.models.draw(ImageRequest("a boat"))
        assert harness.agent.budget.find_reached_limit(None, None) is None
        await harness.agent.models.draw(ImageRequest("a boat"))
        assert harness.agent.budget.find_reached_limit(None, None) is not None


async def test_many_calls_are_a_single_write_with_an_entry_per_room_person_model_and_purpose() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    async with meter:
        for _ in range(3):
            meter.record(CALL, RUN)
        meter.record(ModelCall("TEXT_LARGE", "reply", "my-own", 10, 20, is_estimate=True), None)
    assert store.writes == 1
    own, priced = sorted(await store.costs_between(DAY, DAY), key=lambda line: line.cost)
    assert priced == CostEntry(DAY, "gpt-4o", ROOM, PERSON, 3, 3_000_000, 1_500_000, 300_000, 8.625, purpose="reply")
    assert own == CostEntry(
        DAY, "my-own", None, None, 1, 10, 0, 20, 0.0, unpriced_calls=1, estimated_calls=1, purpose="reply"
    )


async def test_a_failed_call_costs_nothing_unless_it_was_counted_or_a_part_of_its_answer_came() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    estimated = replace(CALL, is_estimate=True)
    async with meter:
        assert meter.record(replace(estimated, error="503", tokens_out=0), RUN).cost == 0.0
        meter.record(replace(estimated, error="cancelled"), RUN)
        meter.record(replace(CALL, error="refused, and paid for"), RUN)
        meter.record(replace(estimated, error="it broke off"), RUN)
    [line] = await store.costs_between(DAY, DAY)
    assert (line.calls, line.failed_calls, line.estimated_calls, line.tokens_in) == (4, 3, 2, 3_000_000)


async def test_what_is_being_stored_counts_when_limits_are_loaded() -> None:
    is_storing = asyncio.Event()

    class SlowCosts(SqlCosts):
        async def add(self, entries: Sequence[CostEntry]) -> None:
            is_storing.set()
            for _ in range(5):
                await asyncio.sleep(0)
            await super().add(entries)

    meter, budget = build_meter(SlowCosts(InMemoryStore().database, ALL_AGENTS), LIMIT)
    async with meter:
        for _ in range(3):
            meter.record(CALL, RUN)
        flush = asyncio.create_task(meter.flush())
        await is_storing.wait()
        await meter.reload()
        await flush
        assert budget.find_reached_limit(None, None) == LIMIT


async def test_sums_are_written_while_it_runs() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store, interval=0.01)
    async with meter:
        meter.record(CALL, RUN)
        async with asyncio.timeout(30):
            await store.written.wait()
        assert len(await store.costs_between(DAY, DAY)) == 1


async def test_entries_that_could_not_be_stored_are_stored_later() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    async with meter:
        meter.record(CALL, RUN)
        store.is_unavailable = True
        try:
            await meter.flush()
        except StoreUnavailable:
            store.is_unavailable = False
        meter.record(CALL, RUN)
    [line] = await store.costs_between(DAY, DAY)
    assert line.calls == 2


@pytest.mark.failure("O-02")
async def test_a_budget_knows_after_a_restart_what_was_spent_before() -> None:
    store = CountingCosts()
    first, budget = build_meter(store, LIMIT)
    async with first:
        first.record(CALL, RUN)
        assert budget.find_reached_limit(ROOM, PERSON) is None
    second, budget = build_meter(store, LIMIT)
    async with second:
        second.record(CALL, RUN)
        assert budget.find_reached_limit(ROOM, PERSON) == LIMIT


def estimate() -> ModelCall:
    return replace(CALL, tokens_cached=0, is_estimate=True)


async def sums(store: SqlCosts) -> list[tuple[int, int, int, float]]:
    """Return calls, estimated calls, tokens and dollars of each stored sum."""
    entries = await store.costs_between(DAY, DAY)
    return [(entry.calls, entry.estimated_calls, entry.tokens, round(entry.cost, 9)) for entry in entries]


@pytest.mark.failure("O-02")
async def test_a_call_under_way_is_stored_as_an_estimate_until_its_figures_replace_that() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    async with meter:
        end = meter.begin(estimate, RUN)
        await store.written.wait()
        assert await sums(store) == [(1, 1, 1_100_000, 3.5)]
        await meter.flush()
        assert store.writes == 1, "it is stored once"
        meter.record(replace(CALL, tokens_in=1_000, tokens_out=0, tokens_cached=0), RUN)
        end()
    assert await sums(store) == [(1, 0, 1_000, 0.0025)]


@pytest.mark.failure("O-02")
async def test_what_a_killed_process_had_under_way_counts_once_in_the_next() -> None:
    store = CountingCosts()
    killed, _ = build_meter(store)
    killed.begin(estimate, RUN)
    await killed.flush()
    meter, budget = build_meter(store, replace(LIMIT, maximum=3.5))
    async with meter:
        assert budget.find_reached_limit(ROOM, PERSON) is not None
    assert await sums(store) == [(1, 1, 1_100_000, 3.5)]


async def test_a_call_that_ends_within_a_moment_causes_no_further_write() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    async with meter:
        for _ in range(10):
            end = meter.begin(estimate, RUN)
            meter.record(CALL, RUN)
            end()
    assert store.writes == 1
    assert await sums(store) == [(10, 0, 11_000_000, 28.75)]


@pytest.mark.failure("O-02")
async def test_an_estimate_is_stored_once_although_the_store_was_unavailable() -> None:
    store = CountingCosts()
    meter, _ = build_meter(store)
    async with meter:
        end = meter.begin(estimate, RUN)
        store.is_unavailable = True
        with pytest.raises(StoreUnavailable):
            await meter.flush()
        store.is_unavailable = False
        await meter.flush()
        assert await sums(store) == [(1, 1, 1_100_000, 3.5)]
        end()
    assert [entry for entry in await sums(store) if any(entry)] == []


@pytest.mark.failure("O-02")
async def test_a_call_under_way_is_reserved_and_not_spent() -> None:
    store = CountingCosts()
    meter, budget = build_meter(store, replace(LIMIT, maximum=3.0))
    async with meter:
        end = meter.begin(estimate, RUN)
        await meter.flush()
        await meter.reload()
        assert budget.find_reached_limit(ROOM, PERSON) is None
        end()
