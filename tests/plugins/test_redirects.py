"""A redirect of a model server: to another server it is refused, within the server it is followed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.models import ModelRefused, TextRequest, TextResult
from bot.models.openai_compatible import complete
from bot.testing import AgentHarness, ScriptedModel, running_agent
from plugins.anthropic import plugin as anthropic_plugin
from plugins.anthropic.client import Client as AnthropicClient
from plugins.openai import Client as OpenAIClient
from plugins.openai import plugin as openai_plugin
from tests.plugins.anthropic.test_anthropic import message
from tests.plugins.loopback import Answer, Loopback, Sink, loopback
from tests.plugins.openai.wire import completion

KEY = "sk-a-key-of-the-tests"
SECRET = "what was said in confidence"


async def ask_openai(harness: AgentHarness, request: TextRequest) -> TextResult:
    return await complete(harness.agent.services[OpenAIClient], "large", request)


async def ask_anthropic(harness: AgentHarness, request: TextRequest) -> TextResult:
    return await harness.agent.services[AnthropicClient].write("large", request)


VENDORS: dict[str, Any] = {
    "openai": (openai_plugin, ask_openai, "/v1", completion()),
    "anthropic": (anthropic_plugin, ask_anthropic, "", message()),
}


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


@pytest.fixture
async def elsewhere() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


async def ask(vendor: str, api: Loopback, sink: Sink | None = None) -> TextResult:
    plugin, ask_model, base_path, _ = VENDORS[vendor]
    name = vendor.upper()
    settings = {f"{name}_API_KEY": KEY, f"{name}_BASE_URL": f"{api.url}{base_path}", f"{name}_LARGE_MODEL": "large"}
    async with running_agent(plugin, model=ScriptedModel(lambda request: ""), settings=settings) as harness:
        result: TextResult = await ask_model(harness, TextRequest(SECRET, sink=sink))
        return result


@pytest.mark.matrix(3)
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_server_is_refused_and_nothing_is_sent_there(
    vendor: str, status: int, is_streamed: bool, api: Loopback, elsewhere: Loopback
) -> None:
    elsewhere.answers = [Answer(VENDORS[vendor][3])]
    port = elsewhere.url.rpartition(":")[2]
    for target in (
        f"{elsewhere.url}/v1/x",
        f"//127.0.0.1:{port}/",
        f"http://user@127.0.0.1:{port}",
        f"https:{api.url[5:]}",
    ):
        api.answers = [Answer("", status, {"Location": target})]
        with pytest.raises(
            ModelRefused, match=rf"redirects to .*, another server.*set {vendor.upper()}_BASE_URL"
        ) as raised:
            await ask(vendor, api, Sink() if is_streamed else None)
        assert KEY not in str(raised.value)
    assert elsewhere.asked == []


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_redirect_within_the_server_is_followed(vendor: str, api: Loopback) -> None:
    api.answers = [Answer("", 307, {"Location": "/v2/here"}), Answer(VENDORS[vendor][3])]
    await ask(vendor, api)
    assert [asked.path for asked in api.asked][1:] == ["/v2/here"]
    assert api.bodies[0] == api.bodies[1]
