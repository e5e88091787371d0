"""Where no variable names a model, a server other than OpenAI is asked which it has."""

from collections.abc import Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.models import ModelRefused, TextRequest
from bot.testing import running_agent
from plugins.openai import large, plugin
from tests.plugins.openai.wire import completion


async def ask(served: Sequence[str] | None, **settings: str) -> list[str]:
    """Send a message to an agent whose server has these models; return the models that were asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((await request.json())["model"])
        return web.json_response(completion("Hello."))

    async def list_models(request: web.Request) -> web.Response:
        if served is None:
            return web.json_response({"error": "no such path"}, status=404)
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in served]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/models", list_models)
    async with TestServer(app) as server:
        settings["OPENAI_BASE_URL"] = str(server.make_url("/v1"))
        async with running_agent(plugin, settings=settings) as harness:
            await large(harness.agent, TextRequest("Say hello."))
    return asked


@pytest.mark.parametrize(
    ("served", "settings", "model"),
    [
        (["llama3.2"], {}, "llama3.2"),
        (["llama3.2", "nomic-embed-text"], {}, "llama3.2"),
        (["gpt-4o", "gpt-4o-mini", "other"], {}, "gpt-4o"),
        (["a", "b"], {"OPENAI_LARGE_MODEL": "b"}, "b"),
        (None, {}, "gpt-4o"),
        ([], {}, "gpt-4o"),
    ],
)
async def test_the_only_model_of_a_server_is_used(
    served: list[str] | None, settings: dict[str, str], model: str
) -> None:
    assert await ask(served, **settings) == [model]


async def test_of_several_models_the_error_says_what_to_set() -> None:
    with pytest.raises(ModelRefused, match=r"several models and not gpt-4o: set OPENAI_LARGE_MODEL .* to one of a, b"):
        await ask(["a", "b"])
