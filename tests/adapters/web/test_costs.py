"""The costs of models and their limits over HTTP: sums, groups, tables, what is expected."""

import csv
import io
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from bot import Entity, Room, World, derived_id, system_clock
from bot.cli.running_bot import RemoteOperations, RunningBot
from bot.domain.environment import ChannelType
from bot.store import CostEntry

ROOM, ANN = derived_id("room"), derived_id("Ann")


async def store_old_costs(web_server: Any) -> None:
    """Store costs: today in a room, yesterday without a person, and long ago."""
    today = system_clock().date()
    entry = CostEntry(today, "large", ROOM, ANN, calls=2, tokens_in=100, tokens_out=10, cost=0.5)
    store = web_server.runtime.agents[0].agent.store.costs
    yesterday = replace(entry, day=today - timedelta(days=1), model="small", room_id=None, person_id=None, cost=0.75)
    await store.add([entry, yesterday, replace(entry, day=today - timedelta(days=30))])


async def test_costs_are_summed_by_day_with_the_days_in_order(web_server: Any) -> None:
    await store_old_costs(web_server)
    body = await web_server.get("/api/costs")
    assert (body["total"]["usd"], body["total"]["calls"], body["total"]["tokens_in"]) == (1.25, 4, 200)
    assert [entry["key"] for entry in body["sums"]] == sorted(entry["key"] for entry in body["sums"])
    assert [entry["usd"] for entry in body["sums"]] == [0.75, 0.5]
    assert (await web_server.get("/api/costs?days=31"))["total"]["usd"] == 1.75


async def test_costs_are_summed_by_the_requested_key_highest_first(web_server: Any) -> None:
    await store_old_costs(web_server)
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


TODAY_ENTRY = CostEntry(date.min, "large", ROOM, ANN, 2, 100, 0, 10, 0.5, purpose="reply")


async def store_costs(web_server: Any, *, name: str = "porch") -> date:
    """Store costs of today for a named room and person, and of yesterday for neither."""
    today = system_clock().date()
    store = web_server.runtime.agents[0].agent.store
    world = World(derived_id("world"), "test", "world", "World")
    await store.worlds.save_world(world, [Room(ROOM, world.id, ChannelType.GROUP, "test", "1", "account", name)])
    await store.entities.save_entities([Entity(ANN, "test", "7", ("Ann",))])
    entry = replace(TODAY_ENTRY, day=today)
    yesterday = replace(
        entry, day=today - timedelta(days=1), model="small", room_id=None, person_id=None, cost=0.75, purpose="speech"
    )
    await store.costs.add([entry, replace(entry, model="small", cost=0.25, purpose="speech"), yesterday])
    return today


async def test_costs_are_summed_by_purpose_and_by_two_keys_with_the_days_in_order(web_server: Any) -> None:
    today = await store_costs(web_server)
    body = await web_server.get("/api/costs?by=purpose")
    assert [(item["key"], item["usd"]) for item in body["sums"]] == [("speech", 1.0), ("reply", 0.5)]
    body = await web_server.get("/api/costs?by=day&by=model")
    yesterday = (today - timedelta(days=1)).isoformat()
    assert [(item["keys"], item["usd"]) for item in body["sums"]] == [
        ([yesterday, "small"], 0.75),
        ([today.isoformat(), "large"], 0.5),
        ([today.isoformat(), "small"], 0.25),
    ]
    assert body["sums"][0]["key"] == yesterday
    await web_server.get("/api/costs?by=day&by=day", 422)


async def test_rooms_and_people_are_named(web_server: Any) -> None:
    await store_costs(web_server)
    body = await web_server.get("/api/costs?by=room")
    assert [item["names"] for item in body["sums"]] == [["porch"], [None]]
    body = await web_server.get("/api/costs?by=person&by=model")
    assert ["Ann", "large"] in [item["names"] for item in body["sums"]]


async def test_a_period_ends_before_its_last_day(web_server: Any) -> None:
    today = await store_costs(web_server)
    yesterday = today - timedelta(days=1)
    body = await web_server.get(f"/api/costs?from={yesterday}&to={today}")
    assert (body["first"], body["last"], body["total"]["usd"]) == (str(yesterday), str(yesterday), 0.75)
    await web_server.get(f"/api/costs?from={today}&to={today}", 422)
    await web_server.get("/api/costs?from=2000-01-01", 422)


async def test_sums_beyond_the_limit_are_listed_together(web_server: Any) -> None:
    await store_costs(web_server)
    body = await web_server.get("/api/costs?by=model&limit=1")
    assert [item["key"] for item in body["sums"]] == ["small"]
    assert (body["others"]["usd"], body["others_count"]) == (0.5, 1)


async def test_the_month_is_expected_from_the_last_days_only_with_three_of_them(web_server: Any) -> None:
    today = await store_costs(web_server)
    assert (await web_server.get("/api/costs?expected=true"))["expected"] is None
    store = web_server.runtime.agents[0].agent.store
    entry = replace(TODAY_ENTRY, cost=2.0)
    await store.costs.add([replace(entry, day=today - timedelta(days=number)) for number in range(1, 11)])
    expected = (await web_server.get("/api/costs?expected=true"))["expected"]
    assert expected["days"] == 10
    assert expected["low"] <= expected["usd"] <= expected["high"]
    assert date.fromisoformat(expected["day"]).month == today.month
    assert (date.fromisoformat(expected["day"]) + timedelta(days=1)).day == 1
    assert (await web_server.get("/api/costs"))["expected"] is None


async def load_table(web_server: Any, path: str) -> list[list[str]]:
    response = await web_server.request("GET", path, headers={**web_server.bearer, "Accept": "text/csv"})
    assert (response.status, response.content_type) == (200, "text/csv")
    assert response.headers["Content-Disposition"].startswith('attachment; filename="costs-')
    return list(csv.reader(io.StringIO(await response.text())))


@pytest.mark.matrix(3)
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
async def test_a_table_has_no_cell_that_begins_as_a_formula(web_server: Any, start: str) -> None:
    await store_costs(web_server, name=f"{start}HYPERLINK(1)")
    head, *rows = await load_table(web_server, "/api/costs?by=room&by=model")
    assert head[:4] == ["room", "model", "room_name", "usd"]
    assert {row[2] for row in rows} == {f"'{start}HYPERLINK(1)", ""}
    assert sum(float(row[3]) for row in rows) == 1.5


async def test_limits_are_listed_with_what_was_used_and_by_whom(open_server: Any) -> None:
    async with open_server(settings={"BUDGET_USD": "8"}) as server:
        await store_costs(server)
        body = await server.get("/api/limits")
        limits = {item["name"]: item for item in body["limits"]}
        assert (limits["BUDGET_USD"]["value"], limits["BUDGET_USD"]["origin"]) == (8, "variable")
        assert (limits["BUDGET_USD"]["spent"], limits["BUDGET_USD"]["highest"]) == (0.75, None)
        assert limits["BUDGET_USD_PER_ROOM"]["highest"] == {"id": str(ROOM), "name": "porch", "spent": 0.75}
        assert limits["BUDGET_TOKENS_PER_PERSON"]["highest"]["name"] == "Ann"
        assert (limits["BUDGET_TOKENS"]["value"], limits["BUDGET_TOKENS"]["origin"]) == (0, "none")


async def test_the_steps_in_effect_are_listed_with_their_limits_the_most_used_first(open_server: Any) -> None:
    settings = {"BUDGET_USD": "1", "BUDGET_USD_PER_ROOM": "0.76", "BUDGET_TOKENS_PER_PERSON": "1000"}
    async with open_server(settings={**settings, "DEGRADE": "70:history,90:small"}) as server:
        assert (await server.get("/api/costs"))["degraded"] == []
        await store_costs(server)
        await put(server, {"limits": {"BUDGET_TOKENS": 0}})  # which loads the costs
        agent_id = str(server.runtime.agents[0].agent.id)
        assert (await server.get("/api/costs?days=1"))["degraded"] == [
            {
                "agent_id": agent_id,
                "scope": "room",
                "id": str(ROOM),
                "name": "porch",
                "step": "small",
                "limit": "BUDGET_USD_PER_ROOM",
                "share": 0.9868,
            },
            {
                "agent_id": agent_id,
                "scope": "all",
                "id": None,
                "name": None,
                "step": "history",
                "limit": "BUDGET_USD",
                "share": 0.75,
            },
        ]


async def put(server: Any, body: object, status: int = 200, path: str = "/api/limits") -> Any:
    response = await server.request("PUT", path, headers=server.bearer, json=body)
    return await server.check_response("PUT", path, response, status)


async def test_a_changed_limit_counts_at_once_and_null_brings_the_variable_back(open_server: Any) -> None:
    async with open_server(settings={"BUDGET_USD": "8"}) as server:
        body = await put(server, {"limits": {"BUDGET_USD": 1.5, "BUDGET_TOKENS": 1}})
        first, second = body["limits"][:2]
        assert (first["value"], first["variable"], first["origin"], second["value"]) == (1.5, 8, "stored", 1)
        await server.send("Hello")
        answer = await server.send("Again")
        assert (answer["outcome"], answer["rule"]) == ("ignored", "BUDGET_TOKENS")
        body = await put(server, {"limits": {"BUDGET_USD": None, "BUDGET_TOKENS": None}})
        assert (body["limits"][0]["value"], body["limits"][0]["origin"]) == (8, "variable")
        assert (await server.send("Now"))["outcome"] == "answered"


async def test_impossible_limits_are_refused(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bob")) as server:
        for limits in ({"BUDGET_EUR": 1}, {"BUDGET_USD": -1}, {"BUDGET_USD": "8"}, {"BUDGET_TOKENS": 0.5}, {}):
            await put(server, {"limits": limits}, 422, "/api/limits?agent=ada")
        refused = await put(server, {"limits": {"BUDGET_USD": 1}}, 422)
        assert "agent: name one" in refused["error"]["message"]
        await put(server, {"limits": {"BUDGET_USD": 1}}, path="/api/limits?agent=bob")
        listed = (await server.get("/api/limits"))["limits"]
        assert sorted(item["value"] for item in listed if item["name"] == "BUDGET_USD") == [0, 1]


async def test_costs_of_another_process_count_in_the_sums_and_against_the_limits(open_server: Any) -> None:
    async with open_server(settings={"BUDGET_USD": "1"}) as server:
        running_bot = RunningBot(
            "127.0.0.1", server.adapter.port, server.bearer["Authorization"].removeprefix("Bearer ")
        )
        operations = RemoteOperations(running_bot, server.runtime.agents[0].agent.id)
        spent = CostEntry(date.min, "large", None, None, 3, 100, 0, 10, 0.6, failed_calls=1, purpose="rehearsal")
        await operations.add_costs([spent, replace(spent, model="small")])
        [total] = (await server.get("/api/costs?by=purpose&days=1"))["sums"]
        assert (total["key"], total["usd"], total["calls"], total["failed_calls"]) == ("rehearsal", 1.2, 6, 2)
        answer = await server.send("Hello")
        assert (answer["outcome"], answer["rule"]) == ("ignored", "BUDGET_USD")


@pytest.mark.parametrize("changed", [{"usd": -1}, {"purpose": "reply"}, {"calls": 0.5}, {"day": "2026-01-01"}])
async def test_impossible_costs_of_another_process_are_refused(web_server: Any, changed: dict[str, Any]) -> None:
    cost = {"model": "m", "purpose": "rehearsal", "usd": 1, "calls": 1, "tokens_in": 1, "tokens_out": 1}
    await web_server.post("/api/costs", {"costs": [cost | changed]}, 422)
    assert (await web_server.get("/api/costs"))["total"]["calls"] == 0
