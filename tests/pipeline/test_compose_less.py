"""Prompts that are too long for the model: what is shortened, and how often the model is asked."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome, ProviderResult
from bot.errors import PromptTooLong
from bot.models.handler import count_prompt_bytes
from bot.models.types import ModelInfo, ModelType, Purpose, TextRequest, TextResult
from bot.pipeline.compose import Composer
from bot.pipeline.respond import MAX_ANSWERED_INPUTS, respond
from bot.plugin_system.components import model as model_handler
from bot.plugin_system.components import provider
from bot.plugin_system.plugin import Plugin
from bot.testing import ScriptedModel, make_turn, model_answer, running_agent
from bot.text import HistoryLine, parse_history, render_history, truncate_history
from bot.turn import Agent, Turn

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


def picky(purpose: Purpose, message: str) -> ScriptedModel:
    """Find the first prompt for a purpose too long."""
    asked: list[TextRequest] = []

    def script(request: TextRequest) -> str:
        if request.purpose is not purpose:
            return model_answer("Aye.")
        asked.append(request)
        if len(asked) == 1:
            raise PromptTooLong("4096")
        return message

    return ScriptedModel(script)


@pytest.mark.failure("E-05")
@pytest.mark.parametrize(
    ("purpose", "message", "settings", "details"),
    [
        (Purpose.REPLY, model_answer("Aye."), {}, {}),
        (Purpose.SHOULD_RESPOND, "<response><action>RESPOND</action></response>", {}, GROUP),
        (Purpose.STEP, "<response><isFinish>true</isFinish></response>", {"USE_MULTI_STEP": "true"}, {}),
        (Purpose.SUMMARY, "<response><text>Aye.</text></response>", {"USE_MULTI_STEP": "true"}, {}),
    ],
)
async def test_a_prompt_that_is_too_long_is_shortened_and_retried_once(
    purpose: Purpose, message: str, settings: dict[str, str], details: dict[str, ChannelType]
) -> None:
    model = picky(purpose, message)
    async with running_agent(PLACES, model=model, settings=settings) as harness:
        receipt = await harness.send("when is high water?", **details)

    first, second = model.requests_for(purpose)
    assert receipt.outcome is Outcome.ANSWERED
    assert "the prompt was too long for the model; it was asked with less of" in receipt.notes[0]
    assert len(second.prompt) < len(first.prompt)
    assert second.system == first.system


async def test_texts_of_default_providers_are_cut_to_their_beginning_until_the_prompt_fits() -> None:
    model = picky(Purpose.REPLY, model_answer("Aye."))
    async with running_agent(PLACES, model=model) as harness:
        receipt = await harness.send("when is high water?")

    first, second = model.requests_for(Purpose.REPLY)
    size = count_prompt_bytes(first)
    assert first.prompt.count("High water at noon.") == 1_000
    assert size * 0.4 < count_prompt_bytes(second) <= size // 2
    assert "High water at noon." in second.prompt
    assert receipt.notes[0].endswith("less of TIDES")


def model_with(window: int, requests: list[TextRequest]) -> Plugin:
    """Return a plugin with a model behind a server that reports its context window."""

    async def describe(agent: Agent) -> ModelInfo:
        return ModelInfo("small", context_length=window)

    async def write(agent: Agent, request: TextRequest) -> TextResult:
        requests.append(request)
        return TextResult(model_answer("Aye."))

    decorate = partial(model_handler, priority=1, describe_model=describe)
    return Plugin("windowed", models=[decorate(ModelType.TEXT_LARGE)(write), decorate(ModelType.TEXT_SMALL)(write)])


@pytest.mark.long
async def test_a_prompt_is_fitted_to_the_window_that_the_server_reports_before_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests: list[TextRequest] = []
    async with running_agent(PLACES, model_with(2_048, requests)) as harness:
        receipts = [await harness.send(f"message {n}: " + "when is high water? " * 40) for n in range(12)]

    assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 12
    assert len(requests) == 12
    assert all(count_prompt_bytes(request) <= (2_048 - 512 - 64) * 3 for request in requests)
    assert all(request.max_tokens and 64 <= request.max_tokens <= 512 for request in requests)
    assert all(f"message {n}: " in request.prompt for n, request in enumerate(requests))
    assert len([record for record in caplog.records if "prompts are shortened" in record.message]) == 1


async def test_a_single_message_longer_than_the_window_is_shortened_too() -> None:
    requests: list[TextRequest] = []
    async with running_agent(model_with(2_048, requests)) as harness:
        receipt = await harness.send("high water " * 3_000)

    [request] = requests
    assert receipt.outcome is Outcome.ANSWERED
    assert count_prompt_bytes(request) <= (2_048 - 512 - 64) * 3
    assert "high water high water" in request.prompt


async def test_a_window_named_in_an_error_is_remembered() -> None:
    message = "This model's maximum context length is 2048 tokens. However, your messages resulted in 9000 tokens."
    asked: list[TextRequest] = []

    def script(request: TextRequest) -> str:
        asked.append(request)
        if len(asked) == 1:
            raise PromptTooLong(message)
        return model_answer("Aye.")

    async with running_agent(PLACES, model=ScriptedModel(script)) as harness:
        await harness.send("when is high water?")
        receipt = await harness.send("and when is low water?")

    sizes = [count_prompt_bytes(request) for request in asked]
    assert receipt.outcome is Outcome.ANSWERED
    assert len(sizes) == 3
    assert max(sizes[1:]) < 2_048 * 4


@pytest.mark.failure("E-08")
async def test_only_the_newest_of_many_open_messages_are_shown_and_the_receipt_says_so() -> None:
    async with running_agent() as harness:
        turn = make_turn(harness.agent, "message 0")
        for number in range(1, 50):
            turn.inputs += make_turn(harness.agent, f"message {number}").inputs
        await respond(turn, Composer(harness.agent_runtime.registry))

    [request] = harness.model.requests
    _, _, listed = request.prompt.partition("Nobody has answered these yet")
    shown = parse_history(listed)
    assert turn.notes == ["of 50 messages the newest 20 were shown as still open"]
    assert [line.text for line in shown] == [f"message {n}" for n in range(50 - MAX_ANSWERED_INPUTS, 50)]
