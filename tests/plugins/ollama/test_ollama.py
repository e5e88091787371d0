"""Rules of the ollama plugin, through the real SDK, against a server that speaks Ollama's API."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import Outcome, Settings
from bot.models import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    TextRequest,
    Tool,
    ToolCall,
)
from bot.settings import Layer
from bot.testing import AgentHarness, model_answer, running_agent
from plugins.ollama import OllamaClient, OllamaSettings, describe_image, embed, large, plugin, small

ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
LLAMA = {"capabilities": ["completion", "tools"], "model_info": {"llama.context_length": 131072}}
GEMMA = {"capabilities": ["completion", "vision"], "model_info": {"gemma3.context_length": 8192}}
NOMIC = {"capabilities": ["embedding"], "model_info": {"nomic-bert.context_length": 2048}}


class Ollama:
    """Ollama's paths on the loopback: the native ones about models, and OpenAI's for the rest."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models
        self.requests: list[dict[str, Any]] = []
        self.authorizations: set[str] = set()
        self.url = ""

    async def tags(self, request: web.Request) -> web.Response:
        self.authorizations.add(request.headers.get("Authorization", ""))
        return web.json_response({"models": [{"name": name, "model": name, "size": 1} for name in self.models]})

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response({"license": "", **self.models[(await request.json())["model"]]})

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        name = body["model"] if ":" in body["model"] else f"{body['model']}:latest"
        if name not in self.models:
            message = f'model "{body["model"]}" not found, try pulling it first'
            return web.json_response({"error": {"message": message, "type": "not_found_error"}}, status=404)
        if body.get("tools") and "tools" not in self.models[name].get("capabilities", ["tools"]):
            message = f"registry.ollama.ai/library/{name} does not support tools"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        message: Any = {"role": "assistant", "content": model_answer("Hello from here.")}
        if body.get("tools"):
            function = {"name": "ROLL", "arguments": '{"sides":6}'}
            message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
        usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"model": body["model"], "choices": [choice], "usage": usage})

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        data = [{"index": index, "embedding": [0.5, 0.25]} for index, _ in enumerate(body["input"])]
        return web.json_response({"data": data, "model": body["model"], "usage": {"prompt_tokens": 3}})


@asynccontextmanager
async def ollama(models: dict[str, Any]) -> AsyncIterator[Ollama]:
    server = Ollama(models)
    app = web.Application()
    app.router.add_get("/api/tags", server.tags)
    app.router.add_post("/api/show", server.show)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/v1/embeddings", server.embeddings)
    async with TestServer(app) as running:
        server.url = str(running.make_url("")).rstrip("/")
        yield server


@asynccontextmanager
async def agent_at(server: Ollama, **settings: str) -> AsyncIterator[AgentHarness]:
    async with running_agent(
        plugin, settings={"OLLAMA_API_ENDPOINT": f"{server.url}/api", **settings}
    ) as agent_harness:
        yield agent_harness


async def test_the_only_model_for_text_answers_without_any_setting_but_the_address() -> None:
    models = {"llama3.2:latest": LLAMA, "nomic-embed-text:latest": NOMIC}
    async with ollama(models) as server, agent_at(server) as agent_harness:
        receipt = await agent_harness.send("hi")

    assert receipt.outcome is Outcome.ANSWERED
    assert agent_harness.texts == ["Hello from here."]
    assert {request["model"] for request in server.requests} == {"llama3.2"}


async def test_the_log_lists_at_start_what_each_model_can_do(caplog: pytest.LogCaptureFixture) -> None:
    models = {"llama3.2:latest": LLAMA, "gemma3:4b": GEMMA, "nomic-embed-text:latest": NOMIC, "old:1b": {}}
    with caplog.at_level(logging.INFO, "bot.models"):
        async with ollama(models) as server, agent_at(server, OLLAMA_LARGE_MODEL="gemma3:4b"):
            pass
    [line] = [record.message for record in caplog.records if "models of" in record.message]
    assert line.partition(": models of ")[2].partition(": ")[2] == (
        "gemma3:4b (pictures, 4,096 tokens), llama3.2 (tools, 4,096 tokens), "
        "nomic-embed-text (embeddings, 2,048 tokens), old:1b"
    )


async def test_a_model_that_the_server_has_not_is_named_with_the_command_that_fetches_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"OLLAMA_LARGE_MODEL": "qwen3", "OLLAMA_SMALL_MODEL": "llama3.2:latest"}
    async with ollama({"llama3.2:latest": LLAMA}) as server, agent_at(server, **settings) as agent_harness:
        with pytest.raises(ModelRefused, match="`ollama pull qwen3` on the server fetches it"):
            await large(agent_harness.agent, TextRequest("Say hello."))

    [warning] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "has no model 'qwen3' (OLLAMA_LARGE_MODEL): `ollama pull qwen3`" in warning


@pytest.mark.parametrize(
    ("models", "cause"),
    [
        ({}, r"no model for text: `ollama pull NAME`"),
        ({"a": LLAMA, "b": LLAMA}, r"several models: set OLLAMA_LARGE_MODEL to one of a, b"),
    ],
)
async def test_without_a_single_model_the_error_says_what_to_do_and_the_next_call_looks_again(
    models: dict[str, Any], cause: str
) -> None:
    async with ollama(models) as server, agent_at(server) as agent_harness:
        with pytest.raises(ModelRefused, match=cause):
            await large(agent_harness.agent, TextRequest("Say hello."))
        server.models = {"llama3.2:latest": LLAMA}
        assert (await large(agent_harness.agent, TextRequest("Say hello."))).model == "llama3.2"


async def test_the_small_model_is_the_large_model_unless_it_is_set() -> None:
    async with ollama({"a:1b": LLAMA, "b:8b": LLAMA}) as server:
        async with agent_at(server, OLLAMA_LARGE_MODEL="b:8b") as agent_harness:
            assert (await small(agent_harness.agent, TextRequest("Hm?"))).model == "b:8b"
        async with agent_at(server, OLLAMA_LARGE_MODEL="b:8b", OLLAMA_SMALL_MODEL="a:1b") as agent_harness:
            assert (await small(agent_harness.agent, TextRequest("Hm?"))).model == "a:1b"


@pytest.mark.parametrize(("name", "calls"), [("llama3.2", (ToolCall("ROLL", {"sides": 6}),)), ("gemma3:4b", ())])
async def test_functions_are_offered_only_to_a_model_that_can_call_them(name: str, calls: Sequence[ToolCall]) -> None:
    models = {"llama3.2:latest": LLAMA, "gemma3:4b": GEMMA}
    settings = {"OLLAMA_TOOLS": "true", "OLLAMA_LARGE_MODEL": name}
    async with ollama(models) as server, agent_at(server, **settings) as agent_harness:
        assert agent_harness.agent.models.can_call_tools(large.type) == bool(calls)
        result = await large(agent_harness.agent, TextRequest("Roll!", tools=(ROLL,)))

    assert result.tool_calls == calls
    assert [bool(request.get("tools")) for request in server.requests] == [bool(calls)]


async def test_functions_are_left_out_where_an_old_server_tells_of_them_only_by_an_error() -> None:
    async with ollama({"old:1b": {}}) as server, agent_at(server, OLLAMA_TOOLS="true") as agent_harness:
        server.models["old:1b"] = {"capabilities": ["completion"]}
        assert (await large(agent_harness.agent, TextRequest("Roll!", tools=(ROLL,)))).text

    assert [bool(request.get("tools")) for request in server.requests] == [True, False]


async def test_pictures_are_described_and_vectors_made_by_the_models_that_are_set() -> None:
    async with (
        ollama({"gemma3:4b": GEMMA, "nomic-embed-text:latest": NOMIC}) as server,
        agent_at(
            server, OLLAMA_IMAGE_DESCRIPTION_MODEL="gemma3:4b", OLLAMA_EMBEDDING_MODEL="nomic-embed-text"
        ) as agent_harness,
    ):
        assert (await describe_image(agent_harness.agent, ImageDescriptionRequest(b"\x89PNG", "image/png"))).text
        result = await embed(agent_harness.agent, EmbeddingRequest(("a", "b")))

    assert server.requests[0]["messages"][0]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert (result.vectors, result.model) == (((0.5, 0.25), (0.5, 0.25)), "nomic-embed-text-2")


async def test_a_server_that_is_away_stops_no_start_and_the_error_says_to_start_it(free_tcp_port: int) -> None:
    async with running_agent(
        plugin, settings={"OLLAMA_API_ENDPOINT": f"http://127.0.0.1:{free_tcp_port}"}
    ) as agent_harness:
        with pytest.raises(ModelUnreachable, match="start the server, or correct OLLAMA_API_ENDPOINT"):
            await large(agent_harness.agent, TextRequest("Say hello."))


async def test_a_server_that_is_not_ollama_is_distinguished_from_ollama() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"hello": "world"})

    app = web.Application()
    app.router.add_get("/api/tags", answer)
    async with (
        TestServer(app) as other,
        running_agent(plugin, settings={"OLLAMA_API_ENDPOINT": str(other.make_url("/")).rstrip("/")}) as agent_harness,
    ):
        with pytest.raises(ModelError, match="is not Ollama: check OLLAMA_API_ENDPOINT"):
            await agent_harness.agent.services[OllamaClient].listing.load()


async def test_the_key_of_the_cloud_is_sent_with_every_request() -> None:
    async with ollama({"llama3.2:latest": LLAMA}) as server, agent_at(server, OLLAMA_API_KEY="a-key-of-the-tests"):
        assert server.authorizations == {"Bearer a-key-of-the-tests"}


def test_a_characters_file_cannot_send_the_operators_key_to_a_server_of_its_own() -> None:
    file = Layer("the character's settings", {"OLLAMA_API_ENDPOINT": "http://elsewhere.example"}, is_operator=False)
    assert Settings([file]).load(OllamaSettings).is_default("ollama_api_endpoint")
