"""Servers that speak the API in their own way: llama.cpp, Ollama, and what they do not take."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot import Settings
from bot.models import (
    ModelBusy,
    ModelError,
    ModelRefused,
    PromptTooLong,
    TextRequest,
    TextResult,
    Tool,
    ToolCall,
    Usage,
)
from bot.models.openai_compatible import complete
from bot.settings import Layer
from bot.testing import AgentHarness, running_agent
from plugins.openai import Client, plugin
from tests.plugins.loopback import Answer, Asked, Loopback, Sink, loopback
from tests.plugins.openai.wire import DONE, KEY, completion, open_harness

ANSWER_TEXT = "<response><thought>t</thought><actions>REPLY</actions><text>Hello from there.</text></response>"
ROLL = Tool("ROLL", "Roll a die.", {"type": "object"})
SHAPE = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


async def ask(harness: AgentHarness, model: str = "large", **details: Any) -> TextResult:
    return await complete(harness.agent.services[Client], model, TextRequest("the prompt", **details))


def llama(asked: Asked) -> Answer:
    """Answer as llama.cpp does: reasoning apart, timings, no usage in streams, strict about tools."""
    if asked.json.get("tools"):
        error = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
        return Answer({"error": error}, 500)
    timings = {"prompt_n": 1, "predicted_ms": 1.5}
    model = "ggml-model-q4.gguf"
    if not asked.json.get("stream"):
        message = {"role": "assistant", "reasoning_content": "Hm.", "content": ANSWER_TEXT}
        choice = {"finish_reason": "stop", "index": 0, "message": message}
        usage = {"completion_tokens": 5, "prompt_tokens": 40, "total_tokens": 45}
        body = {"choices": [choice], "model": model, "usage": usage, "timings": timings, "id": "chatcmpl-1"}
        return Answer(body)
    half = len(ANSWER_TEXT) // 2
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}, {"reasoning_content": "Hm."}]
    deltas += [{"content": ANSWER_TEXT[:half]}, {"content": ANSWER_TEXT[half:]}]
    base = {"created": 1, "id": "chatcmpl-1", "model": model, "object": "chat.completion.chunk"}
    events = [{**base, "choices": [{"finish_reason": None, "index": 0, "delta": delta}]} for delta in deltas]
    last = {**base, "choices": [{"finish_reason": "stop", "index": 0, "delta": {}}], "timings": timings}
    return Answer(events=(*events, last, DONE))


def ollama(asked: Asked) -> Answer:
    """Answer as Ollama does: no usage unless it is asked for, empty finish reasons, whole calls."""
    model = asked.json["model"]
    base = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "model": model, "system_fingerprint": "fp"}
    message: dict[str, Any] = {"role": "assistant", "content": f"<think>\nHm.\n</think>\n\n{ANSWER_TEXT}"}
    if asked.json.get("tools"):
        call = {"id": "call_1", "index": 0, "type": "function"}
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{**call, "function": {"name": "ROLL", "arguments": '{"sides":6}'}}],
        }
    if not asked.json.get("stream"):
        usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
        return Answer({**base, "choices": [{"index": 0, "message": message, "finish_reason": ""}], "usage": usage})
    events: list[Any] = [{**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}]
    events.append({**base, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]})
    if asked.json.get("stream_options"):
        events.append({**base, "choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 5}})
    return Answer(events=(*events, DONE))


@pytest.mark.parametrize("dialect", [llama, ollama])
async def test_a_conversation_on_a_server_of_ones_own_works(api: Loopback, dialect: Any) -> None:
    api.answers = dialect
    async with running_agent(
        plugin, settings={"OPENAI_BASE_URL": f"{api.url}/v1", "OPENAI_LARGE_MODEL": "qwen3"}
    ) as harness:
        first = await harness.send("hi")
        await harness.send("and again")

    assert harness.texts == ["Hello from there."] * 2
    assert [call.error for call in first.model_calls] == [""]
    assert "Hm." not in str(harness.texts)


@pytest.mark.parametrize(("dialect", "usage"), [(llama, None), (ollama, Usage(40, 5))])
async def test_its_texts_are_shown_as_they_come(api: Loopback, dialect: Any, usage: Usage | None) -> None:
    api.answers = dialect
    sink = Sink()
    async with open_harness(api.url) as harness:
        result = await ask(harness, sink=sink)

    assert result.text == "".join(map(str, sink.seen))
    assert result.text.endswith(ANSWER_TEXT)
    assert result.usage == usage


async def test_calls_work_where_they_are_switched_on(api: Loopback) -> None:
    api.answers = ollama
    async with open_harness(api.url, OPENAI_TOOLS="true") as harness:
        for sink in (None, Sink()):
            result = await ask(harness, tools=(ROLL,), sink=sink)
            assert (result.text, result.tool_calls) == ("", (ToolCall("ROLL", {"sides": 6}),))


@pytest.mark.parametrize(
    ("settings", "can_call"),
    [
        ({}, True),
        ({"OPENAI_TOOLS": "false"}, False),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, False),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_TOOLS": "true"}, True),
    ],
)
def test_functions_are_offered_at_openai_and_elsewhere_where_the_operator_says_so(
    settings: dict[str, str], can_call: bool
) -> None:
    given = Settings([Layer("the test", {"OPENAI_API_KEY": KEY, **settings})])
    writing = [model for model in plugin.models if model.type.startswith("TEXT_LARGE")]
    assert [model.can_call_tools(given) for model in writing] == [can_call]


async def test_a_server_that_takes_no_tools_is_asked_without_them_from_then_on(
    api: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    api.answers = llama
    async with open_harness(api.url) as harness:
        for _ in range(2):
            assert (await ask(harness, tools=(ROLL,))).text == ANSWER_TEXT

    assert ["tools" in sent for sent in api.bodies] == [True, False, False]
    assert "refuses tools; it is not sent" in caplog.text


@pytest.mark.parametrize(
    ("error", "details", "left_out"),
    [
        (
            {"message": "Unsupported parameter", "param": "temperature", "code": "unsupported_parameter"},
            {"temperature": 0.5},
            "temperature",
        ),
        ({"message": "max_tokens is not supported with this model"}, {"max_tokens": 5}, "max_tokens"),
        ({"message": "json schema", "param": "response_format.json_schema"}, {"schema": SHAPE}, "response_format"),
        ({"message": "response_format is not supported here"}, {"schema": SHAPE}, "response_format"),
        ({"message": "unknown field top_k"}, {"top_k": 5}, "top_k"),
        ({"message": "unexpected stream_options"}, {"sink": Sink()}, "stream_options"),
        ({"message": "verify your organization to stream this", "param": "stream"}, {"sink": Sink()}, "stream"),
    ],
)
async def test_what_a_server_refuses_to_be_asked_with_is_left_out(
    api: Loopback, error: dict[str, str], details: dict[str, Any], left_out: str
) -> None:
    api.answers = [Answer({"error": error}, 400), Answer(completion())]
    async with open_harness(api.url) as harness:
        assert (await ask(harness, **details)).text == "Hello."

    assert [left_out in sent for sent in api.bodies] == [True, False]


async def test_the_longest_answer_that_a_model_allows_is_the_limit_from_then_on(api: Loopback) -> None:
    error = {"message": "max_tokens is too large: 9,000. This model supports at most 4,096 completion tokens"}
    api.answers = [Answer({"error": error}, 400), Answer(completion())]
    async with open_harness(api.url) as harness:
        for _ in range(2):
            assert (await ask(harness, max_tokens=9_000)).text == "Hello."

    assert [sent["max_tokens"] for sent in api.bodies] == [9_000, 4_096, 4_096]


async def test_a_server_that_refuses_for_another_reason_is_asked_once(api: Loopback) -> None:
    api.answers = [Answer({"error": {"message": "the stop was bad, the seed too"}}, 400)]
    async with open_harness(api.url) as harness:
        with pytest.raises(ModelRefused):
            await ask(harness, stop=("x",), seed=1, temperature=1.0)

    assert len(api.asked) == 1


async def test_an_object_is_asked_for_by_its_schema(api: Loopback) -> None:
    api.answers = [Answer(completion('{"a": "b"}'))]
    async with open_harness(api.url) as harness:
        await ask(harness, schema=SHAPE)

    [sent] = api.bodies
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SHAPE}}


async def test_what_only_servers_of_ones_own_know_is_sent_where_it_is_set(api: Loopback) -> None:
    api.answers = [Answer(completion())]
    async with open_harness(api.url, DEFAULT_TOP_K="40", TEXT_LARGE_MIN_P="0.1") as harness:
        await harness.agent.models.text(TextRequest("the prompt", repetition_penalty=1.5))

    [sent] = api.bodies
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (40, 0.1, 1.5)


@pytest.mark.failure("E-05")
@pytest.mark.parametrize(
    "error",
    [
        {"message": "You asked for too much", "code": "context_length_exceeded"},
        {"message": "the request is too large", "type": "exceed_context_size_error"},
        {"message": "'max_tokens' is too large: 5000. This model's maximum context length is 4096"},
    ],
)
async def test_a_prompt_that_is_too_long_is_reported_as_too_long(api: Loopback, error: dict[str, str]) -> None:
    api.answers = [Answer({"error": error}, 400)]
    async with open_harness(api.url) as harness:
        with pytest.raises(PromptTooLong):
            await ask(harness, max_tokens=5000)

    assert len(api.asked) == 1


@pytest.mark.failure("E-06")
async def test_no_credit_is_no_rate_limit_and_not_tried_again(api: Loopback) -> None:
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    api.answers = [Answer({"error": error}, 429)]
    async with open_harness(api.url) as harness:
        receipt = await harness.send("hi")

    assert len(api.asked) == 1
    assert "no credit left for the key in OPENAI_API_KEY" in receipt.reason
    assert len(harness.texts) == 1
    assert "credit" not in harness.texts[0]


@pytest.mark.failure("E-07")
@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
async def test_a_request_that_is_refused_for_its_content_is_answered_with_a_no(api: Loopback, code: str) -> None:
    api.answers = [Answer({"error": {"message": "filtered", "code": code}}, 400)]
    async with open_harness(api.url) as harness:
        await harness.send("hi")

    assert harness.texts == ["I would rather not answer that."]
    assert len(api.asked) == 1


@pytest.mark.failure("E-07")
async def test_an_answer_that_is_filtered_away_is_a_no(api: Loopback) -> None:
    api.answers = [Answer(completion(None, "content_filter"))]
    async with open_harness(api.url) as harness:
        assert (await ask(harness)).text == "I would rather not answer that."


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Answer("404 page not found", 404, content_type="text/plain"), ModelRefused, "ends in /v1"),
        (Answer("Loading model", 503, content_type="text/plain"), ModelBusy, "(503): Loading model"),
        (Answer("<html>502</html>", 502, content_type="text/html"), ModelBusy, "(502)"),
        (Answer("", 500), ModelBusy, "(500)"),
        (Answer({"detail": "not now"}, 429), ModelBusy, "(429)"),
        (Answer({"error": "model is loading"}, 503), ModelBusy, "model is loading"),
        (Answer('{"error": "half', 500), ModelBusy, "(500)"),
        (Answer([1, 2], 400), ModelRefused, "(400)"),
    ],
)
async def test_an_error_in_any_form_is_shown_in_a_line(
    api: Loopback, answer: Answer, kind: type[ModelError], words: str
) -> None:
    api.answers = [answer]
    async with open_harness(api.url) as harness:
        with pytest.raises(kind) as raised:
            await ask(harness)

    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "call",
    [
        {"function": {"name": "ROLL", "arguments": {"sides": 6}}},
        {"id": "x", "type": "function", "function": {"name": "ROLL", "arguments": '{"sides": 6}'}},
    ],
)
async def test_arguments_are_read_as_text_and_as_an_object(api: Loopback, call: dict[str, Any]) -> None:
    api.answers = [Answer(completion("", tool_calls=[call]))]
    async with open_harness(api.url) as harness:
        assert (await ask(harness, tools=(ROLL,))).tool_calls == (ToolCall("ROLL", {"sides": 6}),)


@pytest.mark.parametrize(
    ("text", "function"),
    [("text", {"name": "ROLL", "arguments": '{"si'}), ("", {"arguments": "{}"}), ("", {"name": "", "arguments": "{}"})],
)
async def test_a_call_that_is_not_whole_is_never_handed_on(api: Loopback, text: str, function: dict[str, Any]) -> None:
    async with open_harness(api.url) as harness:
        api.answers = [Answer(completion(text, "tool_calls", tool_calls=[{"function": function}]))]
        with pytest.raises(ModelError, match="cannot be read"):
            await ask(harness, tools=(ROLL,))
        api.answers = [Answer(completion(text, "length", tool_calls=[{"function": function}]))]
        result = await ask(harness, tools=(ROLL,))

    assert (result.tool_calls, result.has_cut_call) == ((), True)
