"""Rules of the anthropic plugin, through the real SDK, against a server that speaks its API."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import unused_port
from pydantic import BaseModel

from bot.events import ModelUsed
from bot.models import (
    ImageDescriptionRequest,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelType,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
    TextRequest,
    TextResult,
    Tool,
    ToolCall,
    ToolsRefused,
    Usage,
)
from bot.testing import AgentHarness, ScriptedModel, running_agent
from plugins.anthropic import plugin
from plugins.anthropic.client import Client, large
from tests.plugins.loopback import Answer, Cut, Hang, Loopback, Sink, loopback, patient

KEY = "sk-ant-a-key-of-the-tests"
ANSWER_TEXT = "<response><thought>t</thought><actions>REPLY</actions><text>Hello from there.</text></response>"
ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 85, "output_tokens": 20}


def message(*content: dict[str, Any], stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    blocks = list(content) or [{"type": "text", "text": ANSWER_TEXT}]
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "usage": USAGE}
    return {**about, "content": blocks, "stop_reason": stop, **more}


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


START = event("message_start", message=message(stop="", content=[]))
BEGIN = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
STOP = event("content_block_stop", index=0), event("message_stop")


def wrote(text: str, index: int = 0) -> str:
    return event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def filled(text: str, index: int) -> str:
    given = {"type": "input_json_delta", "partial_json": text}
    return event("content_block_delta", index=index, delta=given)


def ended(reason: str = "end_turn", **more: Any) -> str:
    return event("message_delta", delta={"stop_reason": reason, **more}, usage={"output_tokens": 33})


def error(kind: str, words: str = "no luck", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": words, **more}}


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        found.answers = [Answer(message())]
        yield found


@pytest.fixture
async def there(api: Loopback) -> AsyncIterator[AgentHarness]:
    def never(request: TextRequest) -> str:
        raise ModelUnavailable("the second model was asked")

    settings = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_LARGE_MODEL": "large",
        "ANTHROPIC_SMALL_MODEL": "small",
    }
    async with running_agent(plugin, model=ScriptedModel(never), settings=settings) as harness:
        yield harness


async def ask(harness: AgentHarness, **details: Any) -> TextResult:
    request = TextRequest("the prompt", **details)
    return await harness.agent.services[Client].write("large", request)


@pytest.mark.long
async def test_a_text_comes_with_its_model_and_all_its_tokens_the_cached_ones_apart(
    there: AgentHarness, api: Loopback
) -> None:
    assert await ask(there) == TextResult(ANSWER_TEXT, "claude-1", Usage(100, 20, 85))
    [asked] = api.asked
    assert asked.path == "/v1/messages"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.json == {"model": "large", "messages": [{"role": "user", "content": "the prompt"}], "max_tokens": 4096}


@pytest.mark.long
async def test_where_no_process_listens_the_model_is_unreachable_and_the_error_says_what_to_check() -> None:
    settings = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{unused_port()}"}
    async with running_agent(plugin, settings=settings) as harness:
        with pytest.raises(
            ModelUnreachable, match=r"cannot connect to 127\.0\.0\.1:\d+: .*; check the network and ANTHR"
        ):
            await ask(harness)


@pytest.mark.long
async def test_the_beginning_that_all_requests_share_is_marked_for_the_cache(
    there: AgentHarness, api: Loopback
) -> None:
    await ask(there, system="You are Ada.")

    assert api.bodies[0]["system"] == [{"type": "text", "text": "You are Ada.", "cache_control": {"type": "ephemeral"}}]


async def test_only_what_is_set_is_sent(there: AgentHarness, api: Loopback) -> None:
    await ask(there, max_tokens=5, temperature=1.7, top_p=0.5, top_k=3, seed=7, stop=("x",))
    sent = {key: value for key, value in api.bodies[0].items() if key not in ("model", "messages")}

    assert sent == {"max_tokens": 5, "temperature": 1.0, "top_p": 0.5, "top_k": 3, "stop_sequences": ["x"]}


async def test_what_a_model_refuses_to_be_asked_with_is_left_out_from_then_on(
    there: AgentHarness, api: Loopback
) -> None:
    refusal = error("invalid_request_error", "`temperature` and `top_p` cannot both be specified")
    api.answers = [Answer(refusal, 400), Answer(message())]
    for _ in range(2):
        await ask(there, temperature=0.5, top_p=0.5)

    assert ["top_p" in sent for sent in api.bodies] == [True, False, False]
    assert all(sent["temperature"] == 0.5 for sent in api.bodies)


async def test_an_answered_message_costs_a_single_call_to_the_large_model(there: AgentHarness, api: Loopback) -> None:
    receipt = await there.send("hi")

    assert there.texts == ["Hello from there."]
    [call] = receipt.model_calls
    assert (call.tokens_in, call.tokens_out, call.tokens_cached, call.is_estimate) == (100, 20, 85, False)
    assert [sent["model"] for sent in api.bodies] == ["large"]


@pytest.mark.failure("E-11")
@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": -1, "output_tokens": 1}, {"input_tokens": "many", "output_tokens": 1}]
)
async def test_numbers_that_make_no_sense_are_left_to_be_estimated(
    there: AgentHarness, api: Loopback, usage: Any
) -> None:
    api.answers = [Answer(message(usage=usage))]

    assert (await ask(there)).usage is None


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
async def test_a_text_that_was_cut_says_so(there: AgentHarness, api: Loopback, stop: str) -> None:
    api.answers = [Answer(message(stop=stop))]

    assert (await ask(there)).is_truncated


@pytest.mark.failure("E-07")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (message({"type": "text", "text": "I can't."}, stop="refusal"), "I would rather not answer that."),
        (message(stop="refusal", content=[], stop_details={"explanation": "Not this."}), "Not this."),
        (message(stop="refusal", content=[]), "I would rather not answer that."),
    ],
)
async def test_a_refusal_is_a_reply_and_not_tried_again(
    there: AgentHarness, api: Loopback, answer: dict[str, Any], text: str
) -> None:
    api.answers = [Answer(answer)]
    await there.send("hi")

    assert there.texts == [text]
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, error("authentication_error"), ModelRefused, "refused the key in ANTHROPIC_API_KEY (401)"),
        (402, error("billing_error"), ModelRefused, "no credit left"),
        (429, error("x", details={"error_code": "enforced_spend_limit_reached"}), ModelRefused, "no credit"),
        (400, error("invalid_request_error", "credit balance is low"), ModelRefused, "credit balance"),
        (403, error("permission_error"), ModelRefused, "refused the request (403)"),
        (404, error("not_found_error"), ModelRefused, "check ANTHROPIC_LARGE_MODEL"),
        (413, error("request_too_large"), ModelRefused, "(413)"),
        (400, error("x", "prompt is too long: 9 tokens > 8 maximum"), PromptTooLong, "too long"),
        (429, error("rate_limit_error"), ModelBusy, "(429)"),
        (500, error("api_error"), ModelBusy, "(500)"),
        (529, error("overloaded_error"), ModelBusy, "(529)"),
        (502, "<html>bad gateway</html>", ModelBusy, "(502)"),
    ],
)
async def test_an_error_says_what_it_means_and_what_to_do(
    there: AgentHarness, api: Loopback, status: int, body: Any, kind: type[ModelError], words: str
) -> None:
    api.answers = [Answer(body, status)]
    with pytest.raises(kind) as raised:
        await ask(there)

    assert type(raised.value) is kind
    assert words in str(raised.value)
    assert len(api.asked) == 1


async def test_the_key_is_never_in_an_error(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(error("invalid_request_error", f"bad\nkey {KEY}"), 400)]
    with pytest.raises(ModelRefused) as raised:
        await ask(there)

    assert KEY not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.failure("E-01")
async def test_an_overloaded_model_is_asked_again_when_it_says(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(error("overloaded_error"), 529, {"Retry-After": "3"}), Answer(message())]
    waits: list[float] = []
    result = await patient(there, large, waits).text(TextRequest("the prompt"))

    assert result.text == ANSWER_TEXT
    assert len(waits) == 1
    assert waits[0] >= 3


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<html>not an API</html>", content_type="text/html"),
        Answer("{broken"),
        Answer(""),
        Answer([]),
        Answer({"type": "message"}),
        Answer(message(content=7)),
    ],
)
async def test_an_answer_of_another_shape_is_an_error_of_the_model(
    there: AgentHarness, api: Loopback, answer: Answer
) -> None:
    api.answers = [answer]
    with pytest.raises(ModelError, match=r"^anthropic: large returned no valid message"):
        await ask(there)


async def test_pieces_are_shown_as_they_come_thoughts_are_not(there: AgentHarness, api: Loopback) -> None:
    go, sink = asyncio.Event(), Sink()
    thinking = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm."})
    before = (START, event("ping"), thinking, BEGIN)
    api.answers = [Answer(events=(*before, wrote("Hel"), go, wrote("lo."), ended(), *STOP))]
    task = asyncio.ensure_future(ask(there, sink=sink))
    await sink.first.wait()
    assert sink.seen == ["Hel"]
    go.set()

    assert await task == TextResult("Hello.", "claude-1", Usage(100, 33, 85))
    assert sink.seen == ["Hel", "lo."]


@pytest.mark.failure("E-03")
@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ((Cut(),), ModelBusy),
        ((), ModelBusy),
        (("event: x\ndata: {broken\n\n",), ModelBusy),
        ((f"event: error\ndata: {json.dumps(error('overloaded_error'))}\n\n",), ModelBusy),
        ((f"event: error\ndata: {json.dumps(error('invalid_request_error'))}\n\n",), ModelError),
    ],
)
async def test_an_answer_that_breaks_off_is_no_answer(
    there: AgentHarness, api: Loopback, broken: tuple[Any, ...], kind: type[ModelError]
) -> None:
    api.answers = [Answer(events=(START, BEGIN, wrote("Hel"), *broken))]
    with pytest.raises(ModelError, match=r"^anthropic: .*broke") as raised:
        await ask(there, sink=Sink())

    assert type(raised.value) is kind


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        message(content=ANSWER_TEXT),
        message(content={"type": "text", "text": ANSWER_TEXT}),
        message(content=[None, {"type": "text", "text": ANSWER_TEXT}, None]),
        message(content=[{"text": ANSWER_TEXT}]),
        message(content=[ANSWER_TEXT]),
        message({"type": "thinking", "thinking": "Hm.", "text": "Hm."}, {"type": "text", "text": ANSWER_TEXT}),
        message(stop="a_new_reason"),
        message(usage=None, model=None, stop=None),
    ],
)
async def test_other_forms_of_a_message_are_read_also_where_a_stream_was_requested(
    there: AgentHarness, api: Loopback, body: dict[str, Any], is_streamed: bool
) -> None:
    api.answers = [Answer(body)]

    assert (await ask(there, sink=Sink() if is_streamed else None)).text == ANSWER_TEXT


@pytest.mark.matrix(3)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("content_type", ["text/event-stream", "text/plain"])
@pytest.mark.parametrize(
    "events",
    [
        (START, BEGIN, wrote(ANSWER_TEXT), ended(), *STOP, "data: [DONE]\n\n"),
        (START, BEGIN, wrote(ANSWER_TEXT), ended()),
        (START, "data: null\n\n", event("content_block_start", index=0, content_block=None), wrote(ANSWER_TEXT), *STOP),
        (START, event("content_block_start", content_block={"type": "text", "text": ANSWER_TEXT}), *STOP),
        (START, event("content_block_start", index=0, content_block={"type": "thinking", "text": "Hm."}),
         wrote("Hm."), wrote(ANSWER_TEXT, 1), *STOP),
        (f"data: {json.dumps(message())}\n\n",),
    ],
)  # fmt: skip
async def test_other_forms_of_a_stream_are_read_also_where_none_was_requested(
    there: AgentHarness, api: Loopback, events: tuple[str, ...], content_type: str, is_streamed: bool
) -> None:
    api.answers = [Answer("".join(events), content_type=content_type)]

    assert (await ask(there, sink=Sink() if is_streamed else None)).text == ANSWER_TEXT


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("kind", "error_type"), [("overloaded_error", ModelBusy), ("invalid_request_error", ModelError)]
)
async def test_an_error_with_the_status_of_a_success_is_an_error(
    there: AgentHarness, api: Loopback, kind: str, error_type: type[ModelError], is_streamed: bool
) -> None:
    api.answers = [Answer(error(kind))]
    with pytest.raises(ModelError, match="no luck") as raised:
        await ask(there, sink=Sink() if is_streamed else None)

    assert type(raised.value) is error_type


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_text_that_a_refusal_cuts_off_is_not_the_answer(
    there: AgentHarness, api: Loopback, is_streamed: bool
) -> None:
    whole = Answer(message({"type": "text", "text": "I can"}, stop="refusal"))
    api.answers = [Answer(events=(START, BEGIN, wrote("I can"), ended("refusal"), *STOP)) if is_streamed else whole]

    assert (await ask(there, sink=Sink() if is_streamed else None)).text == "I would rather not answer that."


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ({"sides": 6}, {"sides": 6}),
        ('{"sides": 6}', {"sides": 6}),
        ("{'sides': 6, 'fair': True}", {"sides": 6, "fair": True}),
        (json.dumps('{"sides": 6}'), {"sides": 6}),
        ([{"sides": 6}], {"sides": 6}),
        ('{"text": "a\nb"}', {"text": "a\nb"}),
    ],
)
async def test_the_arguments_of_a_call_are_read_in_several_forms(
    there: AgentHarness, api: Loopback, given: Any, arguments: dict[str, Any]
) -> None:
    block = {"type": "tool_use", "id": "t", "name": "ROLL", "input": given}
    start = event("content_block_start", index=1, content_block=block)
    api.answers = [
        Answer(message(block, stop="tool_use")),
        Answer(events=(START, start, ended("tool_use"), *STOP)),
        Answer(message(block, stop="tool_use")),
    ]
    for sink in (None, Sink(), Sink()):
        result = await ask(there, tools=(ROLL,), sink=sink)
        assert result.tool_calls == (ToolCall("ROLL", arguments),)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("`temperature` and `top_p` cannot both be specified for this model", {"temperature": 0.5, "top_k": 3}),
        ("`top_p` cannot be combined with `temperature`", {"temperature": 0.5, "top_k": 3}),
        ("top_k: Extra inputs are not permitted", {"temperature": 0.5, "top_p": 0.5}),
        ("`temperature` and `top_p` are not supported by this model", {"top_k": 3}),
        ("top P is deprecated for this model", {"temperature": 0.5, "top_k": 3}),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_refused_parameters_are_omitted_for_the_model_from_then_on(
    there: AgentHarness, api: Loopback, words: str, expected: dict[str, Any], is_streamed: bool
) -> None:
    api.answers = [Answer(error("invalid_request_error", words), 400), Answer(message())]
    for _ in range(2):
        await ask(there, temperature=0.5, top_p=0.5, top_k=3, sink=Sink() if is_streamed else None)

    names = ("temperature", "top_p", "top_k")
    assert [{name: body[name] for name in names if name in body} for body in api.bodies[1:]] == [expected, expected]


async def test_a_request_refused_for_parameters_that_it_has_not_is_repeated_once(
    there: AgentHarness, api: Loopback
) -> None:
    api.answers = [Answer(error("x", "`temperature` and `top_p` cannot both be specified"), 400)]
    with pytest.raises(ModelRefused, match="both be specified"):
        await ask(there)

    assert len(api.asked) == 2


async def test_a_lower_limit_of_tokens_and_a_refused_cache_mark_are_remembered(
    there: AgentHarness, api: Loopback
) -> None:
    limit = "max_tokens: 4096 > 2048, which is the maximum allowed number of output tokens for large"
    mark = "system.0.cache_control: Extra inputs are not permitted"
    api.answers = [Answer(error("x", limit), 400), Answer(error("x", mark), 400), Answer(message())]
    for _ in range(2):
        await ask(there, system="You are Ada.")

    assert [body["max_tokens"] for body in api.bodies] == [4096, 2048, 2048, 2048]
    assert ["cache_control" in body["system"][0] for body in api.bodies] == [True, True, False, False]


@pytest.mark.parametrize(
    "words",
    [
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
        "tools.0.custom.input_schema.properties.temperature: JSON schema is invalid",
        "tools: Tool names must be unique.",
    ],
)
async def test_an_error_about_tools_is_a_refusal_of_the_tools(there: AgentHarness, api: Loopback, words: str) -> None:
    api.answers = [Answer(error("invalid_request_error", words), 400), Answer(message())]
    with pytest.raises(ToolsRefused):
        await ask(there, tools=(ROLL,), temperature=0.5)
    api.answers = [Answer(error("invalid_request_error", words), 400), Answer(message())]
    result = await there.agent.models.text(TextRequest("the prompt", tools=(ROLL,)))

    assert result.text == ANSWER_TEXT
    assert "tools" not in api.bodies[-1]


async def test_an_event_without_an_end_is_given_up_before_it_takes_the_memory_of_others(api: Loopback) -> None:
    api.answers = [Answer(events=("data: ", *["x" * 2**20] * 40, Hang()))]
    settings = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.url, "MODEL_RETRIES": "0"}
    async with running_agent(plugin, settings=settings) as harness:
        with pytest.raises(ModelError, match="a piece of more than 1,048,576 bytes"):
            await ask(harness, sink=Sink())
        assert harness.agent.memory.held == 0


async def test_a_cancelled_call_closes_its_request(there: AgentHarness, api: Loopback) -> None:
    sink = Sink()
    calls: list[ModelUsed] = []
    there.agent.events.subscribe(ModelUsed, calls.append, at_once=True)
    api.answers = [Answer(events=(START, BEGIN, wrote("Hel"), Hang()))]
    task = asyncio.ensure_future(there.agent.models.text(TextRequest("the prompt", sink=sink)))
    await sink.first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await api.gone.wait()
    [used] = calls
    assert (used.call.model, used.call.error, used.call.tokens_in) == ("claude-1", "cancelled", 100)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_functions_are_called_natively(there: AgentHarness, api: Loopback, is_streamed: bool) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "ROLL"}
    whole = Answer(message({"type": "text", "text": "Now."}, {**call, "input": {"sides": 6}}, stop="tool_use"))
    begin = event("content_block_start", index=1, content_block={**call, "input": {}})
    pieces = (filled('{"si', 1), filled('des": 6}', 1))
    api.answers = [
        Answer(events=(START, BEGIN, wrote("Now."), begin, *pieces, ended("tool_use"), *STOP)) if is_streamed else whole
    ]
    result = await ask(there, tools=(ROLL,), sink=Sink() if is_streamed else None)

    assert (result.text, result.tool_calls) == ("Now.", (ToolCall("ROLL", {"sides": 6}),))
    assert api.bodies[0]["tools"] == [
        {"name": "ROLL", "description": "Roll a die.", "input_schema": dict(ROLL.parameters)}
    ]
    assert there.agent.models.can_call_tools(ModelType.TEXT_LARGE)


@pytest.mark.failure("E-03")
async def test_a_call_with_half_its_arguments_is_never_handed_on(there: AgentHarness, api: Loopback) -> None:
    begin = event("content_block_start", index=1, content_block={"type": "tool_use", "name": "ROLL"})
    api.answers = [Answer(events=(START, begin, filled('{"si', 1), ended("max_tokens"), *STOP))]
    with pytest.raises(ModelError, match="cannot be read"):
        await ask(there, tools=(ROLL,), sink=Sink())


async def test_a_call_that_cannot_be_read_is_asked_for_once_more(there: AgentHarness, api: Loopback) -> None:
    begin = event("content_block_start", index=1, content_block={"type": "tool_use", "name": "ROLL"})
    api.answers = [
        Answer(events=(START, begin, filled(arguments, 1), ended("tool_use"), *STOP))
        for arguments in ('{"sides": 6', '{"sides": 6}')
    ]

    result = await there.agent.models.text(TextRequest("the prompt", sink=Sink(), tools=(ROLL,)))

    assert result.tool_calls == (ToolCall("ROLL", {"sides": 6}),)


class Guess(BaseModel):
    """A guess."""

    city: str
    years: int = 0


async def test_an_object_is_held_to_its_schema(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(message({"type": "text", "text": '{"city": "Ulm"}'}))]
    guess = await there.agent.models.object(Guess, TextRequest("Which city?"), ModelType.OBJECT_LARGE)

    assert guess == Guess(city="Ulm")
    shape = api.bodies[0]["output_config"]["format"]
    assert shape["type"] == "json_schema"
    assert shape["schema"]["additionalProperties"] is False


async def test_a_schema_that_a_model_refuses_is_described_in_words_alone(there: AgentHarness, api: Loopback) -> None:
    refusal = error("invalid_request_error", "output_config.format: not supported by this model")
    api.answers = [Answer(refusal, 400), Answer(message({"type": "text", "text": '{"city": "Ulm"}'}))]

    assert (await there.agent.models.object(Guess, TextRequest("Which?"), ModelType.OBJECT_LARGE)).city == "Ulm"
    assert ["output_config" in sent for sent in api.bodies] == [True, False]
    assert '"city"' in api.bodies[1]["messages"][0]["content"]


async def test_a_picture_is_described(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(message({"type": "text", "text": "A boat."}))]
    description = await there.agent.models.describe(ImageDescriptionRequest(b"png", "image/png", "What is it?"))

    assert description.text == "A boat."
    picture, words = api.bodies[0]["messages"][0]["content"]
    assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()}
    assert words["text"] == "What is it?"


async def test_it_makes_no_vectors(there: AgentHarness) -> None:
    assert not there.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING)
