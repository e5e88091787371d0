"""What a router learns of a model: limits of answers, thoughts, speed, and the order at a server on this machine."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot.costs.budget import Budget, ReservationLedger, load_prices
from bot.domain.ledger import Limit, LimitScope
from bot.errors import ModelUnavailable, PromptTooLong
from bot.models.handler import (
    DEFAULT_OUTPUT_TOKENS,
    MIN_ANSWER_TOKENS,
    MIN_THINKING_TOKENS,
    THINKING_TOKENS,
    ModelHandler,
    ModelProfile,
)
from bot.models.router import ends_too_early
from bot.models.types import ModelInfo, ModelType, Purpose, TextRequest, TextResult, ToolCall, Usage
from tests.models.bench import RouterBench, answer_never, build_result

REPLY = TextRequest("Hello?", purpose=Purpose.REPLY)
CUT_THOUGHT = "<response><thought>Let me think about"


def recording(limits: list[int | None], *results: TextResult) -> Callable[[TextRequest], Any]:
    """Return a handler that records the limit of each request and gives these results, the last again and again."""
    waiting = list(results)

    async def handle(request: TextRequest) -> TextResult:
        limits.append(request.max_tokens)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return handle


def serve(bench: RouterBench, handle: Any, info: ModelInfo, kind: ModelType = ModelType.TEXT_LARGE) -> None:
    async def describe() -> ModelInfo:
        return info

    bench.router.register(ModelHandler(kind, handle, "server", describe_model=describe))


@pytest.mark.parametrize(
    ("purpose", "limit"),
    [(Purpose.REPLY, 1024), (Purpose.SHOULD_RESPOND, 256), (Purpose.POST, 1024), (Purpose.OTHER, 2048)],
)
async def test_every_text_has_a_limit_by_its_purpose(purpose: Purpose, limit: int) -> None:
    bench, limits = RouterBench(), list[int | None]()
    bench.serve(recording(limits, build_result()))
    await bench.router.text(TextRequest("Hello?", purpose=purpose))
    await bench.router.text(TextRequest("Hello?", purpose=purpose, max_tokens=7))

    assert limits == [limit, 7]


@pytest.mark.parametrize(
    ("result", "is_early"),
    [
        (TextResult(""), True),
        (TextResult("<think>So the user"), True),
        (TextResult(CUT_THOUGHT), True),
        (TextResult('<response><actions>ROLL</actions><parameters>{"ROLL": {"si'), True),
        (TextResult('{"thought": "hm", "actions": ["REPLY"], "te'), True),
        (TextResult('Let me see. <tool_call>{"name": "ROLL", "arguments": {"si'), True),
        (TextResult("I will roll.", has_cut_call=True), True),
        (TextResult("Once upon a time there was a"), False),
        (TextResult("<response><actions>REPLY</actions><text>Once upon a"), False),
        (TextResult('{"actions": ["REPLY"], "text": "Once upon a'), False),
        (TextResult("", tool_calls=(ToolCall("ROLL", {}),)), False),
        (TextResult("<response><reasoning>short</reasoning><action>RESPOND</action></response>"), False),
    ],
)
def test_an_answer_that_its_limit_ended_before_its_text_needs_more_tokens(result: TextResult, is_early: bool) -> None:
    cut = TextResult(result.text, is_truncated=True, tool_calls=result.tool_calls, has_cut_call=result.has_cut_call)
    assert ends_too_early(cut) is is_early
    assert not ends_too_early(TextResult(result.text))


async def test_an_answer_without_text_is_requested_once_more_with_four_times_the_limit_which_is_remembered() -> None:
    bench, limits = RouterBench(), list[int | None]()
    cut = TextResult(CUT_THOUGHT, "m", Usage(90, 1024), is_truncated=True)
    bench.serve(recording(limits, cut, build_result(), build_result()))

    assert (await bench.router.text(REPLY)).text == "Hello."
    await bench.router.text(REPLY)
    assert limits == [1024, 4096, 4096]
    assert len(bench.calls) == 3


async def test_a_model_that_never_ends_its_thoughts_is_not_asked_a_third_time() -> None:
    bench, limits = RouterBench(), list[int | None]()
    bench.serve(recording(limits, TextResult(CUT_THOUGHT, "m", Usage(90, 1024), is_truncated=True)))

    assert (await bench.router.text(REPLY)).is_truncated
    assert (await bench.router.text(REPLY)).is_truncated
    assert limits == [1024, 4096, 4096]


@pytest.mark.parametrize(
    "result",
    [
        TextResult("Hi.", "m", Usage(90, 30), has_thoughts=True),
        TextResult("<think>The user says hello, so I will too.</think>Hi.", "m", Usage(90, 30)),
    ],
)
async def test_a_model_that_thinks_has_an_allowance_from_then_on(result: TextResult) -> None:
    bench, limits = RouterBench(), list[int | None]()
    bench.serve(recording(limits, result))
    for _ in range(2):
        await bench.router.text(REPLY)

    assert limits == [1024, 1024 + THINKING_TOKENS]


async def test_the_allowance_is_no_larger_than_what_the_budget_can_pay_for() -> None:
    limits = list[int | None]()
    budget = Budget((Limit("BUDGET_TOKENS", LimitScope.ALL, False, 4_000),))
    bench = RouterBench(reserve=ReservationLedger(budget, load_prices(), lambda call: None).reserve)
    bench.serve(recording(limits, TextResult("Hi.", "m", Usage(90, 30), has_thoughts=True)))
    for _ in range(2):
        await bench.router.text(REPLY)

    assert limits[0] == 1024
    assert MIN_ANSWER_TOKENS + MIN_THINKING_TOKENS < (limits[1] or 0) < 4_000


async def test_the_answer_and_the_prompt_fit_into_the_context_window_together() -> None:
    bench, limits = RouterBench(), list[int | None]()
    serve(bench, recording(limits, build_result()), ModelInfo("small", context_length=2048))
    await bench.router.text(REPLY)
    await bench.router.text(TextRequest("x" * 4_000, purpose=Purpose.REPLY))
    with pytest.raises(PromptTooLong, match="small, whose context window has 2048 tokens"):
        await bench.router.text(TextRequest("x" * 9_000, purpose=Purpose.REPLY))

    assert limits == [512, 512]


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", 8192),
        ("the request exceeds the available context size (2048 tokens), try increasing it", 2048),
        ("request (3000 tokens) exceeds the available context size (2048 tokens), try increasing it", 2048),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
        ("Input length 5000 exceeds the model's maximum context length of 4,096 tokens", 4096),
        ("the prompt is too long", None),
    ],
)
def test_the_window_is_read_from_the_error_for_a_long_prompt(message: str, window: int | None) -> None:
    profile = ModelProfile("m")
    profile.learn_window(message)
    assert profile.window == window


def test_a_server_on_this_machine_has_as_long_as_it_needs_to_read_the_prompt() -> None:
    remote, local = ModelProfile("m", prompt_speed=300.0), ModelProfile("m", is_local=True)
    assert remote.first_seconds(60_000, 120) == 120
    assert local.first_seconds(60_000, 120) == 120  # its speed is unknown
    local.prompt_speed = 300.0
    assert local.first_seconds(60_000, 120) == 400
    assert local.first_seconds(600, 120) == 120
    assert local.first_seconds(6_000_000, 120) == 1_200


async def test_a_server_on_this_machine_that_was_too_slow_has_longer_the_next_time() -> None:
    bench = RouterBench(first=0.01)
    serve(bench, answer_never, ModelInfo("small", is_local=True))
    causes = []
    for _ in range(2):
        with pytest.raises(ModelUnavailable) as caught:
            await bench.router.text(REPLY)
        causes.append(str(caught.value))

    assert causes == ["server: no answer within 0.01 s", "server: no answer within 0.02 s"]


async def test_a_call_that_is_too_slow_at_a_server_on_this_machine_is_not_repeated() -> None:
    bench = RouterBench(first=0.01, retries=8)
    serve(bench, answer_never, ModelInfo("small", is_local=True))
    with pytest.raises(ModelUnavailable, match="server: no answer within"):
        await bench.router.text(TextRequest(""))

    assert len(bench.calls) == 1


async def test_a_call_waits_for_those_before_it_at_a_server_on_this_machine() -> None:
    bench, order = RouterBench(first=0.05, pause=60), list[str]()
    first_has_begun, first_may_end = asyncio.Event(), asyncio.Event()

    async def in_sequence(request: TextRequest) -> TextResult:
        assert request.sink is not None
        order.append(request.system)
        if request.system == "first":
            await request.sink.write("Hel")
            first_has_begun.set()
            await first_may_end.wait()
        else:
            await first_may_end.wait()
            await request.sink.write("Hel")
        return build_result()

    for kind in (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL):
        serve(bench, in_sequence, ModelInfo("small", is_local=True), kind)
    first = asyncio.create_task(bench.router.text(TextRequest("", system="first")))
    await first_has_begun.wait()
    second = asyncio.create_task(bench.router.text(TextRequest("", system="second"), ModelType.TEXT_SMALL))
    asyncio.get_running_loop().call_later(0.15, first_may_end.set)  # longer than a first piece may take

    assert [(await call).text for call in (first, second)] == ["Hello.", "Hello."]
    assert order == ["first", "second"]


async def test_a_server_that_does_not_describe_its_model_is_called_all_the_same() -> None:
    bench, limits = RouterBench(), list[int | None]()

    async def fail() -> ModelInfo:
        raise OSError("no route")

    handler = ModelHandler(ModelType.TEXT_LARGE, recording(limits, build_result()), "server", describe_model=fail)
    bench.router.register(handler)

    assert (await bench.router.text(REPLY)).text == "Hello."
    assert limits == [DEFAULT_OUTPUT_TOKENS]


@pytest.mark.parametrize("length", [-1, 0, 1, 255])
def test_a_number_too_small_for_a_prompt_is_no_context_window(length: int) -> None:
    profile = ModelProfile("m")
    profile.update(ModelInfo("m", context_length=length))
    profile.learn_window(f"the maximum context length is {abs(length)} tokens")
    assert profile.window is None


@pytest.mark.parametrize(("count", "is_tiny"), [(None, False), (-5, False), (0, False), (1, True), (10**9, False)])
def test_a_model_is_tiny_by_a_plausible_number_of_parameters_only(count: int | None, is_tiny: bool) -> None:
    profile = ModelProfile("m")
    profile.update(ModelInfo("m", parameter_count=count))
    assert profile.is_tiny is is_tiny
