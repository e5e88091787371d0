"""Limits that are changed while the bot runs."""

import asyncio
from pathlib import Path

import pytest

from bot import derived_id
from bot.errors import BudgetSpent, SettingError
from bot.models.types import ImageRequest, ImageResult, ModelType
from bot.plugin_system.components import model
from bot.plugin_system.plugin import Plugin
from bot.store import InMemoryStore
from bot.store.protocols import LogKind
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import running_agent


@model(ModelType.IMAGE)
async def draw(agent: object, request: ImageRequest) -> ImageResult:
    """Draw a picture, at the assumed price of 0.20 dollars where a limit is in dollars."""
    return ImageResult(data=b"\x89PNG", model="my-painter")


PAINTER = Plugin("painter", "Draws.", models=[draw])


async def test_a_limit_that_is_set_while_the_bot_runs_counts_from_the_next_call_on_with_what_was_spent() -> None:
    async with running_agent(PAINTER) as harness:
        limits = harness.agent_runtime.handle.limits
        await harness.agent.models.draw(ImageRequest("a boat"))
        await limits.change({"BUDGET_TOKENS": 1}, source="the test")
        with pytest.raises(BudgetSpent, match="BUDGET_TOKENS, 1 tokens a day in all"):
            await harness.agent.models.draw(ImageRequest("a boat"))
        await limits.change({"BUDGET_TOKENS": 0}, source="the test")
        await harness.agent.models.draw(ImageRequest("a boat"))


async def test_a_limit_in_dollars_that_is_set_later_counts_models_without_a_price_too() -> None:
    async with running_agent(PAINTER) as harness:
        limits = harness.agent_runtime.handle.limits
        await limits.change({"BUDGET_USD": 0.1}, source="the test")
        await harness.agent.models.draw(ImageRequest("a boat"))
        with pytest.raises(BudgetSpent):
            await harness.agent.models.draw(ImageRequest("a boat"))


async def test_limits_that_are_set_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path, agent_id = tmp_path / "greenroom.db", derived_id("agent", "Ada")
    async with OpenFiles().open_store(path, agent_id) as store, running_agent(store=store) as harness:
        limits = harness.agent_runtime.handle.limits
        changes = [{"BUDGET_USD": 5}, {"BUDGET_TOKENS": 1_000}]
        await asyncio.gather(*(limits.change(change, source="the test") for change in changes))
        set_limits = {state.setting: state.value for state in limits.states() if state.is_stored}
    assert set_limits == {"BUDGET_USD": 5, "BUDGET_TOKENS": 1_000}


async def test_a_stored_limit_survives_a_restart_and_wins_over_the_variable_until_it_is_removed() -> None:
    store = InMemoryStore()
    variables = {"BUDGET_USD": "8"}
    async with running_agent(PAINTER, settings=variables, store=store) as harness:
        limits = harness.agent_runtime.handle.limits
        state = limits.states()[0]
        assert (state.setting, state.value, state.variable, state.is_stored) == ("BUDGET_USD", 8, 8, False)
        await limits.change({"BUDGET_USD": 0.1, "BUDGET_TOKENS_PER_ROOM": 500}, source="the test")
    async with running_agent(PAINTER, settings=variables, store=store) as harness:
        limits = harness.agent_runtime.handle.limits
        state = limits.states()[0]
        assert (state.value, state.variable, state.is_stored) == (0.1, 8, True)
        assert {limit.setting: limit.maximum for limit in harness.agent.budget.limits} == {
            "BUDGET_USD": 0.1,
            "BUDGET_TOKENS_PER_ROOM": 500,
        }
        await limits.change({"BUDGET_USD": None, "BUDGET_TOKENS_PER_ROOM": None}, source="the test")
        assert (limits.states()[0].value, limits.states()[0].is_stored) == (8, False)
    assert await store.cache.get("costs:limits") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("BUDGET_EUR", 1), ("BUDGET_USD", -1), ("BUDGET_USD", float("nan")), ("BUDGET_TOKENS", 1.5), ("BUDGET_USD", 1e15)],
)
async def test_an_impossible_limit_changes_nothing(name: str, value: float) -> None:
    async with running_agent() as harness:
        limits = harness.agent_runtime.handle.limits
        with pytest.raises(SettingError, match=name):
            await limits.change({"BUDGET_TOKENS_PER_PERSON": 5, name: value}, source="the test")
        assert harness.agent.budget.limits == ()


async def test_a_change_is_in_the_log_of_decisions_with_its_source() -> None:
    async with running_agent() as harness:
        await harness.agent_runtime.handle.limits.change({"BUDGET_TOKENS": 5}, source="the test")
        [entry] = await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION)
        assert entry["body"]["new"] == {"BUDGET_TOKENS": 5}
        assert (entry["body"]["old"]["BUDGET_TOKENS"], entry["body"]["event"]) == (0, "the test")
