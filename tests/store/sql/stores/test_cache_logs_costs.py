"""Sums of model costs in a database."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from bot import derived_id, system_clock
from bot.store import CostEntry
from bot.store.sql.stores.retention import Retention

NOW = system_clock()
ENTRY = CostEntry(NOW.date(), "gpt-4o", derived_id("here"), derived_id("Ann"), 1, 1000, 0, 30, 0.5)


async def test_sums_are_kept_for_four_hundred_days(store: Any) -> None:
    async def at_once(seconds: float) -> None: ...

    days = [ENTRY.day - timedelta(days=back) for back in (0, 399, 402, 403)]
    await store.costs.add([replace(ENTRY, day=day) for day in days])
    spending = store.costs
    sweeper = Retention(spending._database, spending._agent_row, clock=lambda: NOW, sleep=at_once)
    assert await sweeper.run_once() == 2
    left = [line.day for line in await store.costs.costs_between(date.min, date.max)]
    assert left == [days[1], days[0]]


async def test_a_lone_surrogate_in_a_models_name_is_replaced(store: Any) -> None:
    await store.costs.add([replace(ENTRY, model="odd\ud800\0name")])
    [line] = await store.costs.costs_between(ENTRY.day, ENTRY.day)
    assert line.model == "odd?name"
