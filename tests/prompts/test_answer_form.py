"""Templates that request JSON by a schema instead of tags."""

import json

import pytest

from bot.models.handler import AnswerFormSetting
from bot.prompts.templates import DEFAULTS, MESSAGE_HANDLER, MULTI_STEP_DECISION, SHOULD_RESPOND, request_json
from bot.testing import ScriptedModel, model_answer, running_agent

TAGGED = "Say so in <text>.\n<response>\n<thought>why</thought>\n<text>the words</text>\n</response>\nNow.\n"


def test_a_template_with_tags_becomes_a_template_with_json_and_a_schema() -> None:
    converted = request_json(TAGGED)
    assert converted is not None
    template, schema = converted
    assert template == 'Say so in "text".\n{\n"thought": "why",\n"text": "the words"\n}\nNow.\n'
    assert schema["required"] == ["thought", "text"]


def test_choices_and_truth_values_are_in_the_schema() -> None:
    decision, step = request_json(DEFAULTS[SHOULD_RESPOND]), request_json(DEFAULTS[MULTI_STEP_DECISION])
    assert decision is not None
    assert step is not None
    assert decision[1]["properties"]["action"]["enum"] == ["RESPOND", "IGNORE", "STOP"]
    assert "emoji" not in decision[1]["properties"]
    reacting = request_json(DEFAULTS[SHOULD_RESPOND], frozenset({"reactions"}))
    assert reacting is not None
    assert reacting[1]["properties"]["action"]["enum"] == ["RESPOND", "REACT", "IGNORE", "STOP"]
    assert reacting[1]["properties"]["emoji"] == {"type": "string"}
    assert "{{else}}" not in reacting[0].partition("{\n")[2].partition("}")[0]
    assert step[1]["properties"]["isFinish"] == {"type": "boolean"}
    assert step[1]["properties"]["parameters"] == {"type": "object"}


@pytest.mark.parametrize(
    "template",
    [
        "Just talk.",
        f"{TAGGED}{TAGGED}",
        "<response>\n<facts>\n<fact>one</fact>\n</facts>\n</response>",
        "<response></response>",
    ],
)
def test_a_template_without_a_single_flat_form_is_left_unchanged(template: str) -> None:
    assert request_json(template) is None


@pytest.mark.parametrize(
    ("can_write", "setting", "is_json"),
    [(True, "auto", True), (False, "auto", False), (True, "tags", False), (False, "json", True)],
)
async def test_json_is_requested_where_the_server_writes_it_or_the_operator_says_so(
    can_write: bool, setting: str, is_json: bool
) -> None:
    answer = json.dumps({"thought": "", "actions": "REPLY", "parameters": {}, "providers": "", "text": "Hello <b>!"})
    model = ScriptedModel(answer if is_json else model_answer("Hello <b>!"), can_write_json=can_write)
    async with running_agent(model=model, settings={"MODEL_ANSWER_FORM": setting}) as harness:
        await harness.send("hi")
    [request] = [request for request in harness.model.requests if "next in this conversation" in request.prompt]
    assert harness.texts == ["Hello <b>!"]
    assert (request.schema is not None) == is_json
    assert ("<response>" in request.prompt) != is_json


async def test_an_answer_in_tags_is_read_where_json_was_requested() -> None:
    async with running_agent(model=ScriptedModel(model_answer("Hello."), can_write_json=True)) as harness:
        await harness.send("hi")
    assert harness.texts == ["Hello."]


def test_every_form_can_be_set() -> None:
    assert set(AnswerFormSetting) == {"auto", "tags", "json", "text"}
    assert request_json(DEFAULTS[MESSAGE_HANDLER]) is not None
