"""Rules of the google plugin, through the real SDK, against a server that speaks the Gemini API."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel

from bot import Outcome, Settings
from bot.models import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelType,
    ModelUnreachable,
    PromptTooLong,
    TextRequest,
    Tool,
    ToolCall,
    ToolsRefused,
    Usage,
)
from bot.settings import Layer
from bot.testing import AgentHarness, model_answer, running_agent
from plugins.google import plugin
from plugins.google.client import GoogleSettings
from plugins.google.models import describe_image, embed, large
from tests.plugins.loopback import Sink

KEY = "a-key-of-the-tests"
ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
USAGE = {
    "promptTokenCount": 100,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 80,
    "totalTokenCount": 125,
}
MODELS = [
    {"name": "models/gemini-2.5-flash", "inputTokenLimit": 1048576, "supportedGenerationMethods": ["generateContent"]},
    {"name": "models/gemini-2.5-flash-lite", "inputTokenLimit": 1048576},
    {"name": "models/gemini-embedding-001", "inputTokenLimit": 2048, "supportedGenerationMethods": ["embedContent"]},
]
Answering = Callable[[dict[str, Any]], tuple[int, Any]]


def answer(*parts: dict[str, Any], reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    candidate |= {"finishReason": reason} if reason else {}
    return {"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "usageMetadata": USAGE, **more}


def refusal(code: int, message: str, status: str = "INVALID_ARGUMENT", **more: Any) -> tuple[int, Any]:
    return code, {"error": {"code": code, "message": message, "status": status, **more}}


def to_camel_case(value: Any) -> Any:
    """Return JSON with its keys in camel case: the API takes both forms, and the SDK writes both."""
    if isinstance(value, list):
        return [to_camel_case(item) for item in value]
    if isinstance(value, dict):
        return {
            re.sub(r"_(\w)", lambda found: found[1].upper(), key): to_camel_case(item) for key, item in value.items()
        }
    return value


def answer_or_embed(body: dict[str, Any]) -> tuple[int, Any]:
    if "requests" in body:
        return 200, {"embeddings": [{"values": [0.5, 0.25]} for _ in body["requests"]]}
    return 200, answer({"text": model_answer("Hello from there.")})


class Gemini:
    """The API's paths on the loopback; `answers` makes the response to a request."""

    def __init__(self) -> None:
        self.answers: Answering = answer_or_embed
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""
        self.content_type = "application/json"  # of answers that are texts

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"models": MODELS})

    async def call(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["x-goog-api-key"] == KEY
        body = to_camel_case(await request.json())
        self.requests.append(body)
        self.paths.append(request.path)
        status, content = self.answers(body)
        if isinstance(content, str):
            return web.Response(text=content, content_type=self.content_type)
        if status != 200 or not request.path.endswith(":streamGenerateContent"):
            headers = {"Location": "/elsewhere"} if status == 307 else {}
            return web.json_response(content, status=status, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in [content] if isinstance(content, dict) else content:
            if piece is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(f"data: {json.dumps(piece)}\r\n\r\n".encode())
        return response


@asynccontextmanager
async def gemini(**settings: str) -> AsyncIterator[tuple[Gemini, AgentHarness]]:
    server = Gemini()
    app = web.Application()
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_post("/v1/models/{call:.*}", server.call)
    async with TestServer(app) as running:
        server.url = str(running.make_url("")).rstrip("/")
        given = {"GOOGLE_GENERATIVE_AI_API_KEY": KEY, "GOOGLE_GENERATIVE_AI_BASE_URL": server.url, **settings}
        async with running_agent(plugin, settings=given) as agent_harness:
            yield server, agent_harness


@pytest.mark.long
async def test_a_conversation_works_and_its_cost_is_known() -> None:
    async with gemini() as (server, agent_harness):
        receipt = await agent_harness.send("hi")

    assert receipt.outcome is Outcome.ANSWERED
    assert agent_harness.texts == ["Hello from there."]
    assert all(call.cost is not None for call in receipt.model_calls)
    assert any("systemInstruction" in body for body in server.requests)


@pytest.mark.long
async def test_usage_counts_thoughts_as_written_and_the_cache_as_read() -> None:
    async with gemini() as (_, agent_harness):
        result = await large(agent_harness.agent, TextRequest("hi"))
    assert (result.usage, result.model) == (Usage(100, 25, 80), "gemini-2.5-flash")


@pytest.mark.long
async def test_thoughts_are_no_part_of_the_text() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, answer({"text": "Hm.", "thought": True}, {"text": "Yes."}))
        assert (await large(agent_harness.agent, TextRequest("hi"))).text == "Yes."


async def test_all_that_a_request_asks_for_is_sent() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    request = TextRequest("hi", system="Be brief.", max_tokens=9, temperature=0.5, stop=("END",), seed=7, schema=schema)
    async with gemini(GOOGLE_THINKING_BUDGET="0") as (server, agent_harness):
        await large(agent_harness.agent, request)

    [body] = server.requests
    assert body["contents"] == [{"parts": [{"text": "hi"}], "role": "user"}]
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "stopSequences": ["END"],
        "seed": 7,
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
        "thinkingConfig": {"thinkingBudget": 0},
    }
    assert server.paths == ["/v1/models/gemini-2.5-flash:generateContent"]


async def test_functions_are_called() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, answer({"functionCall": {"name": "ROLL", "args": {"sides": 6}}}))
        for sink in (None, Sink()):
            if sink:
                server.answers = lambda body: (200, [answer({"functionCall": {"name": "ROLL", "args": {"sides": 6}}})])
            result = await large(agent_harness.agent, TextRequest("Roll!", tools=(ROLL,), sink=sink))
            assert (result.text, result.tool_calls) == ("", (ToolCall("ROLL", {"sides": 6}),))

    [declaration] = server.requests[0]["tools"][0]["functionDeclarations"]
    assert (declaration["name"], declaration["parametersJsonSchema"]) == ("ROLL", dict(ROLL.parameters))


async def test_a_text_is_shown_while_it_is_written() -> None:
    sink = Sink()
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, [answer({"text": "Hel"}, reason=None), answer({"text": "lo."})])
        result = await large(agent_harness.agent, TextRequest("hi", sink=sink))

    assert (result.text, sink.seen, result.usage) == ("Hello.", ["Hel", "lo."], Usage(100, 25, 80))
    assert server.paths == ["/v1/models/gemini-2.5-flash:streamGenerateContent"]


async def test_a_stream_that_is_cut_is_asked_for_again() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, [answer({"text": "Hel"}, reason=None), None])
        with pytest.raises(ModelBusy, match="no answer from"):
            await large(agent_harness.agent, TextRequest("hi", sink=Sink()))


@pytest.mark.long
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_for_which_too_little_memory_is_free_is_given_up(
    is_streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with gemini() as (server, agent_harness):
        memory, is_held, is_done = agent_harness.agent.memory, asyncio.Event(), asyncio.Event()

        async def hold_most() -> None:
            async with memory.hold(memory.limit - 16 * 2**20):
                is_held.set()
                await is_done.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(hold_most())
            await is_held.wait()
            server.answers = lambda body: (200, json.dumps(answer({"text": "x" * 8 * 2**20})))
            await agent_harness.agent.models.text(TextRequest("hi", sink=Sink() if is_streamed else None))
            is_done.set()
        assert "the response is too long: it takes more memory than is free now" in caplog.text
        assert memory.held == 0


class Place(BaseModel):
    """What is asked for by its shape."""

    name: str


async def test_an_object_is_asked_for_by_its_schema() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, answer({"text": '{"name": "Tern Rock"}'}))
        place = await agent_harness.agent.models.object(Place, TextRequest("Name one."), ModelType.TEXT_LARGE)
    assert place == Place(name="Tern Rock")
    assert server.requests[-1]["generationConfig"]["responseJsonSchema"]["required"] == ["name"]


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        (refusal(400, "API key not valid. Please pass a valid API key."), ModelRefused, "set a valid key"),
        (refusal(404, "models/x is not found", "NOT_FOUND"), ModelRefused, r"correct gemini-2\.5-flash in GOOGLE_"),
        (refusal(403, "Permission denied", "PERMISSION_DENIED"), ModelRefused, r"refused the request \(403\)"),
        (refusal(503, "The model is overloaded.", "UNAVAILABLE"), ModelBusy, "overloaded"),
        (
            refusal(400, "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."),
            PromptTooLong,
            "exceeds the maximum",
        ),
        ((307, {}), ModelRefused, "redirects, and nothing is sent elsewhere"),
        ((200, ["what is this?"]), InvalidAnswer, "gave no valid answer|wrote nothing"),
        ((200, answer(reason="MALFORMED_FUNCTION_CALL")), InvalidAnswer, "MALFORMED_FUNCTION_CALL"),
        ((200, "<html>not an API</html>"), InvalidAnswer, "gave no valid answer"),
    ],
)
async def test_errors_say_what_to_do_and_never_the_key(
    response: tuple[int, Any], error: type[ModelError], message: str
) -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: response
        with pytest.raises(error, match=message) as raised:
            await large(agent_harness.agent, TextRequest("hi"))
    assert type(raised.value) is error
    assert KEY not in str(raised.value)


async def test_a_busy_server_says_when_to_come_back() -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: refusal(429, "Quota exceeded.", "RESOURCE_EXHAUSTED", details=[delay])
        with pytest.raises(ModelBusy) as raised:
            await large(agent_harness.agent, TextRequest("hi"))
    assert raised.value.retry_after == 34.5


async def test_a_parameter_that_a_model_refuses_is_left_out_from_then_on() -> None:
    def refuse_penalties(body: dict[str, Any]) -> tuple[int, Any]:
        if "presencePenalty" in body.get("generationConfig", {}):
            return refusal(400, "Penalty is not enabled for this model")
        return 200, answer({"text": "Yes."})

    async with gemini() as (server, agent_harness):
        server.answers = refuse_penalties
        for _ in range(2):
            assert (await large(agent_harness.agent, TextRequest("hi", presence_penalty=1.0))).text == "Yes."
    assert ["presencePenalty" in body.get("generationConfig", {}) for body in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    "body", [answer(reason="SAFETY"), {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}]
)
async def test_a_refusal_for_its_content_is_an_answer(body: dict[str, Any]) -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: (200, body)
        result = await large(agent_harness.agent, TextRequest("hi"))
    assert result.text == "I would rather not answer that."


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("more", [{"reason": "SAFETY"}, {"promptFeedback": {"blockReason": "OTHER"}}])
async def test_a_text_that_a_refusal_cuts_off_is_not_the_answer(more: dict[str, Any], is_streamed: bool) -> None:
    async with gemini() as (server, agent_harness):
        body = answer({"text": "I can"}, **more)
        server.answers = lambda _: (200, [body] if is_streamed else body)
        result = await large(agent_harness.agent, TextRequest("hi", sink=Sink() if is_streamed else None))
    assert result.text == "I would rather not answer that."


WHOLE = answer({"text": "Yes."})
FORMS = [
    WHOLE,
    [WHOLE],
    {"response": WHOLE},
    answer({"text": "Yes."}, usageMetadata=None),
    answer({"text": "Yes."}, usageMetadata={"promptTokenCount": "many", "candidatesTokenCount": 2.0}),
    answer({"text": "Hm.", "thought": True}, None, {"text": None}, {"inlineData": None}, {"text": "Yes."}),
    answer({"text": "Yes."}, reason="stop"),
    answer({"text": "Yes."}, reason="A_NEW_REASON"),
    answer({"text": "Yes."}, reason=None),
    answer({"text": "Yes."}, aNewField={"a": [1]}),
    {"candidates": [{"content": {"parts": {"text": "Yes."}}, "finishReason": "STOP"}]},
    {"candidates": [{"content": [{"text": "Yes."}], "finish_reason": "STOP"}], "usage_metadata": USAGE},
    {"candidates": [{"content": "Yes.", "finishReason": "STOP", "safetyRatings": None}]},
    {"candidates": {"content": {"parts": ["Yes."], "role": None}, "finishReason": "STOP", "index": None}},
]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_event", [False, True])
@pytest.mark.parametrize("body", FORMS)
async def test_other_forms_of_an_answer_are_read_whatever_was_requested(
    body: Any, is_event: bool, is_streamed: bool
) -> None:
    async with gemini() as (server, agent_harness):
        text = json.dumps(body, indent=None if is_event else 2)
        server.answers = lambda _: (200, f"data: {text}\n\n" if is_event else text)
        result = await large(agent_harness.agent, TextRequest("hi", sink=Sink() if is_streamed else None))
    assert result.text == "Yes."


PIECES = [
    json.dumps(answer(piece, reason=None))
    for piece in ({"text": "Y\u2028"}, {"text": "Hm.", "thought": True}, {"text": "es"})
]
END = json.dumps(answer({"text": "."}))
USAGE_ONLY = json.dumps({"usageMetadata": USAGE})


@pytest.mark.matrix(3)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "events",
    [
        "".join(f"data: {piece}\r\n\r\n" for piece in (*PIECES, END)),
        "".join(f"data:{piece}\n\n" for piece in (*PIECES, END)),
        "".join(f"data: {piece}\r\r" for piece in (*PIECES, END)),
        "".join(f"data: {piece}\n" for piece in (*PIECES, END)),
        "".join(f": ping\n\nevent: message\nid: 1\ndata: {piece}\n\n" for piece in (*PIECES, END, "[DONE]")),
        "".join(f"data: {piece}\n\n" for piece in ("null", "{}", '{"candidates": null}', *PIECES, END, USAGE_ONLY)),
        f"[{','.join((*PIECES, END))}]",
        "\n".join((*PIECES, END)),
        f"[{PIECES[0]}\n,\n{PIECES[1]}\n,\n{PIECES[2]}\n,\n{END}\n]",
    ],
)
async def test_other_forms_of_a_stream_are_read_whatever_was_requested(events: str, is_streamed: bool) -> None:
    sink = Sink() if is_streamed else None
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: (200, events)
        server.content_type = "text/event-stream"
        result = await large(agent_harness.agent, TextRequest("hi", sink=sink))
    assert (result.text, result.usage) == ("Y\u2028es.", Usage(100, 25, 80))


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (None, {}),
        ("", {}),
        ('{"sides": 6}', {"sides": 6}),
        ("{'sides': 6, 'fair': True}", {"sides": 6, "fair": True}),
        ([{"sides": 6}], {"sides": 6}),
    ],
)
async def test_the_arguments_of_a_call_are_read_in_several_forms(given: Any, arguments: dict[str, Any]) -> None:
    body = answer({"functionCall": {"name": "ROLL", "args": given}, "thoughtSignature": "x"})
    async with gemini() as (server, agent_harness):
        for sink in (None, Sink()):
            server.answers = lambda _, sink=sink: (200, [body] if sink else body)
            result = await large(agent_harness.agent, TextRequest("hi", tools=(ROLL,), sink=sink))
            assert result.tool_calls == (ToolCall("ROLL", arguments),)


async def test_a_call_that_cannot_be_read_is_requested_once_more() -> None:
    bodies = [answer({"functionCall": {"name": "ROLL", "args": "{'si"}}), answer({"text": "Yes."})]
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: (200, bodies.pop(0))
        result = await agent_harness.agent.models.text(TextRequest("hi", tools=(ROLL,)))
    assert result.text == "Yes."


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_error_with_the_status_of_a_success_is_an_error(is_streamed: bool) -> None:
    _, body = refusal(503, "The model is overloaded.", "UNAVAILABLE")
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: (200, [answer({"text": "Y"}, reason=None), body] if is_streamed else body)
        with pytest.raises(ModelBusy, match="overloaded"):
            await large(agent_harness.agent, TextRequest("hi", sink=Sink() if is_streamed else None))


@pytest.mark.parametrize(
    ("message", "details", "seconds"),
    [
        ("quota. Please retry in 2.5s.", ["2s"], 2.5),
        ("quota. Please retry in 2.5s.", [], 2.5),
        ("quota. Please retry in 850.5ms.", [], 0.8505),
        ("quota. Please retry in 1m30s.", [], 90.0),
        ("quota", ["3.2s"], 3.2),
        ("quota", [], None),
    ],
)
async def test_the_delay_is_read_from_the_details_and_the_message(
    message: str, details: list[str], seconds: float | None
) -> None:
    async with gemini() as (server, agent_harness):
        more = {"details": [{"retryDelay": delay} for delay in details]} if details else {}
        server.answers = lambda _: refusal(429, message, "RESOURCE_EXHAUSTED", **more)
        with pytest.raises(ModelBusy) as raised:
            await large(agent_harness.agent, TextRequest("hi"))
    assert raised.value.retry_after == (pytest.approx(seconds) if seconds else None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("temperature and topP cannot both be set", {"temperature": 0.5}),
        ("top_p is not supported by this model", {"temperature": 0.5}),
        ("temperature and top_p are not supported", {}),
    ],
)
async def test_refused_parameters_are_omitted_for_the_model_from_then_on(
    message: str, expected: dict[str, Any]
) -> None:
    answers = [refusal(400, message), (200, WHOLE), (200, WHOLE)]
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: answers.pop(0)
        for _ in range(2):
            await large(agent_harness.agent, TextRequest("hi", temperature=0.5, top_p=0.5))
    assert [body.get("generationConfig", {}) for body in server.requests[1:]] == [expected, expected]


async def test_a_request_refused_for_parameters_that_it_has_not_is_repeated_once() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: refusal(400, "temperature and top_p cannot both be set")
        with pytest.raises(ModelRefused):
            await large(agent_harness.agent, TextRequest("hi"))
    assert len(server.requests) == 2


async def test_a_model_without_system_instructions_gets_them_in_the_prompt() -> None:
    answers = [refusal(400, "Developer instruction is not enabled for models/gemma-3"), (200, WHOLE)]
    async with gemini() as (server, agent_harness):
        server.answers = lambda _: answers.pop(0)
        await large(agent_harness.agent, TextRequest("hi", system="Be brief."))
    assert server.requests[-1]["contents"][0]["parts"][0]["text"] == "Be brief.\n\nhi"
    assert "systemInstruction" not in server.requests[-1]


@pytest.mark.parametrize(
    "message",
    [
        "GenerateContentRequest.tools[0].function_declarations[0].parameters.properties[a].items: missing field.",
        "Invalid JSON payload received. Unknown name \"$ref\" at 'tools[0].function_declarations[0].parameters'",
        "Invalid function name. Must start with a letter or an underscore.",
    ],
)
async def test_an_error_about_tools_is_a_refusal_of_the_tools(message: str) -> None:
    def refuse_tools(body: dict[str, Any]) -> tuple[int, Any]:
        return refusal(400, message) if "tools" in body else (200, WHOLE)

    async with gemini() as (server, agent_harness):
        server.answers = refuse_tools
        with pytest.raises(ToolsRefused):
            await large(agent_harness.agent, TextRequest("hi", tools=(ROLL,)))
        assert (await agent_harness.agent.models.text(TextRequest("hi", tools=(ROLL,)))).text == "Yes."


async def test_each_text_gets_its_own_vector_in_requests_of_at_most_a_hundred() -> None:
    def count(body: dict[str, Any]) -> tuple[int, Any]:
        texts = [item["content"]["parts"][0]["text"] for item in body["requests"]]
        return 200, {"embeddings": [{"values": [float(text), 1.0]} for text in texts]}

    async with gemini(GOOGLE_EMBEDDING_DIMENSIONS="2") as (server, agent_harness):
        server.answers = count
        result = await embed(agent_harness.agent, EmbeddingRequest(tuple(map(str, range(130)))))

    assert [vector[0] for vector in result.vectors] == list(map(float, range(130)))
    assert result.model == "gemini-embedding-001-2"
    assert [len(body["requests"]) for body in server.requests] == [100, 30]


async def test_a_picture_is_described() -> None:
    async with gemini() as (server, agent_harness):
        server.answers = lambda body: (200, answer({"text": "A lighthouse."}))
        result = await describe_image(agent_harness.agent, ImageDescriptionRequest(b"\x89PNG", "image/png"))
    assert result.text == "A lighthouse."
    assert server.requests[0]["contents"][0]["parts"][0]["inlineData"]["mimeType"] == "image/png"


@pytest.mark.long
async def test_the_log_tells_at_start_which_models_there_are(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bot.models"):
        async with gemini(GOOGLE_LARGE_MODEL="gemini-9"):
            pass
    [line, warning] = [record.message for record in caplog.records if record.message.startswith("google: ")]
    assert "gemini-2.5-flash-lite (1,048,576 tokens), gemini-embedding-001 (embeddings, 2,048 tokens)" in line
    assert "has no model 'gemini-9' (GOOGLE_LARGE_MODEL): correct gemini-9" in warning


async def test_a_server_that_is_away_stops_no_start(free_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{free_tcp_port}"
    given = {"GOOGLE_GENERATIVE_AI_API_KEY": KEY, "GOOGLE_GENERATIVE_AI_BASE_URL": url}
    async with running_agent(plugin, settings=given) as agent_harness:
        with pytest.raises(ModelUnreachable, match="check the network and GOOGLE_GENERATIVE_AI_BASE_URL"):
            await large(agent_harness.agent, TextRequest("hi"))


def test_a_characters_file_cannot_send_the_operators_key_to_a_server_of_its_own() -> None:
    values = {"GOOGLE_GENERATIVE_AI_BASE_URL": "http://elsewhere.example"}
    file = Layer("the character's settings", values, is_operator=False)
    assert Settings([file]).load(GoogleSettings).is_default("google_generative_ai_base_url")
