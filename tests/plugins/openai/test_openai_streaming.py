"""Answers that come piece by piece, whole, cut, stalled, or with a fault in the middle."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.events import ModelUsed
from bot.models import ModelBusy, ModelError, ModelUnavailable, TextRequest, TextResult, Tool, ToolCall, Usage
from bot.models.openai_compatible import complete
from bot.testing import AgentHarness
from plugins.openai import Client, large
from tests.plugins.loopback import Answer, Cut, Hang, Loopback, Sink, loopback, patient
from tests.plugins.openai.wire import DONE, completion, counted, delta, finish, open_harness

HELLO = (delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo."))
ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


@pytest.fixture
async def there(api: Loopback) -> AsyncIterator[AgentHarness]:
    async with open_harness(api.url) as harness:
        yield harness


async def ask(harness: AgentHarness, sink: Sink, **details: Any) -> TextResult:
    request = TextRequest("the prompt", sink=sink, **details)
    return await complete(harness.agent.services[Client], "large", request)


async def test_pieces_are_shown_as_they_come_and_the_whole_is_given(there: AgentHarness, api: Loopback) -> None:
    go, sink = asyncio.Event(), Sink()
    api.answers = [Answer(events=(*HELLO[:2], go, HELLO[2], finish(), counted(), DONE))]
    task = asyncio.ensure_future(ask(there, sink))
    await sink.first.wait()
    assert sink.seen == ["Hel"]
    go.set()

    assert await task == TextResult("Hello.", "large-1", Usage(100, 20))
    assert sink.seen == ["Hel", "lo."]
    assert (api.bodies[0]["stream"], api.bodies[0]["stream_options"]) == (True, {"include_usage": True})


async def test_without_a_client_to_show_it_to_an_answer_comes_in_a_single_piece(
    there: AgentHarness, api: Loopback
) -> None:
    api.answers = [Answer(completion())]
    await complete(there.agent.services[Client], "large", TextRequest("the prompt"))

    assert "stream" not in api.bodies[0]


@pytest.mark.parametrize(
    "end",
    [
        (finish(), DONE),
        (finish(),),
        (finish(), "data:[DONE]\n\n"),
        (finish(), 'data: "[DONE]"\n\n'),
        (finish(), "[DONE]\n\n"),
        (DONE,),
        (finish(), "data: [DONE]"),
        (": keep-alive\n\n", "event: message\n", "\r\n", finish(), "data: [DONE]\r\n\r\n"),
    ],
)
async def test_every_way_to_end_a_stream_is_understood(
    there: AgentHarness, api: Loopback, end: tuple[Any, ...]
) -> None:
    api.answers = [Answer(events=(*HELLO, *end))]

    assert (await ask(there, Sink())).text == "Hello."


async def test_where_the_numbers_are_missing_they_are_left_to_be_estimated(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(events=(*HELLO, finish(), {"choices": [], "usage": None}, DONE))]

    assert (await ask(there, Sink())).usage is None


async def test_a_text_keeps_line_ends_and_separators_of_every_kind(there: AgentHarness, api: Loopback) -> None:
    text = "a\u2028b\x85c\u000bd\ne"
    raw = '{"choices": [{"delta": {"content": "a\u2028b\x85c\\u000bd\\ne"}}]}'
    api.answers = [Answer(events=(f"data: {raw}\n\n", finish(), DONE))]

    assert (await ask(there, Sink())).text == text


@pytest.mark.failure("E-03")
@pytest.mark.parametrize(
    "broken",
    [
        (Cut(),),
        (),
        ("data: {broken\n\n",),
        ("data: error: out of memory\n\n",),
        ({"error": {"message": "overloaded", "type": "server_error"}},),
        ({"error": "slot unavailable"},),
    ],
    ids=["cut", "closed", "no JSON", "plain text", "an error", "an error in a word"],
)
async def test_an_answer_that_breaks_off_is_no_answer(
    there: AgentHarness, api: Loopback, broken: tuple[Any, ...]
) -> None:
    api.answers = [Answer(events=(*HELLO[:2], *broken))]
    with pytest.raises(ModelBusy, match=r"^openai: .*bro(ke|ken)"):
        await ask(there, Sink())


@pytest.mark.failure("E-03")
async def test_after_a_cut_it_is_asked_again_and_the_shown_is_taken_back(there: AgentHarness, api: Loopback) -> None:
    sink, waits = Sink(), list[float]()
    retry = Answer({"error": {"message": "busy"}}, 503, {"Retry-After": "7"})
    api.answers = [
        Answer(events=(delta(content="Hal"), {"error": {"message": "reset"}})),
        retry,
        Answer(events=(*HELLO, finish(), DONE)),
    ]
    result = await patient(there, large, waits).text(TextRequest("the prompt", sink=sink))

    assert result.text == "Hello."
    assert sink.seen == ["Hal", None, "Hel", "lo."]
    assert len(api.asked) == 3
    assert 0 < waits[0] <= 0.5
    assert waits[1] >= 7


async def test_a_cancelled_call_closes_its_request(there: AgentHarness, api: Loopback) -> None:
    sink = Sink()
    calls: list[ModelUsed] = []
    there.agent.events.subscribe(ModelUsed, calls.append, at_once=True)
    api.answers = [Answer(events=(*HELLO, Hang()))]
    task = asyncio.ensure_future(there.agent.models.text(TextRequest("the prompt", sink=sink)))
    await sink.first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await api.gone.wait()
    assert [(used.call.model, used.call.error) for used in calls] == [("large-1", "cancelled")]


async def test_a_call_without_a_first_byte_is_closed_when_it_is_cancelled(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(events=(Hang(),))]
    task = asyncio.ensure_future(there.agent.models.text(TextRequest("the prompt")))
    await api.streaming.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await api.gone.wait()


async def test_the_connection_of_a_streamed_answer_is_used_again(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(events=(delta(content="Hello."), finish(), DONE))]
    for _ in range(3):
        assert (await ask(there, Sink())).text == "Hello."

    assert len({asked.client for asked in api.asked}) == 1


@pytest.mark.long
async def test_a_response_that_stays_open_after_its_end_does_not_hold_up_the_answer(
    there: AgentHarness, api: Loopback
) -> None:
    api.answers = [Answer(events=(*HELLO, finish(), DONE, Hang()))]

    assert (await ask(there, Sink())).text == "Hello."


async def test_a_server_that_does_not_stream_is_understood_all_the_same(there: AgentHarness, api: Loopback) -> None:
    sink = Sink()
    api.answers = [Answer(completion())]

    assert (await ask(there, sink)).text == "Hello."
    assert sink.seen == ["Hello."]


async def test_reasoning_fields_are_neither_shown_nor_said(there: AgentHarness, api: Loopback) -> None:
    sink = Sink()
    events = [delta(reasoning_content="Well…"), delta(reasoning="Hm."), delta(content="Hel"), delta(content="lo.")]
    api.answers = [Answer(events=(*events, finish(), DONE))]

    assert (await ask(there, sink)).text == "Hello."
    assert sink.seen == ["Hel", "lo."]


async def test_thoughts_in_the_text_are_left_to_the_reader_of_answers(there: AgentHarness, api: Loopback) -> None:
    sink = Sink()
    api.answers = [Answer(events=(delta(content="<think>Hm.</think>"), delta(content="Hello."), finish(), DONE))]

    assert (await ask(there, sink)).text == "<think>Hm.</think>Hello."
    assert sink.seen == ["<think>Hm.</think>", "Hello."]


async def test_calls_come_whole_however_they_are_cut_into_pieces(there: AgentHarness, api: Loopback) -> None:
    api.answers = [
        Answer(
            events=(
                delta(content="Rolling."),
                delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "ROLL", "arguments": ""}}]),
                delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "ROLL", "arguments": "{}"}}]),
                delta(tool_calls=[{"index": 0, "function": {"arguments": '{"si'}}]),
                delta(tool_calls=[{"index": 0, "function": {"arguments": 'des": 6}'}}]),
                finish("tool_calls"),
                DONE,
            )
        )
    ]
    result = await ask(there, Sink(), tools=(ROLL,))

    assert result.text == "Rolling."
    assert result.tool_calls == (ToolCall("ROLL", {"sides": 6}), ToolCall("ROLL", {}))
    assert api.bodies[0]["tools"][0]["function"]["name"] == "ROLL"


async def test_calls_without_a_number_follow_each_other(there: AgentHarness, api: Loopback) -> None:
    first, second = ({"function": {"name": name, "arguments": "{}"}} for name in ("A", "B"))
    api.answers = [Answer(events=(delta(tool_calls=[first]), delta(tool_calls=[second]), finish(), DONE))]

    assert [call.name for call in (await ask(there, Sink(), tools=(ROLL,))).tool_calls] == ["A", "B"]


@pytest.mark.failure("E-03")
@pytest.mark.parametrize("arguments", ['{"sides": ', "[6]", "six", "{'sides': "])
async def test_a_call_with_half_its_arguments_is_never_handed_on(
    there: AgentHarness, api: Loopback, arguments: str
) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "ROLL", "arguments": arguments}}
    api.answers = [Answer(events=(delta(tool_calls=[call]), finish("tool_calls"), DONE))]
    with pytest.raises(ModelError, match="cannot be read"):
        await ask(there, Sink(), tools=(ROLL,))

    api.answers = [Answer(events=(delta(tool_calls=[call]), finish("length"), DONE))]
    result = await ask(there, Sink(), tools=(ROLL,))
    assert (result.tool_calls, result.has_cut_call) == ((), True)


async def test_a_call_that_cannot_be_read_is_asked_for_once_more(there: AgentHarness, api: Loopback) -> None:
    broken, whole = (
        {"index": 0, "id": "a", "function": {"name": "ROLL", "arguments": arguments}}
        for arguments in ('{"sides": 6', '{"sides": 6}')
    )
    api.answers = [Answer(events=(delta(tool_calls=[call]), finish("tool_calls"), DONE)) for call in (broken, whole)]

    result = await there.agent.models.text(TextRequest("the prompt", sink=Sink(), tools=(ROLL,)))

    assert result.tool_calls == (ToolCall("ROLL", {"sides": 6}),)


async def test_a_text_without_an_end_is_not_read_for_ever(there: AgentHarness, api: Loopback) -> None:
    api.answers = [Answer(events=(*(delta(content="x" * 300_000),) * 4, Hang()))]
    with pytest.raises(ModelError, match="without an end"):
        await ask(there, Sink())


@pytest.mark.failure("E-03")
async def test_a_server_that_says_nothing_is_given_up_after_the_operators_time(api: Loopback) -> None:
    api.answers = [Answer(events=(Hang(),))]
    async with open_harness(api.url, MODEL_TIMEOUT="0.05", MODEL_RETRIES="0") as harness:
        receipt = await harness.send("hi")

    assert "openai: no answer within 0.05 s" in receipt.reason
    assert len(harness.texts) == 1


async def test_a_stream_that_stalls_is_given_up_after_the_operators_time_between_two_pieces(api: Loopback) -> None:
    api.answers = [Answer(events=(*HELLO, Hang()))]
    async with open_harness(api.url, MODEL_TOKEN_TIMEOUT="0.1", MODEL_RETRIES="0") as harness:
        with pytest.raises(ModelUnavailable, match=r"openai: no data for 0\.1 s"):
            await harness.agent.models.text(TextRequest("the prompt", sink=Sink()))


@pytest.mark.long
@pytest.mark.parametrize("piece", ["x" * 2**20, f"data: {json.dumps(delta(content='🙂' * 2**17))}\n\n"])
async def test_answers_without_an_end_share_the_memory_of_the_process(api: Loopback, piece: str) -> None:
    api.answers = [Answer(events=("data: " if piece.startswith("x") else "\n", *[piece] * 40))]
    async with open_harness(api.url, MEMORY_LIMIT="16MiB", MODEL_RETRIES="0") as harness:
        agent = harness.agent
        tracemalloc.start()
        try:
            answers = (agent.models.text(TextRequest("?", sink=Sink())) for _ in range(8))
            errors = await asyncio.gather(*answers, return_exceptions=True)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 * 2**20
        assert any("MEMORY_LIMIT" in str(error) for error in errors)
        assert all(isinstance(error, ModelError) for error in errors)
        assert agent.memory.held == 0


async def test_tokens_are_also_read_where_groq_puts_them(there: AgentHarness, api: Loopback) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    api.answers = [Answer(events=(delta(content="Hi."), {**finish(), "x_groq": {"usage": usage}}, DONE))]

    assert (await ask(there, sink=Sink())).usage == Usage(3, 2)
