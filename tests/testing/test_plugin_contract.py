"""The contract of plugins: each rule finds the plugin that breaks it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import pytest

from bot import Agent, Effect, Plugin, ProviderResult, Service, Settings, Turn, action, evaluator, provider
from bot.plugin_system import PluginTestSuite
from bot.prompts import Authority
from bot.testing import check_plugin_contract


async def problems_of(plugin: Plugin) -> list[str]:
    return [problem for result in await check_plugin_contract(plugin) for problem in result.problems]


def assert_reported(problems: Sequence[str], text: str) -> None:
    assert [problem for problem in problems if text in problem], problems


@action("WAVE", "Wave at the user.", authority=Authority.harmless("a wave changes nothing"))
async def wave(turn: Turn, hand: Annotated[str, "Which hand"]) -> None:
    """Wave."""


@provider("TIDE", "How high the water is.")
async def tide(turn: Turn) -> ProviderResult:
    """Return the tide."""
    await asyncio.sleep(0)
    return ProviderResult(text="high", authors=())


async def test_a_plugin_that_obeys_the_contract_has_no_problems() -> None:
    results = await check_plugin_contract(Plugin("sea", "The sea.", actions=[wave], providers=[tide]))
    assert len(results) == 5
    assert not [result for result in results if result.problems or result.skipped]


async def test_names_that_are_invalid_or_taken_are_problems() -> None:
    @provider("TIME", "Another clock.")
    def clock(turn: Turn) -> ProviderResult:
        return ProviderResult()

    assert_reported(await problems_of(Plugin("The Sea")), "lower-case letters")
    assert_reported(
        await problems_of(Plugin("sea", providers=[clock])), "provider TIME is brought by plugin 'bootstrap'"
    )


async def test_actions_and_parameters_need_descriptions() -> None:
    @action("WAVE", " ", effect=Effect.PURE)
    async def silent(turn: Turn, hand: str) -> None: ...

    problems = await problems_of(Plugin("sea", actions=[silent]))
    assert_reported(problems, "WAVE has no description")
    assert_reported(problems, "WAVE: hand has no description")


async def test_an_action_that_changes_something_declares_who_must_want_it() -> None:
    @action("SINK", "Sink the ship.")
    async def sink(turn: Turn) -> None: ...

    @action("SAIL", "Sail.", authority=Authority.named("sail", targets=["port"]))
    async def sail(turn: Turn) -> None: ...

    problems = await problems_of(Plugin("sea", actions=[sink, sail]))
    assert_reported(problems, "SINK changes something")
    assert_reported(problems, "names the parameter 'port', which it does not have")


async def test_a_service_that_does_not_start_is_a_problem() -> None:
    class Lighthouse(Service):
        async def __aenter__(self) -> "Lighthouse":
            raise OSError("no oil")

    assert_reported(await problems_of(Plugin("sea", services=[Lighthouse])), "no oil")


async def test_a_plugin_that_cannot_start_twice_on_the_same_store_is_a_problem() -> None:
    async def init(agent: Agent) -> None:
        if await agent.store.cache.get("sea"):
            raise RuntimeError("there is a sea already")
        await agent.store.cache.set("sea", True)

    assert_reported(await problems_of(Plugin("sea", init=init)), "there is a sea already")


async def test_a_component_that_fails_on_a_message_is_a_problem() -> None:
    @evaluator("STORM", "Looks for storms.", always_run=True)
    async def storm(turn: Turn) -> None:
        raise RuntimeError("capsized")

    assert_reported(await problems_of(Plugin("sea", evaluators=[storm])), "capsized")


@pytest.mark.long
async def test_a_provider_that_returns_nothing_or_blocks_the_loop_is_a_problem() -> None:
    @provider("FOG", "Fog.")
    def fog(turn: Turn) -> ProviderResult:
        return None  # type: ignore[return-value]

    @provider("ICE", "Ice.")
    def ice(turn: Turn) -> ProviderResult:
        time.sleep(1.2)  # what the rule is about
        return ProviderResult()

    problems = await problems_of(Plugin("sea", providers=[fog, ice]))
    assert_reported(problems, "provider FOG returned a NoneType")
    assert_reported(problems, "it blocks the event loop for 1.")


@pytest.mark.long
async def test_a_loop_that_was_blocked_in_a_single_run_only_is_no_problem() -> None:
    calls = []

    @provider("ICE", "Ice.")
    def ice(turn: Turn) -> ProviderResult:
        calls.append(turn)
        if len(calls) == 1:
            time.sleep(1.2)  # as when the machine is busy
        return ProviderResult()

    assert await problems_of(Plugin("sea", providers=[ice])) == []
    assert len(calls) > 2


async def test_a_provider_that_swallows_its_cancellation_is_a_problem() -> None:
    @provider("KRAKEN", "It holds on.")
    async def kraken(turn: Turn) -> ProviderResult:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return ProviderResult()

    assert_reported(await problems_of(Plugin("sea", providers=[kraken])), "KRAKEN did not end when it was cancelled")


@pytest.mark.parametrize(("settings", "skipped"), [(None, 2), ({"SEA_KEY": "k"}, 0)])
async def test_a_plugin_that_is_off_runs_with_the_settings_of_its_suites(
    settings: dict[str, str] | None, skipped: int
) -> None:
    def missing_settings(settings: Settings) -> str:
        return "" if "SEA_KEY" in settings else "set SEA_KEY"

    suite = PluginTestSuite("calm", [], settings)
    results = await check_plugin_contract(Plugin("sea", missing_settings=missing_settings, tests=[suite]))
    assert len([result for result in results if "set SEA_KEY" in result.skipped]) == skipped
    assert not [result for result in results if result.problems]
