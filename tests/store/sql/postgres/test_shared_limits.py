"""Limits of all processes together: no process overshoots, and no free budget is left unused."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bot import ChannelType, CoreSettings, Room, new_id
from bot.costs.budget import Budget, CostMeter, SharedBudget, load_prices
from bot.domain.ledger import DegradeStep, Limit, LimitScope, ModelCall
from bot.errors import StoreUnavailable
from bot.pipeline.should_respond import PUBLIC_LIMITS, MessageRateLimiter, SharedTokens
from bot.store import BucketRequest, Store
from tests.store.sql.postgres.limits_process import PERSON, ROOM, noon, open_store, spending

SCRIPT = Path(__file__).with_name("limits_process.py")
ROOT = SCRIPT.parents[4]
CALL = ModelCall("TEXT_LARGE", "reply", "scripted", tokens_in=80, tokens_out=20)


@asynccontextmanager
async def members(url: str, count: int) -> AsyncIterator[list[Store]]:
    """Open the store as several processes would."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_store(url)) for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("scope", [LimitScope.ALL, LimitScope.PERSON])
async def test_members_together_make_exactly_the_calls_that_fit(postgres_url: str, scope: LimitScope) -> None:
    async with members(postgres_url, 3) as stores, AsyncExitStack() as stack:
        spenders = [await stack.enter_async_context(spending(store, 3_000, scope)) for store in stores]
        made = await asyncio.gather(*(spender.spend(50) for spender in spenders))
    assert sum(made) == 30


@pytest.mark.long
async def test_what_a_member_spends_degrades_the_answers_of_the_others(postgres_url: str) -> None:
    async with members(postgres_url, 2) as stores, AsyncExitStack() as stack:
        spenders = [await stack.enter_async_context(spending(store, 3_000, LimitScope.ALL)) for store in stores]
        assert await spenders[0].spend(25) == 25
        assert (degradation := spenders[0].budget.find_degradation(ROOM, PERSON)) is not None
        assert degradation.step is DegradeStep.HISTORY
        await spenders[0].meter.flush()
        await spenders[1].meter.reload()  # as every ten seconds
        assert spenders[1].budget.find_degradation(ROOM, PERSON) == degradation
        assert await spenders[1].spend(5) == 5
        assert str(spenders[1].budget.find_degradation(ROOM, PERSON)) == "100 % of BUDGET_TOKENS used: no answer"


@pytest.mark.long
async def test_the_costs_of_all_members_are_stored_once(postgres_url: str) -> None:
    async with members(postgres_url, 2) as stores:
        async with AsyncExitStack() as stack:
            spenders = [await stack.enter_async_context(spending(store, 1_000_000)) for store in stores]
            assert [await spender.spend(40) for spender in spenders] == [40, 40]
        entries = await stores[0].costs.costs_between(noon().date(), noon().date())
    assert [(entry.room_id, entry.calls, entry.tokens) for entry in entries] == [(ROOM, 80, 8_000)]


@pytest.mark.parametrize("keeps_limits", [True, False])
async def test_costs_recorded_after_a_failed_attempt_are_stored_at_the_end(
    postgres_url: str, keeps_limits: bool
) -> None:
    async with members(postgres_url, 1) as [store]:
        assert store.sharing is not None
        limits, budget = store.sharing.limits, Budget((Limit("BUDGET_TOKENS", LimitScope.ALL, False, 1_000),), noon)
        budget.sharing, hold = SharedBudget(limits), limits.hold_costs

        async def fail(*_: object) -> object:
            raise StoreUnavailable("the server is away", cause="unreachable")

        async with CostMeter(store.costs, load_prices(()), budget, clock=noon) as meter:
            meter.record(CALL, None)
            limits.hold_costs = fail  # type: ignore[method-assign, assignment]
            with pytest.raises(StoreUnavailable):
                await meter.flush()
            limits.hold_costs = hold  # type: ignore[method-assign]
            budget.limits = budget.limits if keeps_limits else ()
            meter.record(CALL, None)
        [entry] = await store.costs.costs_between(noon().date(), noon().date())
    assert (entry.calls, entry.tokens) == (2, 200)


@pytest.mark.long
async def test_most_calls_query_no_other_process_while_much_is_left(postgres_url: str) -> None:
    async with members(postgres_url, 1) as [store], spending(store, 10_000_000, LimitScope.ALL) as spender:
        assert store.sharing is not None
        limits, asked = store.sharing.limits, []
        hold = limits.hold_costs

        async def count(*values: object) -> object:
            asked.append(values)
            return await hold(*values)  # type: ignore[arg-type]

        limits.hold_costs = count  # type: ignore[method-assign, assignment]
        assert await spender.spend(400) == 400
        assert len(asked) < 60


@pytest.mark.long
async def test_what_a_dead_member_held_is_free_again(postgres_url: str) -> None:
    async with members(postgres_url, 2) as [dead, alive], spending(alive, 3_000) as spender:
        assert dead.sharing is not None
        async with spending(dead, 3_000):
            pass
        await dead.sharing.leave()
        assert await spender.spend(50) == 30


@pytest.mark.long
async def test_members_take_no_more_tokens_than_a_bucket_has(postgres_url: str) -> None:
    ann, bo = new_id(), new_id()
    async with members(postgres_url, 3) as stores:
        limits = [store.sharing.limits for store in stores if store.sharing is not None]

        async def take(number: int) -> list[int]:
            return await limits[number % 3].take_tokens(
                [BucketRequest("PERSON", ann, 20, 120.0), BucketRequest("PERSON", bo, 50, 120.0, 2)]
            )

        taken = await asyncio.gather(*(take(number) for number in range(30)))
    assert sum(of_ann for of_ann, _ in taken) == 20
    assert sum(of_bo for _, of_bo in taken) == 50


async def test_a_bucket_fills_with_time_and_counts_what_came_earlier_for_then(postgres_url: str) -> None:
    key = new_id()
    async with members(postgres_url, 1) as [store]:
        assert store.sharing is not None
        take, limits = BucketRequest("PERSON", key, 20, 120.0, 20), store.sharing.limits
        assert await limits.take_tokens([take], age=60.0) == [20]
        assert await limits.take_tokens([take]) == [10]
        assert await limits.take_tokens([take], age=60.0) == [0]


async def test_a_person_gets_the_limit_once_in_the_rooms_of_several_processes(postgres_url: str) -> None:
    ann, world = new_id(), new_id()
    rooms = [Room(new_id(), world, ChannelType.GROUP, "test", str(number)) for number in range(3)]
    async with members(postgres_url, 3) as stores:
        limiters = [MessageRateLimiter(CoreSettings(), PUBLIC_LIMITS) for _ in stores]
        tokens = [SharedTokens(store.sharing.limits) for store in stores if store.sharing is not None]

        async def write(number: int) -> bool:
            limiter, token = limiters[number % 3], tokens[number % 3]
            return await limiter.check_shared(token, ann, rooms[number % 3], expects_reply=False) is None

        allowed = await asyncio.gather(*(write(number) for number in range(90)))
    assert sum(allowed) == 20


@pytest.mark.long
async def test_eight_processes_overshoot_a_limit_by_nothing(postgres_url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, str(SCRIPT), postgres_url, "20000", "100")
    processes = [
        await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment) for _ in range(8)
    ]
    try:
        for process in processes:
            assert await process.stdout.readline() == b"ready\n"  # type: ignore[union-attr]
        for process in processes:
            process.stdin.write(b"\n")  # type: ignore[union-attr]
        made = [int(await process.stdout.readline()) for process in processes]  # type: ignore[union-attr]
    finally:
        for process in processes:
            process.stdin.close()  # type: ignore[union-attr]
        assert [await process.wait() for process in processes] == [0] * 8
    assert sum(made) == 200


@pytest.mark.long
async def test_what_an_erased_person_has_used_counts_for_all_members(postgres_url: str) -> None:
    async with members(postgres_url, 2) as stores, AsyncExitStack() as stack:
        spenders = [await stack.enter_async_context(spending(store, 3_000)) for store in stores]
        assert await spenders[0].spend(10) == 10
        await stores[1].edits.erase_entity(PERSON, noon())
        assert sum([await spender.spend(50) for spender in spenders]) == 20
        await stores[0].edits.erase_entity(PERSON, noon())
        async with spending(stores[1], 3_000) as restarted:
            assert await restarted.spend(50) == 0
