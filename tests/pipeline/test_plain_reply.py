"""Replies as plain text: for models that are too small to write a form, or where the operator says so."""

import pytest

from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome
from bot.models.types import ModelInfo, ModelType, Purpose, TextRequest, TextResult
from bot.plugin_system.components import model as model_handler
from bot.plugin_system.plugin import Plugin
from bot.testing import ScriptedModel, running_agent
from bot.turn import Agent

PLAIN = {"MODEL_ANSWER_FORM": "text"}


def model_of_size(parameter_count: int | None, requests: list[TextRequest]) -> Plugin:
    """Return a plugin with a model of this size, which answers "Aye."."""

    async def describe(agent: Agent) -> ModelInfo:
        return ModelInfo("m", parameter_count=parameter_count)

    async def write(agent: Agent, request: TextRequest) -> TextResult:
        requests.append(request)
        return TextResult("Aye.", "m")

    handler = model_handler(ModelType.TEXT_LARGE, priority=1, describe_model=describe)(write)
    return Plugin("sized", models=[handler])


@pytest.mark.parametrize(
    ("parameter_count", "is_plain"), [(135_000_000, True), (999_999_999, True), (3_000_000_000, False), (None, False)]
)
async def test_a_model_of_less_than_a_billion_parameters_is_asked_for_plain_text(
    parameter_count: int | None, is_plain: bool
) -> None:
    requests: list[TextRequest] = []
    async with running_agent(model_of_size(parameter_count, requests)) as harness:
        receipt = await harness.send("is it high water?")

    assert (receipt.outcome, harness.texts) == (Outcome.ANSWERED, ["Aye."])
    assert (requests[0].prompt == "is it high water?") is is_plain
    assert ("<response>" not in requests[0].prompt) is is_plain


async def test_the_request_is_the_message_and_the_earlier_conversation_is_in_the_system_prompt() -> None:
    model = ScriptedModel(["Good morning, Kim.", "At noon."])
    async with running_agent(model=model, settings=PLAIN) as harness:
        await harness.send("Good morning!")
        await harness.send("when is high water?")

    [first, second] = model.requests_for(Purpose.REPLY)
    own_name = harness.agent.name
    assert (first.prompt, second.prompt) == ("Good morning!", "when is high water?")
    assert "Earlier" not in first.system
    earlier = second.system.partition("Earlier in this conversation:\n")[2]
    assert [line.partition(": ")[2] for line in earlier.splitlines()] == ["Good morning!", "Good morning, Kim."]
    assert earlier.splitlines()[1].startswith(f"{own_name}: ")
    assert not second.tools
    assert second.schema is None
    assert harness.texts == ["Good morning, Kim.", "At noon."]


async def test_in_a_group_the_messages_have_the_names_of_their_authors() -> None:
    model = ScriptedModel(["Aye."])
    async with running_agent(model=model, settings=PLAIN) as harness:
        await harness.send(f"{harness.agent.name}, is it high water?", kind=ChannelType.GROUP)

    [request] = model.requests_for(Purpose.REPLY)
    name, _, text = request.prompt.partition(": ")
    assert name
    assert text == f"{harness.agent.name}, is it high water?"


async def test_an_answer_in_a_form_is_read_all_the_same_but_runs_no_action() -> None:
    text = "<response><actions>MUTE_ROOM</actions><text>Aye.</text></response>"
    async with running_agent(model=ScriptedModel(text), settings=PLAIN) as harness:
        receipt = await harness.send("be quiet")

    assert (receipt.outcome, harness.texts) == (Outcome.ANSWERED, ["Aye."])


async def test_a_model_that_writes_nothing_is_asked_twice_and_fails() -> None:
    model = ScriptedModel("")
    async with running_agent(model=model, settings=PLAIN) as harness:
        receipt = await harness.send("hello?")

    assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, "NoAnswer")
    assert len(model.requests_for(Purpose.REPLY)) == 2


async def test_a_long_message_is_shortened_to_the_context_window() -> None:
    requests: list[TextRequest] = []

    async def describe(agent: Agent) -> ModelInfo:
        return ModelInfo("m", parameter_count=1, context_length=1_024)

    async def write(agent: Agent, request: TextRequest) -> TextResult:
        requests.append(request)
        return TextResult("Aye.", "m")

    handler = model_handler(ModelType.TEXT_LARGE, priority=1, describe_model=describe)(write)
    async with running_agent(Plugin("small", models=[handler])) as harness:
        receipt = await harness.send("high water " * 2_000)

    assert receipt.outcome is Outcome.ANSWERED
    assert len(requests) == 1
    assert "high water" in requests[0].prompt
    assert len(requests[0].prompt + requests[0].system) <= (1_024 - 256 - 64) * 3
