"""Rules of the openrouter plugin, through the real SDK, against a server that speaks its API."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import Outcome, Settings
from bot.models import EmbeddingRequest, ImageDescriptionRequest, ModelRefused, TextRequest, Tool, ToolCall, Usage
from bot.settings import Layer
from bot.testing import AgentHarness, model_answer, running_agent
from plugins.openrouter import OpenRouterSettings, describe_image, embed, large, plugin
from tests.plugins.loopback import Sink

KEY = "sk-or-a-key-of-the-tests"
ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
EVERYTHING = {
    "context_length": 1_048_576,
    "architecture": {"modality": "text+image->text", "input_modalities": ["text", "image"]},
    "supported_parameters": ["max_tokens", "temperature", "tools"],
    "pricing": {"prompt": "0.0000003", "completion": "0.0000025"},
}
TEXT_ONLY = {
    "context_length": 4096,
    "architecture": {"modality": "text->text", "input_modalities": ["text"]},
    "supported_parameters": ["max_tokens", "temperature"],
}
MODELS = {"google/gemini-2.5-flash": EVERYTHING, "google/gemini-2.5-flash-lite": EVERYTHING, "old/text": TEXT_ONLY}


class OpenRouter:
    """OpenRouter's paths on the loopback."""

    def __init__(self, models: dict[str, Any] | None) -> None:
        self.models = models
        self.requests: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.url = ""

    async def list_models(self, request: web.Request) -> web.Response:
        if self.models is None:
            return web.json_response({"error": {"message": "Internal Server Error", "code": 500}}, status=500)
        return web.json_response({"data": [{"id": name, **details} for name, details in self.models.items()]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if request.headers["Authorization"] != f"Bearer {KEY}":
            return web.json_response({"error": {"message": "No auth credentials found", "code": 401}}, status=401)
        if body.get("tools") and body["model"] == "old/text":
            message = "No endpoints found that support tool use. To learn more about provider routing, visit …"
            return web.json_response({"error": {"message": message, "code": 404}}, status=404)
        if body["model"] == "no/such":
            return web.json_response({"error": {"message": "no/such is not a valid model ID", "code": 400}}, status=400)
        if body.get("stream") and self.lines:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write("".join(self.lines).encode())
            return response
        message: Any = {"role": "assistant", "content": model_answer("Hello from far away."), "reasoning": None}
        if body.get("tools"):
            call = {"id": "c", "type": "function", "function": {"name": "ROLL", "arguments": '{"sides":6}'}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
        usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45, "cost": 0.0001}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "native_finish_reason": "STOP"}
        return web.json_response({"model": body["model"], "provider": "X", "choices": [choice], "usage": usage})

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        data = [{"index": 0, "embedding": [0.5] * body.get("dimensions", 3)}]
        return web.json_response({"data": data, "model": body["model"], "usage": {"prompt_tokens": 3}})


@asynccontextmanager
async def openrouter(models: dict[str, Any] | None = MODELS) -> AsyncIterator[OpenRouter]:
    server = OpenRouter(models)
    app = web.Application()
    app.router.add_get("/api/v1/models", server.list_models)
    app.router.add_post("/api/v1/chat/completions", server.chat)
    app.router.add_post("/api/v1/embeddings", server.embeddings)
    async with TestServer(app) as running:
        server.url = str(running.make_url("/api/v1"))
        yield server


@asynccontextmanager
async def agent_at(server: OpenRouter, **settings: str) -> AsyncIterator[AgentHarness]:
    given = {"OPENROUTER_API_KEY": KEY, "OPENROUTER_BASE_URL": server.url, **settings}
    async with running_agent(plugin, settings=given) as agent_harness:
        yield agent_harness


async def test_a_conversation_works_and_its_cost_is_known() -> None:
    async with openrouter() as server, agent_at(server, OPENROUTER_TOOLS="false") as agent_harness:
        receipt = await agent_harness.send("hi")

    assert receipt.outcome is Outcome.ANSWERED
    assert agent_harness.texts == ["Hello from far away."]
    assert all(call.cost is not None for call in receipt.model_calls)


async def test_the_log_tells_at_start_what_the_models_in_use_can_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bot.models"):
        async with openrouter() as server, agent_at(server, OPENROUTER_LARGE_MODEL="gogle/gemini"):
            pass
    [line, warning] = [record.message for record in caplog.records if record.message.startswith("openrouter: ")]
    assert "google/gemini-2.5-flash-lite (tools, pictures, 1,048,576 tokens)" in line
    assert "has no model 'gogle/gemini' (OPENROUTER_LARGE_MODEL): correct gogle/gemini" in warning


@pytest.mark.parametrize(
    ("name", "models", "tries"),
    [
        ("google/gemini-2.5-flash", MODELS, [True]),
        ("old/text", MODELS, [False]),
        ("old/text", None, [True, False]),  # the server lists nothing; its refusal says so
    ],
)
async def test_functions_are_offered_to_models_that_can_call_them(
    name: str, models: dict[str, Any] | None, tries: list[bool]
) -> None:
    async with openrouter(models) as server, agent_at(server, OPENROUTER_LARGE_MODEL=name) as agent_harness:
        assert agent_harness.agent.models.can_call_tools(large.type) == tries[0]
        result = await large(agent_harness.agent, TextRequest("Roll!", tools=(ROLL,)))

    assert result.tool_calls == ((ToolCall("ROLL", {"sides": 6}),) if tries[-1] else ())
    assert [bool(request.get("tools")) for request in server.requests] == tries


async def test_a_stream_with_its_comments_is_read() -> None:
    sink = Sink()
    async with openrouter() as server, agent_at(server) as agent_harness:
        server.lines = [
            ": OPENROUTER PROCESSING\n\n",
            'data: {"model":"google/gemini-2.5-flash","choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n',
            ": OPENROUTER PROCESSING\n\n",
            'data: {"choices":[{"index":0,"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\n',
            'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":5}}\n\n',
            "data: [DONE]\n\n",
        ]
        result = await large(agent_harness.agent, TextRequest("Hello?", sink=sink))

    assert (result.text, result.usage, result.model) == ("Hello.", Usage(40, 5), "google/gemini-2.5-flash")
    assert sink.seen == ["Hel", "lo."]


async def test_errors_name_the_variable_to_correct() -> None:
    async with openrouter() as server:
        async with agent_at(server, OPENROUTER_API_KEY="sk-or-a-wrong-key") as agent_harness:
            with pytest.raises(ModelRefused, match=r"openrouter: .* refused the key in OPENROUTER_API_KEY"):
                await large(agent_harness.agent, TextRequest("Hello?"))
        async with agent_at(server, OPENROUTER_LARGE_MODEL="no/such") as agent_harness:
            with pytest.raises(ModelRefused, match="no/such is not a valid model ID"):
                await large(agent_harness.agent, TextRequest("Hello?"))


async def test_a_picture_is_not_sent_to_a_model_that_sees_none() -> None:
    picture = ImageDescriptionRequest(b"\x89PNG", "image/png")
    async with openrouter() as server, agent_at(server, OPENROUTER_LARGE_MODEL="old/text") as agent_harness:
        with pytest.raises(ModelRefused, match="sees no pictures: set OPENROUTER_IMAGE_MODEL"):
            await describe_image(agent_harness.agent, picture)
        assert server.requests == []
    async with openrouter() as server, agent_at(server) as agent_harness:
        assert (await describe_image(agent_harness.agent, picture)).model == "google/gemini-2.5-flash"


async def test_vectors_are_made_where_a_model_for_them_is_set() -> None:
    settings = {"OPENROUTER_EMBEDDING_MODEL": "openai/text-embedding-3-small", "OPENROUTER_EMBEDDING_DIMENSIONS": "2"}
    async with openrouter() as server, agent_at(server, **settings) as agent_harness:
        result = await embed(agent_harness.agent, EmbeddingRequest(("a",)))
    assert (result.vectors, result.model) == (((0.5, 0.5),), "openai/text-embedding-3-small-2")


def test_a_characters_file_cannot_send_the_operators_key_to_a_server_of_its_own() -> None:
    file = Layer("the character's settings", {"OPENROUTER_BASE_URL": "http://elsewhere.example"}, is_operator=False)
    assert Settings([file]).load(OpenRouterSettings).is_default("openrouter_base_url")
