"""Retries: delays, their number, and failover to another handler."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import inf, nan

import pytest

from bot import Attachment, Content, MediaKind
from bot.errors import (
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
)
from bot.models.handler import CallPolicy
from bot.models.router import FailedAttempts, ModelRouter, failed_attempts, parse_retry_after
from bot.models.types import ImageDescriptionRequest, ModelType, TextRequest, TextResult, TranscriptionRequest
from bot.testing import RecordingAdapter, ScriptedModel, model_answer, running_agent
from plugins.openai import plugin as openai
from tests.models.bench import RouterBench, answer_never, build_result
from tests.models.case_server import served

REQUEST = TextRequest("Hello?")
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.failure("O-02")
async def test_the_calls_for_a_message_share_the_number_of_retries() -> None:
    bench = RouterBench(retries=3)
    bench.serve(ModelBusy("503"))
    bench.serve(ModelBusy("503"), name="second")
    token = failed_attempts.set(FailedAttempts())
    try:
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await bench.router.text(REQUEST)
    finally:
        failed_attempts.reset(token)

    assert bench.handler_calls == ["first"] * 4 + ["second"] + ["first", "second"] * 2


@pytest.mark.failure("O-02")
async def test_an_answer_that_breaks_off_again_and_again_is_requested_three_times_for_a_message() -> None:
    bench = RouterBench(retries=8)

    async def break_off(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("Once upon")
        raise ModelBusy("it broke off")

    bench.serve(break_off)
    bench.serve(break_off, name="second")
    token = failed_attempts.set(FailedAttempts())
    try:
        with pytest.raises(ModelUnavailable):
            await bench.router.text(REQUEST)
    finally:
        failed_attempts.reset(token)

    assert bench.handler_calls == ["first"] * 3 + ["second"]


@pytest.mark.failure("E-02")
async def test_a_busy_model_is_retried_eight_times_within_ninety_seconds() -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelBusy("500"))
    with pytest.raises(ModelUnavailable, match="500"):
        await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 9
    assert bench.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    assert sum(bench.waits) < 90
    assert len(bench.calls) == 9
    assert all(call.error == "500" for call in bench.calls)


@pytest.mark.failure("E-02")
async def test_every_delay_has_jitter() -> None:
    bench = RouterBench(retries=2, random_fraction=lambda: 1.0)
    bench.serve(ModelBusy("502"))
    with pytest.raises(ModelUnavailable):
        await bench.router.text(REQUEST)

    assert bench.waits == [0.375, 0.75]


@pytest.mark.failure("E-01")
async def test_a_rate_limited_call_waits_for_retry_after() -> None:
    bench = RouterBench(retries=8)
    bench.serve([ModelBusy("429", retry_after=7.5), build_result()])

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert bench.waits == [7.5]


@pytest.mark.failure("E-01")
async def test_jitter_never_shortens_retry_after() -> None:
    bench = RouterBench(retries=1, random_fraction=lambda: 1.0)
    bench.serve([ModelBusy("429", retry_after=8.0), build_result()])
    await bench.router.text(REQUEST)

    assert bench.waits == [10.0]


@pytest.mark.failure("E-01")
@pytest.mark.parametrize("retry_after", [3600.0, 1e300, inf, nan])
async def test_a_retry_after_of_an_hour_calls_the_next_handler_at_once(retry_after: float) -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelBusy("429", retry_after=retry_after))
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert (bench.handler_calls, bench.waits) == (["first", "second"], [])


@pytest.mark.failure("E-01")
async def test_a_retry_after_of_an_hour_fails_at_once_without_another_handler() -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelBusy("429", retry_after=3600.0))
    with pytest.raises(ModelUnavailable, match="429"):
        await bench.router.text(REQUEST)

    assert bench.waits == []


async def test_with_another_handler_the_first_is_retried_for_ten_seconds_at_most() -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelBusy("500"))
    bench.serve(build_result(), name="second")
    await bench.router.text(REQUEST)

    assert bench.handler_calls == ["first"] * 5 + ["second"]
    assert sum(bench.waits) <= 10


async def test_an_attempt_that_hangs_counts_against_the_retry_time() -> None:
    bench = RouterBench(retries=8)

    async def hang(request: object) -> object:
        bench.now += 60
        raise ModelBusy("no answer within 60 s")

    bench.serve(hang)
    with pytest.raises(ModelUnavailable):
        await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 2


@pytest.mark.failure("E-06")
@pytest.mark.parametrize(
    "error", [ModelRefused("401"), PromptTooLong("too long"), ModelError("garbled"), ValueError("bug")]
)
async def test_permanent_errors_are_not_retried(error: Exception) -> None:
    bench = RouterBench(retries=8)
    bench.serve(error)
    with pytest.raises(ModelError):
        await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 1


@pytest.mark.failure("E-03")
async def test_a_call_that_timed_out_is_retried() -> None:
    bench = RouterBench(retries=1)
    bench.serve([TimeoutError("no first byte"), build_result()])

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert [bool(call.error) for call in bench.calls] == [True, False]


async def test_if_all_handlers_refuse_the_error_is_a_refusal() -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no key"))
    bench.serve(PromptTooLong("too long"), name="second")
    with pytest.raises(ModelRefused, match="no key; too long") as raised:
        await bench.router.text(REQUEST)

    assert type(raised.value) is ModelRefused


@pytest.mark.failure("E-05")
async def test_if_the_prompt_is_too_long_for_all_the_error_says_so() -> None:
    bench = RouterBench()
    bench.serve(PromptTooLong("4096"))
    bench.serve(PromptTooLong("8192"), name="second")
    with pytest.raises(PromptTooLong, match="4096; 8192"):
        await bench.router.text(REQUEST)


@pytest.mark.failure("E-05")
@pytest.mark.parametrize("other", [PromptTooLong("8192"), ModelBusy("500")])
async def test_if_the_prompt_is_too_long_for_all_reachable_the_error_says_so(other: ModelError) -> None:
    bench = RouterBench(retries=0)
    bench.serve(other)
    bench.serve(PromptTooLong("4096"), name="second")
    with pytest.raises(PromptTooLong, match=f"{other}; 4096"):
        await bench.router.text(REQUEST)


async def test_the_embedding_of_a_question_is_not_retried() -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelBusy("500"), kind=ModelType.TEXT_EMBEDDING)
    with pytest.raises(ModelUnavailable):
        await bench.router.embed(["a"], is_question=True)

    assert len(bench.handler_calls) == 1


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (ModelType.IMAGE_DESCRIPTION, lambda router: router.describe(ImageDescriptionRequest(b"png", "image/png"))),
        (ModelType.TRANSCRIPTION, lambda router: router.transcribe(TranscriptionRequest(b"ogg", "audio/ogg"))),
    ],
)
@pytest.mark.parametrize("error", [ModelBusy("503"), InvalidAnswer("a page")])
async def test_the_reading_of_an_attachment_is_retried_once(
    kind: ModelType, read: Callable[[ModelRouter], Awaitable[TextResult]], error: ModelError
) -> None:
    bench = RouterBench(retries=8)
    bench.serve([error, ModelBusy("503")], kind=kind)
    with pytest.raises(ModelUnavailable):
        await read(bench.router)

    assert len(bench.handler_calls) == 2


async def test_a_reply_goes_on_without_the_description_of_a_picture_after_a_single_retry() -> None:
    class PictureAdapter(RecordingAdapter):
        async def download(self, url: str) -> bytes | None:
            return b"\x89PNG\r\n\x1a\n" + bytes(16)

    case = {"describe": {"status": 503, "headers": {"Retry-After": "0"}}, "reply": {"text": model_answer("A picture!")}}
    async with served(case) as (server, url):
        settings = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_LARGE_MODEL": "m", "OPENAI_IMAGE_DESCRIPTION_MODEL": "m"}
        adapter, model = PictureAdapter(), ScriptedModel(lambda request: "unused")
        async with running_agent(openai, model=model, adapter=adapter, settings=settings) as harness:
            picture = Attachment("1", MediaKind.IMAGE, "https://example.org/1")
            await harness.send(Content(text="see", attachments=(picture,)))

    assert adapter.texts == ["A picture!"]
    assert [kind for kind in server.kinds if kind in ("describe", "reply")] == ["describe", "describe", "reply"]


async def test_cancellation_ends_the_retries() -> None:
    bench, again = RouterBench(retries=8), asyncio.Event()

    async def hang(request: object) -> object:
        again.set()
        return await answer_never()

    bench.serve([ModelBusy("500"), hang])
    task = asyncio.ensure_future(bench.router.text(REQUEST))
    await again.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [call.error for call in bench.calls] == ["500", "cancelled"]


@pytest.mark.failure("E-01")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Thu, 99 Jan 2026 12:00:30 GMT"}, None),
        ({"retry-after": "1" * 400}, inf),
        ({"retry-after": "²"}, None),
        ({"retry-after": '"30"'}, 30.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "2026-01-01T12:00:20Z"}, 20.0),
        ({"x-ratelimit-reset-after": "1.5"}, 1.5),
        ({"ratelimit-reset": "17"}, 17.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, 7.66),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "7.66s"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, None),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_otherwise_none(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 3.2s.", 3.2),
        ("try again in 1m20s", 80.0),
        ("Retry after 7 seconds", 7.0),
        ("please wait 2 minutes and 5 seconds", 125.0),
        ("try again in 250 milliseconds", 0.25),
        ("try again in 1h2m3s", 3723.0),
        ('{"retryDelay": "34s"}', 34.0),
        ("The limit resets in 2h5m.", 7500.0),
        ("it resets the connection 5 s later", None),
        ("try again in ... s", None),
        ("try again later", None),
        ("3 s is too short", None),
    ],
)
def test_retry_after_is_read_from_the_message_of_an_error(message: str, seconds: float | None) -> None:
    assert parse_retry_after({}, NOW, message) == seconds


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        (str(int(NOW.timestamp()) + 5), 5.0),
        (str(int(NOW.timestamp() + 5) * 1000), 5.0),
        (str(int(NOW.timestamp()) - 5), None),
        ("12", 12.0),
        ("-3", None),
        ("inf", None),
    ],
)
def test_the_reset_of_a_rate_limit_is_seconds_or_milliseconds_since_the_epoch(
    reset: str, seconds: float | None
) -> None:
    assert parse_retry_after({"x-ratelimit-reset": reset}, NOW) == seconds


def test_elapsed_time_counts_against_the_retry_time() -> None:
    retries = CallPolicy(random_fraction=lambda: 0.0)

    assert retries.next_delay(1, 89.0, None, has_next=False) == 0.5
    assert retries.next_delay(1, 89.8, None, has_next=False) is None


@pytest.mark.long
async def test_a_retry_is_reported_with_its_delay() -> None:
    retries: list[tuple[str, str, float]] = []
    bench = RouterBench(
        retries=8, on_retry=lambda handler, error, delay: retries.append((handler.name, str(error), delay))
    )
    bench.serve([ModelBusy("429", retry_after=7.5), InvalidAnswer("a page"), build_result()])
    await bench.router.text(REQUEST)

    assert retries == [("first", "429", 7.5)]


async def test_an_unreachable_server_is_not_called_again() -> None:
    bench = RouterBench(retries=8)
    bench.serve(ModelUnreachable("connection refused"))
    with pytest.raises(ModelUnavailable, match="connection refused"):
        await bench.router.text(REQUEST)

    assert (len(bench.handler_calls), bench.waits) == (1, [])


async def test_an_invalid_answer_is_asked_for_once_more() -> None:
    bench = RouterBench(retries=8)
    bench.serve(InvalidAnswer("a page"))
    with pytest.raises(InvalidAnswer):
        await bench.router.text(REQUEST)

    assert (len(bench.handler_calls), bench.waits) == (2, [0.0])
