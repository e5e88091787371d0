"""The forms in which real servers answer: streams, whole bodies, tool calls, errors, vectors and lists of models."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.models import (
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelType,
    TextRequest,
    TextResult,
    Tool,
    ToolCall,
    ToolsRefused,
    Usage,
)
from bot.models.openai_compatible import complete
from bot.testing import AgentHarness, running_agent
from plugins.openai import Client, plugin
from tests.plugins.loopback import Answer, Asked, Loopback, Sink, loopback
from tests.plugins.openai.wire import completion, delta, finish, open_harness

TEXT = "The ferry leaves at six."
HALVES = (delta(content="The ferry "), delta(content="leaves at six."))
ROLL = Tool("ROLL", "Roll a die.", {"type": "object"})
STOP = Tool("STOP", "Stop.", {"type": "object"})
SIX = ToolCall("ROLL", {"sides": 6})


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


@pytest.fixture
async def there(api: Loopback) -> AsyncIterator[AgentHarness]:
    async with open_harness(api.url) as harness:
        yield harness


async def ask(harness: AgentHarness, **details: Any) -> TextResult:
    request = TextRequest("the prompt", system="the system prompt", **details)
    return await complete(harness.agent.services[Client], "large", request)


def events(*chunks: Any, end: str = "\n\n", start: str = "data: ") -> str:
    return "".join(f"{start}{chunk if isinstance(chunk, str) else json.dumps(chunk)}{end}" for chunk in chunks)


BODIES = {
    "CR LF": events(*HALVES, finish(), "[DONE]", end="\r\n\r\n"),
    "CR": events(*HALVES, finish(), "[DONE]", end="\r\r"),
    "single line ends": events(*HALVES, finish(), "[DONE]", end="\n"),
    "no space": events(*HALVES, finish(), "[DONE]", start="data:"),
    "byte order mark": "\ufeff" + events(*HALVES, finish()),
    "other fields": events(*HALVES, finish(), start="id: 3\nretry: 9\nevent: x\n: comment\ndata: "),
    "pings": events("{}", *HALVES, start="event: message\ndata: ") + "event: ping\ndata: {}\n\n" + events(finish()),
    "end in capitals": events(*HALVES, "[Done]"),
    "JSON lines": events(*HALVES, finish(), start="", end="\n"),
    "one line of objects": events(*HALVES, finish(), start="", end=""),
    "pretty objects": "\n".join(json.dumps(chunk, indent=4) for chunk in (*HALVES, finish())),
    "pretty events": "".join(
        "".join(f"data: {line}\n" for line in json.dumps(chunk, indent=2).split("\n")) + "\n"
        for chunk in (*HALVES, finish())
    ),
    "an array": json.dumps([*HALVES, finish()]),
    "a whole body": f" \n\t{json.dumps(completion(TEXT), indent=1)}\n",
    "a whole body in an event": events(completion(TEXT)),
    "a text": json.dumps(TEXT),
    "native Ollama": events(
        {"model": "m", "message": {"content": "The ferry "}, "done": False},
        {"model": "m", "message": {"content": "leaves at six."}, "done": False},
        {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop"},
        start="",
        end="\n",
    ),
    "generate of Ollama": json.dumps({"response": TEXT, "done": True}),
    "text of a choice": events({"choices": [{"text": TEXT}]}, finish()),
    "pieces": events(
        delta(content=[{"type": "thinking", "thinking": "SECRET"}, {"type": "output_text", "text": "The ferry "}]),
        delta(content=[{"type": "reasoning", "text": "SECRET"}, "leaves "]),
        delta(content={"type": "text", "text": "at six."}),
        finish(),
    ),
    "cumulative": events(*(delta(content=TEXT[:end]) for end in (10, 24)), finish()),
    "delta and message": events(
        *(
            {"choices": [{"delta": {"content": piece}, "message": {"content": whole}}]}
            for piece, whole in (("The ferry ", "The ferry "), ("leaves at six.", TEXT), ("", TEXT))
        ),
        finish(),
    ),
    "other choices": events(
        *HALVES[:1], {"choices": [None, {"index": 1, "delta": {"content": "NO"}}]}, HALVES[1], finish()
    ),
    "nulls": events(
        {"choices": [{"index": 0, "delta": None}], "usage": None},
        {"choices": None},
        *HALVES,
        {"choices": [{"index": 0, "delta": {"content": None, "tool_calls": None}, "finish_reason": "stop"}]},
    ),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_an_answer_in_any_form_is_read_whether_or_not_a_stream_was_requested(
    there: AgentHarness, api: Loopback, body: str, is_streamed: bool
) -> None:
    sink = Sink()
    api.answers = [Answer(body, content_type="text/plain")]
    result = await ask(there, sink=sink if is_streamed else None)

    assert result.text == TEXT
    shown = sink.seen[sink.seen.index(None) + 1 :] if None in sink.seen else sink.seen
    assert "".join(map(str, shown)) == (TEXT if is_streamed else "")


@pytest.mark.parametrize("pieces", [("Ha ", "Ha ", "Ha!"), ("1", "10", "00"), ("\n", "\n\n", "x"), ("Oh", ", Oh no.")])
async def test_pieces_that_begin_alike_are_not_taken_for_repetitions(
    there: AgentHarness, api: Loopback, pieces: tuple[str, ...]
) -> None:
    api.answers = [Answer(events(*(delta(content=piece) for piece in pieces), finish()))]

    assert (await ask(there, sink=Sink())).text == "".join(pieces)


@pytest.mark.parametrize(
    "text", ["The ferry leaves at", "Well,", "<response><text>At six.", "<response><actions>REPLY</actions>"]
)
async def test_a_text_that_ends_in_the_middle_without_a_mark_of_the_end_is_broken_off(
    there: AgentHarness, api: Loopback, text: str
) -> None:
    api.answers = [Answer(events(delta(content=text)))]
    with pytest.raises(ModelBusy, match="broke its answer off"):
        await ask(there, sink=Sink())


def calls(*every: dict[str, Any]) -> str:
    return events(*(delta(tool_calls=[call]) for call in every), finish("tool_calls"), "[DONE]")


def part(arguments: Any = "", name: Any = None, **keys: Any) -> dict[str, Any]:
    return {"index": 0, **keys, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (calls(part('{"sides":', "ROLL", id="a"), part(" 6}", "ROLL", id="a")), [SIX]),
        (calls(part("", "ROLL", id="a"), part('{"sides": 6}', None, id=None)), [SIX]),
        (calls(part("{}", "ROLL", id="a"), part('{"sides": 6}', None)), [SIX]),
        (calls(part('{"sides": 6}', "ROLL", id="a"), part("{}", "STOP", id="b")), [SIX, ToolCall("STOP", {})]),
        (calls(part('{"sides": 6}', "ROLL", id="a"), part('{"sides": 4}', "ROLL", id="b")), [SIX, 4]),
        (calls(part('{"sides": 6}', "ROLL"), part("{}", "STOP")), [SIX, ToolCall("STOP", {})]),
        (calls(part("", "STOP", id="a"), part('{"sides": 6}', "ROLL", id="b")), [ToolCall("STOP", {}), SIX]),
        (calls(part('{"sid', "ROLL", id="a"), part('es": 6}', "", id="b")), [SIX]),
        (calls(part({"sides": 6}, "ROLL")), [SIX]),
        (calls(part("", "RO", id="a"), part("", "LL", id="a"), part('{"sides": 6}')), [SIX]),
        (calls(part('{"sides":', "ROLL", id="a"), part('{"sides": 6}', "ROLL", id="a"), part('{"sides": 6}')), [SIX]),
        (calls(part("", "ROLL", id="a"), part('{"sides": 6}', index=1, id=None)), [SIX]),
        (calls(part('{"sides"', "ROLL", id="a"), part("", "STOP", index=1), part(": 6}")), [SIX, ToolCall("STOP", {})]),
        (calls({"function": {"name": "ROLL", "parameters": {"sides": 6}}}), [SIX]),
        (json.dumps(completion(None, function_call={"name": "ROLL", "arguments": '{"sides": 6}'})), [SIX]),
    ],
)  # fmt: skip
async def test_calls_are_distinguished_however_their_parts_are_marked(
    there: AgentHarness, api: Loopback, body: str, expected: list[Any]
) -> None:
    api.answers = [Answer(body)]
    result = await ask(there, tools=(ROLL, STOP), sink=Sink())

    every = [ToolCall("ROLL", {"sides": call}) if isinstance(call, int) else call for call in expected]
    assert list(result.tool_calls) == every


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{'sides': 6, 'is_loaded': True, 'owner': None}", {"sides": 6, "is_loaded": True, "owner": None}),
        ("{'sides': 6, 'is_loaded': false}", {"sides": 6, "is_loaded": False}),
        ('{"sides": 6, "is_loaded": True}', {"sides": 6, "is_loaded": True}),
        ('{"faces": [1, 2,],}', {"faces": [1, 2]}),
        ('{"text": "a\n\tb"}', {"text": "a\n\tb"}),
        ('```json\n{"sides": 6}\n```', {"sides": 6}),
        (json.dumps('{"sides": 6}'), {"sides": 6}),
        ('{}{"sides": 6}', {"sides": 6}),
        ('{"sides": 6}}', {"sides": 6}),
        ("null", {}),
        ("None", {}),
        ('""', {}),
        (" ", {}),
        (None, {}),
    ],
)
async def test_arguments_are_read_in_the_forms_that_models_write(
    there: AgentHarness, api: Loopback, arguments: str | None, expected: dict[str, Any]
) -> None:
    function = {"name": " functions.ROLL:0\n", "arguments": arguments}
    api.answers = [Answer(completion(None, "tool_calls", tool_calls=[{"function": function}]))]

    assert (await ask(there, tools=(ROLL,))).tool_calls == (ToolCall("ROLL", expected),)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"error": {"message": "busy", "code": "429"}}, ModelBusy, "(429): busy"),
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, ModelBusy, "(429): slow"),
        ({"error": {"message": "Provider returned error", "code": None}}, ModelBusy, "Provider returned error"),
        ({"error": "the model is loading"}, ModelBusy, "the model is loading"),
        ({"error": {"message": "x", "code": "invalid_api_key"}}, ModelRefused, "refused the key in OPENAI_API_KEY"),
        ({"error": {"message": "Insufficient credits"}}, ModelRefused, "(402): Insufficient credits"),
        ({"error": {"message": "bad", "code": 400.0}, "choices": []}, ModelRefused, "(400): bad"),
        ({"object": "error", "message": "no memory", "code": 503}, ModelBusy, "(503): no memory"),
        ({"detail": "overloaded"}, ModelBusy, "overloaded"),
        ({"errors": [{"message": "gone", "code": 404}]}, ModelRefused, "(404)"),
        ({"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "cut"}}]}, ModelBusy, "(502): cut"),
        ({"error": {"message": "x", "code": 502, "metadata": {"raw": "cause"}}}, ModelBusy, "(502): x cause"),
        ({"error": True, "message": "full"}, ModelBusy, "(503): full"),
        ({"choices": [{"delta": {"content": "x"}}], "x_groq": {"error": "over capacity"}}, ModelBusy, "over capacity"),
        ({"choices": [{"finish_reason": "insufficient_system_resource"}]}, ModelBusy, "'insufficient_system_resource'"),
    ],
)
async def test_an_error_in_a_response_without_an_error_status_is_reported_as_what_it_is(
    there: AgentHarness, api: Loopback, body: dict[str, Any], kind: type[ModelError], words: str
) -> None:
    for answer in (Answer(body), Answer(events(body))):
        api.answers = [answer]
        with pytest.raises(kind) as raised:
            await ask(there)
        assert words in str(raised.value)
        assert "404" in words or "OPENAI_BASE_URL" not in str(raised.value)


async def test_only_a_body_that_is_not_of_the_api_leads_to_the_address(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer("<html>Welcome</html>", content_type="text/html"), Answer({"choices": []})]
    with pytest.raises(InvalidAnswer, match="<html>Welcome</html>'; check OPENAI_BASE_URL"):
        await ask(there)
    with pytest.raises(InvalidAnswer, match=r"returned no choice$"):
        await ask(there)


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY", "PROHIBITED_CONTENT", "refusal"])
async def test_a_text_that_the_provider_filtered_is_replaced_by_the_notice(
    there: AgentHarness, api: Loopback, reason: str
) -> None:
    sink = Sink()
    api.answers = [Answer(events(HALVES[0], finish(reason), "[DONE]"))]

    assert (await ask(there, sink=sink)).text == "I would rather not answer that."
    assert sink.seen == ["The ferry ", None, "I would rather not answer that."]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System role not supported"),
        (422, "Input should be 'user' or 'assistant': system is not a valid role"),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (500, "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Only user and assistant roles are supported!"),
        (400, "system messages are not supported"),
    ],
)
async def test_a_model_without_a_system_role_gets_the_text_in_front_of_the_message(
    there: AgentHarness, api: Loopback, status: int, message: str
) -> None:
    api.answers = [Answer({"error": {"message": message}}, status), Answer(completion())]
    for _ in range(2):
        assert (await ask(there)).text == "Hello."

    folded = [{"role": "user", "content": "the system prompt\n\nthe prompt"}]
    assert [sent["messages"] == folded for sent in api.bodies] == [False, True, True]


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'ROLL': object schema missing properties",
        "tools[0].function.name: string does not match the pattern",
        "Too many tools: at most 128",
    ],
)
async def test_tools_that_are_refused_are_reported_and_not_remembered(
    there: AgentHarness, api: Loopback, message: str
) -> None:
    api.answers = [Answer({"error": {"message": message}}, 400), Answer(completion())]
    with pytest.raises(ToolsRefused, match="refused the tools of the request"):
        await ask(there, tools=(ROLL,))
    await ask(there, tools=(ROLL,))

    assert ["tools" in sent for sent in api.bodies] == [True, True]


@pytest.mark.parametrize(
    ("first", "requests"),
    [
        (Answer({"error": {"message": "json_schema is not available for this model"}}, 400), [True, False, False]),
        (Answer(completion("Six.")), [True, False]),
        (Answer(completion('<think>{</think>```json\n{"a": 1}\n```')), [True, True]),
    ],
    ids=["refused", "ignored", "followed"],
)
async def test_whether_a_server_writes_by_a_schema_is_learnt_from_the_first_call(
    there: AgentHarness, api: Loopback, first: Answer, requests: list[bool]
) -> None:
    assert there.agent.models.can_write_json(ModelType.TEXT_LARGE)
    api.answers = [first, Answer(completion('{"a": 1}'))]
    for _ in range(2):
        await ask(there, schema={"type": "object"})

    assert ["response_format" in sent for sent in api.bodies] == requests
    assert there.agent.models.can_write_json(ModelType.TEXT_LARGE) is requests[-1]


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"embedding": [1, 2]}, {"embedding": [3.0, 4.0]}]},
        {"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [[1, 2]]}]},
        {"embeddings": [[1.0, 2.0], [3.0, 4.0]]},
        [{"index": 0, "embedding": [[1, 2]]}, {"index": 1, "embedding": [[3, 4]]}],
        [[1.0, 2.0], [3.0, 4.0]],
        {"data": [[1.0, 2.0], [3.0, 4.0]]},
        {"data": [{"embedding": [1, 2]}, {"index": 1, "embedding": [3, 4]}]},
        {"data": [{"index": 0, "embedding": "AACAPwAAAEA="}, {"index": 0, "embedding": "AABAQAAAgEA="}]},
        {"data": [{"index": 2, "embedding": [3, 4]}, {"index": 1, "embedding": [1, 2]}]},
        {"data": [{"embedding": "[1.0, 2.0]"}, {"embedding": "[3.0, 4.0]"}]},
        {"data": {"embeddings": [[1, 2], [3, 4]]}},
        {"embeddings": {"float": [[1, 2], [3, 4]]}, "response_type": "embeddings_by_type"},  # Cohere
        {"embeddings": [{"values": [1, 2]}, {"values": [3, 4]}]},  # Gemini
        {"result": {"shape": [2, 2], "data": [[1, 2], [3, 4]]}, "success": True},  # Cloudflare Workers AI
        {"output": {"embeddings": [{"text_index": 0, "embedding": [1, 2]}, {"text_index": 1, "embedding": [3, 4]}]}},
    ],
)
async def test_vectors_are_read_in_any_form(api: Loopback, body: Any) -> None:
    api.answers = [Answer(body)]
    async with open_harness(api.url, OPENAI_EMBEDDING_MODEL="v") as harness:
        assert (await harness.agent.models.embed(["a", "b"])).vectors == ((1.0, 2.0), (3.0, 4.0))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Value error, batch size is invalid, it should not be larger than 2.: input.contents"),
        (422, "batch size 5 > maximum allowed batch size 2"),
        (413, "Payload Too Large"),
    ],
)
async def test_texts_that_are_too_many_for_a_request_are_sent_in_several(
    api: Loopback, status: int, message: str
) -> None:
    def answer(asked: Asked) -> Answer:
        if len(asked.json["input"]) > 2:
            return Answer({"error": {"message": message}}, status)
        data = [{"embedding": [float(text), 1.0]} for text in asked.json["input"]]
        return Answer({"data": data, "usage": {"prompt_tokens": len(data)}})

    api.answers = answer
    async with open_harness(api.url, OPENAI_EMBEDDING_MODEL="v") as harness:
        result = await harness.agent.models.embed(list("12345"))

    assert [vector[0] for vector in result.vectors] == [1, 2, 3, 4, 5]
    assert result.usage == Usage(5, 0)
    assert [len(sent["input"]) for sent in api.bodies] == [5, 2, 3, 1, 2]


@pytest.mark.parametrize("body", [[1.0, 2.0], {"embedding": [1, 2]}, {"data": [[[1, 2]]]}])
async def test_a_list_of_numbers_is_the_vector_of_a_single_text(api: Loopback, body: Any) -> None:
    api.answers = [Answer(body)]
    async with open_harness(api.url, OPENAI_EMBEDDING_MODEL="v") as harness:
        assert (await harness.agent.models.embed(["a"])).vectors == ((1.0, 2.0),)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ([{"id": "a"}, {"id": "b", "context_length": "8192"}], ["a", "b (8,192 tokens)"]),
        ({"data": ["a", None, 7, {"no": 1}, {"id": None, "name": "b"}]}, ["a", "b"]),
        ({"models": [{"name": "a", "max_model_len": 8192.0}, {"model": "b"}]}, ["a (8,192 tokens)", "b"]),
        ({"data": [{"id": "a", "architecture": "x", "meta": [], "supported_parameters": 1}]}, ["a"]),
        ({"data": None}, []),
        ({"object": "list", "data": None, "models": ["a"]}, ["a"]),
        ({"code": 0, "data": {"models": [{"model_id": "a"}, {"id": "b"}]}}, ["a", "b"]),
        ({"success": True, "result": [{"id": "x", "name": "@cf/a"}]}, ["x"]),
    ],
)
async def test_lists_of_models_are_read_in_any_form(body: Any, names: list[str]) -> None:
    async def list_models(request: web.Request) -> web.Response:
        return web.json_response(body)

    app = web.Application()
    app.router.add_get("/v1/models", list_models)
    async with (
        TestServer(app) as server,
        running_agent(plugin, settings={"OPENAI_BASE_URL": str(server.make_url("/v1"))}) as harness,
    ):
        assert [str(info) for info in await harness.agent.services[Client].listing.load()] == names
