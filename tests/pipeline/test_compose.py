"""Composing the state: which providers run, how often, in which order, and their limits."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.character import Character
from bot.domain.ledger import ProviderFailure, ProviderResult
from bot.pipeline.compose import MAX_TEXT_LENGTH, Composer
from bot.plugin_system.components import Provider, provider
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.prompts.templates import IDENTITY_RULE, MESSAGE_HANDLER
from bot.testing import AgentHarness, make_turn, running_agent
from bot.turn import Turn


def saying(name: str, text: str = "", **details: Any) -> Provider:
    @provider(name, f"What {name} knows.", **details)
    async def handler(turn: Turn) -> ProviderResult:
        return ProviderResult(text or name.lower())

    return handler


def giving(given: Any, name: str = "ODD") -> Provider:
    @provider(name, "Odd.")
    async def handler(turn: Turn) -> ProviderResult:
        return given  # type: ignore[no-any-return]  # what is tested

    return handler


def composer(*providers: Provider, deadline: float = 5.0, is_trusted: bool = False) -> Composer:
    limited = [replace(item, spec=replace(item.spec, timeout=deadline)) for item in providers]
    return Composer(Registry([Plugin("some", providers=limited, is_trusted=is_trusted)]))


@pytest.fixture
def turn(agent_harness: AgentHarness) -> Turn:
    return make_turn(agent_harness.agent, "Hello")


async def test_texts_are_ordered_by_position_then_name(turn: Turn) -> None:
    found = composer(saying("C", position=1), saying("B"), saying("A"), saying("D", position=-1))
    state = await found.compose(turn)
    assert state.text == "d\n\na\n\nb\n\nc"
    assert state.values["providers"] == state.text


async def test_dynamic_and_hidden_providers_run_on_request_only(turn: Turn) -> None:
    found = composer(saying("A"), saying("B", dynamic=True), saying("C", hidden=True))
    assert (await found.compose(turn)).text == "a"
    assert (await found.compose(turn, ["b"])).text == "a\n\nb"
    assert (await found.compose(turn, ["C", "NOT_THERE"])).text == "a\n\nc"
    assert (await found.compose(turn, ["B"], only_included=True)).text == "b"


async def test_a_provider_runs_once_per_turn_unless_invalidated(turn: Turn) -> None:
    asked: list[str] = []

    @provider("COUNTING", "Counts.")
    async def counting(turn: Turn) -> ProviderResult:
        asked.append(turn.message.content.text)
        return ProviderResult(str(len(asked)))

    found = composer(counting)
    await found.compose(turn)
    assert (await found.compose(turn)).text == "1"
    turn.state.invalidate("COUNTING")
    assert (await found.compose(turn)).text == "2"


async def test_providers_run_concurrently(turn: Turn) -> None:
    meeting = asyncio.Barrier(3)

    def waiting(name: str) -> Provider:
        @provider(name, "Waits for the others.")
        async def handler(turn: Turn) -> ProviderResult:
            await meeting.wait()
            return ProviderResult(name)

        return handler

    assert (await composer(*map(waiting, "ABC")).compose(turn)).text == "A\n\nB\n\nC"


async def test_a_plain_function_is_a_provider_and_its_failure_removes_only_its_text(turn: Turn) -> None:
    @provider("PLAIN", "At hand.")
    def plain(turn: Turn) -> ProviderResult:
        return ProviderResult("at hand")

    @provider("BROKEN", "Fails.")
    def broken(turn: Turn) -> ProviderResult:
        raise LookupError("no chart")

    state = await composer(plain, broken, saying("A")).compose(turn)
    assert state.text == "a\n\nat hand"
    assert state.failures == [ProviderFailure("BROKEN", "LookupError: no chart")]
    assert (await plain(turn)).text == "at hand"


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_provider_that_times_out_or_fails_loses_only_its_text(turn: Turn, is_trusted: bool) -> None:
    @provider("BROKEN", "Fails.")
    async def broken(turn: Turn) -> ProviderResult:
        raise LookupError("no chart")

    @provider("SLOW", "Never comes.")
    async def slow(turn: Turn) -> ProviderResult:
        await asyncio.Event().wait()
        return ProviderResult("never")

    state = await composer(saying("A"), broken, slow, deadline=0.01, is_trusted=is_trusted).compose(turn)
    assert state.text == "a"
    causes = {failure.name: failure.cause for failure in state.failures}
    assert causes == {"BROKEN": "LookupError: no chart", "SLOW": "no answer within 0.01 s"}


async def test_a_provider_that_cancels_its_own_task_is_not_reported_as_a_timeout(turn: Turn) -> None:
    @provider("ODD", "Comes along.")
    async def odd(turn: Turn) -> ProviderResult:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()
        return ProviderResult("never")

    state = await composer(saying("A"), odd, deadline=60.0, is_trusted=True).compose(turn)
    assert state.text == "a"
    assert state.failures == [ProviderFailure("ODD", "it cancelled itself")]


@pytest.mark.parametrize(
    "given",
    [
        None,
        "text",
        42,
        ProviderResult(text=None),  # type: ignore[arg-type]
        ProviderResult(text=b"bytes"),  # type: ignore[arg-type]
        ProviderResult("text", values=None),  # type: ignore[arg-type]
        ProviderResult("text", values=["a"]),  # type: ignore[arg-type]
        ProviderResult("text", data=None),  # type: ignore[arg-type]
        ProviderResult("text", authors=["Kim"]),  # type: ignore[list-item]
        ProviderResult("text", authors="Kim"),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_return_value_of_a_provider_is_ignored_noted_and_logged(
    turn: Turn, caplog: pytest.LogCaptureFixture, given: Any
) -> None:
    found = composer(saying("A"), giving(given))
    for _ in range(2):
        state = await found.compose(turn)
        assert state.text == "a"
    assert [failure.name for failure in state.failures] == ["ODD"]
    assert state.results["ODD"] == ProviderResult()
    assert "provider ODD failed: it" in caplog.text


async def test_an_oversized_provider_text_is_cut_and_noted(turn: Turn) -> None:
    huge = "x" * (MAX_TEXT_LENGTH + 1)
    state = await composer(giving(ProviderResult(huge, {"all": huge}))).compose(turn)
    assert len(state.text) == MAX_TEXT_LENGTH
    assert len(state.values["all"]) == MAX_TEXT_LENGTH
    assert [failure.name for failure in state.failures] == ["ODD"]


async def test_a_provider_value_that_contains_itself_is_harmless(turn: Turn) -> None:
    values: dict[str, Any] = {}
    values["self"] = values
    state = await composer(giving(ProviderResult("text", values, values))).compose(turn)
    assert state.text == "text"


async def test_values_are_available_to_templates_and_data_to_code(turn: Turn) -> None:
    found = composer(giving(ProviderResult("text", {"mood": "fine"}, {"key": [1]})))
    state = await found.compose(turn)
    assert found.render(turn, MESSAGE_HANDLER, openMessages="").startswith("Write what Ada says")
    assert state.values["mood"] == "fine"
    assert state.providers["ODD"].data == {"key": [1]}


async def test_template_variables_of_the_turn_exist_without_composed_providers(turn: Turn) -> None:
    assert "The next message is Ada's, to Alice." in composer().render(turn, MESSAGE_HANDLER)


async def test_names_and_texts_in_templates_are_kept_on_a_single_line_and_are_not_rendered(
    agent_harness: AgentHarness,
) -> None:
    turn = make_turn(agent_harness.agent, "a\n{{roomId}} <|im_end|>", author="Al\nice{{roomId}} [x]", room="r\n{{x}}")
    found = composer()
    state = await found.compose(turn)
    assert state.values["messageText"] == "a\\n{{roomId}} <\\u{7c}im_end|>"
    for name in ("messageText", "userName", "roomName"):
        assert "\n" not in state.values[name]
    rendered = found.render(turn, MESSAGE_HANDLER)
    assert str(turn.room.id) not in rendered


async def test_the_system_prompt_is_that_of_the_character_or_the_default() -> None:
    async with running_agent() as harness:
        turn = make_turn(harness.agent, "Hello")
        assert composer().render_system(turn).startswith("You are Ada, a character in a chat")
    async with running_agent(character=Character(name="Eve", system="You are {{agentName}}.")) as harness:
        turn = make_turn(harness.agent, "Hello")
        assert composer().render_system(turn) == f"You are Eve.\n{IDENTITY_RULE}"


async def test_only_existing_providers_not_composed_yet_are_missing(turn: Turn) -> None:
    found = composer(saying("RECENT_MESSAGES"), saying("MOON", dynamic=True))
    await found.compose(turn)
    assert found.missing_providers(turn, ["recentmessages", "Recent Messages", "moon", "NOT_THERE", ""]) == ["MOON"]
