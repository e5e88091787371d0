"""Costs over HTTP."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from bot import derived_id, system_clock
from bot.store import CostEntry

ROOM, ANN = derived_id("room"), derived_id("Ann")


async def store_costs(web_server: Any) -> None:
    """Store costs: today in a room, yesterday without a person, and long ago."""
    today = system_clock().date()
    entry = CostEntry(today, "large", ROOM, ANN, calls=2, tokens_in=100, tokens_out=10, cost=0.5)
    store = web_server.runtime.agents[0].agent.store.costs
    yesterday = replace(entry, day=today - timedelta(days=1), model="small", room_id=None, person_id=None, cost=0.75)
    await store.add([entry, yesterday, replace(entry, day=today - timedelta(days=30))])


async def test_costs_are_summed_by_day_with_the_days_in_order(web_server: Any) -> None:
    await store_costs(web_server)
    body = await web_server.get("/api/costs")
    assert (body["total"]["usd"], body["total"]["calls"], body["total"]["tokens_in"]) == (1.25, 4, 200)
    assert [entry["key"] for entry in body["sums"]] == sorted(entry["key"] for entry in body["sums"])
    assert [entry["usd"] for entry in body["sums"]] == [0.75, 0.5]
    assert (await web_server.get("/api/costs?days=31"))["total"]["usd"] == 1.75


async def test_costs_are_summed_by_the_requested_key_highest_first(web_server: Any) -> None:
    await store_costs(web_server)
    keys = {"model": ["small", "large"], "room": [None, str(ROOM)], "person": [None, str(ANN)]}
    for by, expected in keys.items():
        body = await web_server.get(f"/api/costs?days=2&by={by}&agent=ada")
        assert [entry["key"] for entry in body["sums"]] == expected


async def test_without_costs_the_sums_are_empty(web_server: Any) -> None:
    body = await web_server.get("/api/costs?days=1")
    assert (body["first"], body["sums"], body["total"]["calls"]) == (body["last"], [], 0)


async def test_invalid_queries_are_refused(web_server: Any) -> None:
    await web_server.get("/api/costs?days=0", 422)
    await web_server.get("/api/costs?by=mood", 422)
    await web_server.get("/api/costs?agent=nobody", 404)
