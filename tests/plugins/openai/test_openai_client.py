"""Rules of the openai plugin, against a server on the loopback that speaks its API."""

import asyncio
import json
import platform
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from bot import ChannelType, Outcome
from bot.models import (
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    TextRequest,
    TextResult,
    Usage,
)
from bot.models.openai_compatible import END_TOKENS, complete
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from bot.text import user_text
from plugins.openai import Client, missing_settings, plugin

KEY = "sk-a-key-of-the-tests"
ANSWER_TEXT = "<response><thought>t</thought><actions>REPLY</actions><text>Hello from there.</text></response>"


def completion(content: str | None = ANSWER_TEXT, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "large-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        **more,
    }


@dataclass
class Answer:
    """An answer of the server."""

    body: Any = field(default_factory=completion)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass
class Api:
    """A chat completion server that returns the prepared answers, the last repeatedly."""

    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        self.headers.append(request.headers)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        return web.Response(text=body, status=answer.status, headers=answer.headers, content_type=answer.content_type)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    found = Api()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", found.handle)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/v1"))
        yield found


@pytest.fixture
async def there(api: Api) -> AsyncIterator[AgentHarness]:
    """Run an agent whose only large model is that server's."""
    async with open_harness(api.url) as harness:
        yield harness


def open_harness(url: str, **settings: str) -> Any:
    def never(request: TextRequest) -> str:
        raise ModelUnavailable("the second model was asked")

    given = {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": url,
        "OPENAI_LARGE_MODEL": "large",
        "OPENAI_SMALL_MODEL": "small",
        **settings,
    }
    return running_agent(plugin, model=ScriptedModel(never), settings=given)


async def ask(harness: AgentHarness, **details: Any) -> TextResult:
    request = TextRequest("the prompt", system="the system prompt", **details)
    return await complete(harness.agent.services[Client], "large", request)


async def test_a_text_comes_with_its_model_and_its_tokens(there: AgentHarness, api: Api) -> None:
    result = await ask(there)
    assert result == TextResult(ANSWER_TEXT, "large-1", Usage(100, 20, 64), is_truncated=False)
    assert api.requests == [
        {
            "model": "large",
            "messages": [{"role": "system", "content": "the system prompt"}, {"role": "user", "content": "the prompt"}],
            "stop": END_TOKENS,  # of a server on this machine
        }
    ]
    assert api.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_a_server_learns_nothing_of_the_machine(there: AgentHarness, api: Api) -> None:
    await there.agent.models.text(TextRequest("Hello"))
    described = (platform.system(), platform.machine(), platform.python_version())
    assert not [value for value in api.headers[0].values() if value in described]


async def test_only_what_is_set_is_sent(there: AgentHarness, api: Api) -> None:
    await ask(there, max_tokens=5, temperature=0.0, top_p=0.5, seed=7, stop=("x", "y"))
    sent = {key: value for key, value in api.requests[0].items() if key not in ("model", "messages")}
    assert sent == {"max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "seed": 7, "stop": ["x", "y"]}


async def test_without_a_system_prompt_none_is_sent(there: AgentHarness, api: Api) -> None:
    await complete(there.agent.services[Client], "large", TextRequest("the prompt"))
    assert [message["role"] for message in api.requests[0]["messages"]] == ["user"]


async def test_a_text_that_was_cut_says_so(there: AgentHarness, api: Api) -> None:
    message = {"role": "assistant", "content": "half a"}
    api.answers = [Answer(completion(choices=[{"index": 0, "finish_reason": "length", "message": message}]))]
    assert (await ask(there)).is_truncated


@pytest.mark.failure("E-07")
async def test_a_refusal_of_the_model_is_its_text(there: AgentHarness, api: Api) -> None:
    """E-07: shown as a reply, not tried three times."""
    message = {"role": "assistant", "content": None, "refusal": "I would rather not."}
    api.answers = [Answer(completion(choices=[{"index": 0, "finish_reason": "stop", "message": message}]))]
    receipt = await there.send("hi")
    assert receipt.outcome is Outcome.ANSWERED
    assert there.texts == ["I would rather not."]
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, ModelRefused, "refused the key in OPENAI_API_KEY (401): set a valid key"),
        (404, ModelRefused, "does not know the model or path (404): check the model's name"),
        (400, ModelRefused, "refused the request (400): "),
        (402, ModelRefused, "refused the request (402): "),
        (403, ModelRefused, "refused the request (403): "),
        (422, ModelRefused, "refused the request (422): "),
        (429, ModelBusy, "cannot answer now (429): "),
        (500, ModelBusy, "cannot answer now (500): "),
        (529, ModelBusy, "cannot answer now (529): "),
    ],
)
async def test_an_error_says_what_it_means_and_what_to_do(
    there: AgentHarness, api: Api, status: int, kind: type[ModelError], words: str
) -> None:
    message = f"no luck\nwith {KEY}"
    api.answers = [Answer({"error": {"message": message}}, status, {"retry-after-ms": "1"})]
    with pytest.raises(kind) as raised:
        await ask(there)
    assert type(raised.value) is kind
    assert words in str(raised.value)
    assert "127.0.0.1" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert KEY not in str(raised.value)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("status", "words"), [(500, "cannot answer now (500): xxx"), (200, "the response is larger than 67108864 bytes")]
)
async def test_of_an_endless_response_only_so_much_is_read(status: int, words: str) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b"x" * (1 << 20))

    app = web.Application()
    app.router.add_post("/chat/completions", respond)
    async with asyncio.timeout(60.0), TestServer(app) as server, open_harness(str(server.make_url("/"))) as harness:
        with pytest.raises(ModelBusy, match=re.escape(words)):
            await ask(harness)


@pytest.mark.failure("E-02")
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_passing_fault_is_passed_over_and_every_try_is_booked(
    there: AgentHarness, api: Api, status: int
) -> None:
    api.answers = [Answer({"error": {"message": "slow down"}}, status, {"Retry-After": "0"}), Answer()]
    receipt = await there.send("hi")
    assert there.texts == ["Hello from there."]
    assert len(api.requests) == 2
    assert [bool(call.error) for call in receipt.model_calls] == [True, False]


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<html>not an API</html>", content_type="text/html"),
        Answer("{broken"),
        Answer(""),
        Answer("[]"),
        Answer("null"),
        Answer({"nothing": "here"}),
        Answer(completion(choices=[])),
        Answer(completion(choices=None)),
        Answer(completion(choices=[{}])),
        Answer(completion(choices=[{"index": 0, "message": None}])),
        Answer(completion(choices="x")),
        Answer(completion(choices=[{"message": "text"}])),
        Answer(completion(choices=["text"])),
    ],
)
async def test_an_answer_of_another_shape_is_an_error_of_the_model(
    there: AgentHarness, api: Api, answer: Answer
) -> None:
    api.answers = [answer]
    with pytest.raises(ModelError) as raised:
        await ask(there)
    assert str(raised.value).startswith("openai: ")
    assert "has no attribute" not in str(raised.value)


@pytest.mark.failure("E-11")
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, None),
        ({"prompt_tokens": "many", "completion_tokens": 2}, None),
        ({"prompt_tokens": -1, "completion_tokens": 2}, None),
        ({"prompt_tokens": 10**12, "completion_tokens": 2}, None),
        ({"prompt_tokens": 1.5, "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5.0, "completion_tokens": "2"}, Usage(5, 2)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(5, 2)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}}, Usage(5, 2)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 2, 5)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": "4"}}, Usage(5, 2, 4)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": "x"}, Usage(5, 2)),
        ("lots", None),
    ],
)
async def test_tokens_are_taken_where_they_make_sense_and_estimated_where_not(
    there: AgentHarness, api: Api, usage: Any, expected: Usage | None
) -> None:
    api.answers = [Answer(completion(usage=usage))]
    assert (await ask(there)).usage == expected


async def test_where_no_process_listens_the_model_is_unavailable() -> None:
    async with open_harness(f"http://127.0.0.1:{unused_port()}/v1") as harness:
        with pytest.raises(ModelUnreachable, match=r"cannot connect to 127\.0\.0\.1:\d+: .* correct OPENAI_BASE_URL"):
            await ask(harness)


async def test_a_server_that_cannot_be_reached_is_not_called_again_and_the_room_hears_at_once() -> None:
    async with open_harness(f"http://127.0.0.1:{unused_port()}/v1") as harness:
        receipt = await harness.send("hi")

    assert receipt.outcome is Outcome.FAILED
    assert len([call for call in receipt.model_calls if "cannot connect" in call.error]) == 1
    assert harness.texts == [user_text("notices.apology")]


async def test_an_unreachable_server_is_replaced_by_the_next_model_at_once() -> None:
    settings = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"http://127.0.0.1:{unused_port()}/v1"}
    second = ScriptedModel([model_answer("Hello from the second.")])
    async with running_agent(plugin, model=second, settings=settings) as harness:
        receipt = await harness.send("hi")

    assert harness.texts == ["Hello from the second."]
    assert len([call for call in receipt.model_calls if call.error]) == 1


@pytest.mark.parametrize("body", ["<html>502 Bad Gateway</html>", '{"choices": []}', "null"])
async def test_a_body_that_is_no_answer_is_asked_for_once_more(there: AgentHarness, api: Api, body: str) -> None:
    api.answers = [Answer(body), Answer(body), Answer()]
    assert (await there.send("hi")).outcome is Outcome.FAILED
    assert len(api.requests) == 2


async def test_an_answer_after_a_body_that_is_none_is_used(there: AgentHarness, api: Api) -> None:
    api.answers = [Answer("<html>502 Bad Gateway</html>"), Answer()]
    assert (await there.send("hi")).outcome is Outcome.ANSWERED
    assert there.texts == ["Hello from there."]


async def test_an_answered_direct_message_costs_a_single_large_call(there: AgentHarness, api: Api) -> None:
    receipt = await there.send("hi")
    assert there.texts == ["Hello from there."]
    [request] = api.requests
    assert request["model"] == "large"
    [call] = receipt.model_calls
    assert (call.type, call.purpose, call.model) == ("TEXT_LARGE", "reply", "large-1")
    assert (call.tokens_in, call.tokens_out, call.tokens_cached, call.is_estimate) == (100, 20, 64, False)


async def test_in_a_group_the_small_model_decides_first(there: AgentHarness, api: Api) -> None:
    decided = "<response><reasoning>r</reasoning><action>RESPOND</action></response>"
    api.answers = [Answer(completion(decided)), Answer()]
    receipt = await there.send("talking to somebody", kind=ChannelType.GROUP)
    assert [request["model"] for request in api.requests] == ["small", "large"]
    assert [call.purpose for call in receipt.model_calls] == ["should_respond", "reply"]
    assert there.texts == ["Hello from there."]


async def test_two_messages_of_a_conversation_send_a_common_beginning(there: AgentHarness, api: Api) -> None:
    for number in range(3):
        await there.send(f"Message {number}")
    prompts = [request["messages"][1]["content"] for request in api.requests]
    assert len({request["messages"][0]["content"] for request in api.requests}) == 1
    before, after = prompts[-2:]
    kept = before[: before.index("\n\nIt is ")]
    assert after.startswith(kept)
    assert len(kept) > 0.8 * len(before)


async def test_where_the_server_is_down_the_next_model_is_asked(api: Api) -> None:
    given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": api.url}
    api.answers = [Answer({"error": {"message": "bad key"}}, 401)]
    async with running_agent(plugin, settings=given) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["Hello."]
    assert [bool(call.error) for call in receipt.model_calls] == [True, False]
    assert KEY not in str(receipt)


@pytest.mark.failure("E-06")
async def test_a_refused_key_fails_with_its_reason_and_a_short_notice_to_the_room(
    there: AgentHarness, api: Api
) -> None:
    api.answers = [Answer({"error": {"message": "bad key"}}, 401)]
    receipt = await there.send("hi")
    assert receipt.outcome is Outcome.FAILED
    assert "refused the key in OPENAI_API_KEY" in receipt.reason
    assert len(there.texts) == 1
    assert "key" not in there.texts[0]


@pytest.mark.parametrize(
    ("settings", "is_there"),
    [({}, False), ({"OPENAI_API_KEY": KEY}, True), ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, True)],
)
async def test_it_needs_a_key_or_a_server(settings: dict[str, str], is_there: bool) -> None:
    async with running_agent(settings=settings) as harness:
        assert (missing_settings(harness.agent.settings) == "") is is_there


async def test_a_server_of_ones_own_needs_no_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with running_agent(plugin, settings={"OPENAI_BASE_URL": api.url}) as harness:
        assert (await ask(harness)).text == ANSWER_TEXT


async def test_the_key_never_leaves_in_a_reply(there: AgentHarness, api: Api) -> None:
    api.answers = [Answer(completion(f"<response><text>It is {KEY}.</text></response>"))]
    await there.send("What is your key?")
    assert there.texts == ["It is [redacted]."]


async def test_a_request_goes_through_the_proxy_of_the_environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", api.url.removesuffix("/v1"))
    async with open_harness("http://model.test/v1") as harness:
        result = await complete(harness.agent.services[Client], "large", TextRequest("hello"))
    assert result.text == ANSWER_TEXT
    assert api.headers[0]["Host"] == "model.test"


async def test_an_error_that_is_no_text_is_reported(api: Api, there: AgentHarness) -> None:
    api.answers = [Answer("[" * 100_000, 500, content_type="text/plain; charset=unknown")]
    with pytest.raises(ModelBusy, match="cannot answer now"):
        await complete(there.agent.services[Client], "large", TextRequest("hello"))
