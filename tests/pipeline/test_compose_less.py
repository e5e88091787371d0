"""Prompts that are too long for the model: what is shortened, and how often the model is asked."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome
from bot.domain.results import ProviderResult
from bot.errors import PromptTooLong
from bot.models.types import Purpose, TextRequest
from bot.pipeline.compose import MAX_SHORTENED_LENGTH, Composer
from bot.pipeline.respond import MAX_ANSWERED_INPUTS, respond
from bot.plugin_system.components import provider
from bot.plugin_system.plugin import Plugin
from bot.prompts.history import HistoryLine, parse_history, render_history, truncate_history
from bot.testing import ScriptedModel, make_turn, model_answer, running_agent
from bot.turn import Turn

GROUP = {"kind": ChannelType.GROUP}
START = datetime(2026, 11, 21, 23, 58, tzinfo=UTC)


def lines(count: int) -> list[HistoryLine]:
    return [HistoryLine(START + timedelta(minutes=n), "Kim", "1a", f"message {n}") for n in range(count)]


def test_a_shortened_history_has_its_newest_lines_with_heading_and_day() -> None:
    history = "# Conversation\n" + render_history(lines(6))
    newest = render_history(lines(6)[-2:])
    assert truncate_history(history, 70) == f"# Conversation\n{newest}"


def test_a_short_history_is_not_shortened() -> None:
    history = render_history(lines(3))
    assert truncate_history(history, len(history)) == history
    assert truncate_history("", 0) == ""


def test_the_newest_line_is_never_dropped() -> None:
    assert [line.text for line in parse_history(truncate_history(render_history(lines(3)), 1))] == ["message 2"]


@provider("TIDES", "The tides.", position=50)
def tides(turn: Turn) -> ProviderResult:
    return ProviderResult("High water at noon. " * 1_000, {"tides": "noon " * 1_000, "moons": [1, 2]})


PLACES = Plugin("places", providers=[tides])


def picky(purpose: Purpose, said: str) -> ScriptedModel:
    """Find the first prompt for a purpose too long."""
    asked: list[TextRequest] = []

    def script(request: TextRequest) -> str:
        if request.purpose is not purpose:
            return model_answer("Aye.")
        asked.append(request)
        if len(asked) == 1:
            raise PromptTooLong("4096")
        return said

    return ScriptedModel(script)


@pytest.mark.failure("E-05")
@pytest.mark.parametrize(
    ("purpose", "said", "settings", "details"),
    [
        (Purpose.REPLY, model_answer("Aye."), {}, {}),
        (Purpose.SHOULD_RESPOND, "<response><action>RESPOND</action></response>", {}, GROUP),
        (Purpose.STEP, "<response><isFinish>true</isFinish></response>", {"USE_MULTI_STEP": "true"}, {}),
        (Purpose.SUMMARY, "<response><text>Aye.</text></response>", {"USE_MULTI_STEP": "true"}, {}),
    ],
)
async def test_a_prompt_that_is_too_long_is_shortened_and_retried_once(
    purpose: Purpose, said: str, settings: dict[str, str], details: dict[str, ChannelType]
) -> None:
    model = picky(purpose, said)
    async with running_agent(PLACES, model=model, settings=settings) as stage:
        receipt = await stage.send("when is high water?", **details)

    first, second = model.requests_for(purpose)
    assert receipt.outcome is Outcome.ANSWERED
    assert "the prompt was too long for the model; it was asked with less of" in receipt.notes[0]
    assert len(second.prompt) < len(first.prompt)
    assert second.system == first.system


async def test_texts_of_default_providers_are_cut_to_their_beginning() -> None:
    model = picky(Purpose.REPLY, model_answer("Aye."))
    async with running_agent(PLACES, model=model) as stage:
        receipt = await stage.send("when is high water?")

    first, second = model.requests_for(Purpose.REPLY)
    assert first.prompt.count("High water at noon.") == 1_000
    assert second.prompt.count("High water at noon.") == MAX_SHORTENED_LENGTH // len("High water at noon. ")
    assert receipt.notes[0].endswith("less of WORLD, ENTITIES, TIDES")


@pytest.mark.failure("E-08")
async def test_only_the_newest_of_many_open_messages_are_shown_and_the_receipt_says_so() -> None:
    async with running_agent() as stage:
        turn = make_turn(stage.agent, "message 0")
        for number in range(1, 50):
            turn.inputs += make_turn(stage.agent, f"message {number}").inputs
        await respond(turn, Composer(stage.agent_runtime.registry))

    [request] = stage.model.requests
    _, _, listed = request.prompt.partition("Nobody has answered these yet")
    shown = parse_history(listed)
    assert turn.notes == ["of 50 messages the newest 20 were shown as still open"]
    assert [line.text for line in shown] == [f"message {n}" for n in range(50 - MAX_ANSWERED_INPUTS, 50)]
