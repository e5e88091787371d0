"""The circuit breaker and the outage log."""

import asyncio
import logging

import pytest

from bot.errors import ModelBusy, ModelRefused, ModelUnavailable, ModelUnreachable, PromptTooLong
from bot.models.router import LOG_INTERVAL_SECONDS, MAX_CONCURRENT_CALLS, OPEN_SECONDS
from bot.models.types import ModelType, TextRequest, TextResult
from tests.models.bench import RouterBench, build_result

REQUEST = TextRequest("Hello?")
BUSY = ModelBusy("500")


async def fail(bench: RouterBench, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ModelUnavailable):
            await bench.router.text(REQUEST)


@pytest.mark.failure("E-08")
async def test_three_failures_open_the_breaker_for_half_a_minute() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 3)
    with pytest.raises(ModelUnavailable, match="first: failed repeatedly, next attempt in 30 s"):
        await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 3
    assert len(bench.calls) == 3


async def test_an_open_breaker_fails_over_without_delay() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    bench.serve(build_result(), name="second")
    for _ in range(5):
        await bench.router.text(REQUEST)

    assert bench.handler_calls == ["first", "second"] * 3 + ["second"] * 2


async def test_a_successful_trial_call_closes_the_breaker() -> None:
    bench = RouterBench()
    bench.serve([BUSY, BUSY, BUSY, build_result()])
    await fail(bench, 3)
    bench.now += OPEN_SECONDS

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert (await bench.router.text(REQUEST)).text == "Hello."


async def test_a_failed_trial_call_opens_the_breaker_again() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 3)
    bench.now += OPEN_SECONDS
    await fail(bench, 2)

    assert len(bench.handler_calls) == 4


@pytest.mark.failure("E-08")
async def test_other_calls_fail_while_the_trial_call_runs() -> None:
    bench, asked, go = RouterBench(), asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> object:
        asked.set()
        await go.wait()
        return build_result()

    bench.serve([BUSY, BUSY, BUSY, wait])
    await fail(bench, 3)
    bench.now += OPEN_SECONDS
    first = asyncio.ensure_future(bench.router.text(REQUEST))
    await asked.wait()
    with pytest.raises(ModelUnavailable, match="a trial call is running"):
        await bench.router.text(REQUEST)
    go.set()

    assert (await first).text == "Hello."
    assert len(bench.handler_calls) == 4


@pytest.mark.failure("E-08")
async def test_a_call_from_before_the_opening_admits_no_second_trial() -> None:
    bench, asked, never = RouterBench(), asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> object:
        asked.set()
        await never.wait()
        return build_result()

    bench.serve([wait, BUSY, BUSY, BUSY, wait])
    before = asyncio.ensure_future(bench.router.text(REQUEST))
    await asked.wait()
    await fail(bench, 3)
    bench.now += OPEN_SECONDS
    asked.clear()
    first = asyncio.ensure_future(bench.router.text(REQUEST))
    await asked.wait()
    before.cancel()
    await asyncio.wait([before])
    with pytest.raises(ModelUnavailable, match="a trial call is running"):
        await bench.router.text(REQUEST)
    never.set()
    assert (await first).text == "Hello."


@pytest.mark.failure("E-08")
async def test_waiting_calls_do_not_reach_a_failing_handler() -> None:
    bench = RouterBench(retries=8)
    bench.serve(BUSY)
    crowd = [bench.router.text(REQUEST) for _ in range(1000)]
    results = await asyncio.gather(*crowd, return_exceptions=True)

    assert all(isinstance(error, ModelUnavailable) for error in results)
    assert len(bench.handler_calls) <= MAX_CONCURRENT_CALLS * 9
    assert len([error for error in results if "failed repeatedly" in str(error)]) >= 1000 - MAX_CONCURRENT_CALLS


async def test_a_cancelled_trial_call_does_not_change_the_breaker() -> None:
    bench, asked = RouterBench(), asyncio.Event()

    async def wait(request: object) -> object:
        asked.set()
        return await asyncio.Event().wait()

    bench.serve([BUSY, BUSY, BUSY, wait, build_result()])
    await fail(bench, 3)
    bench.now += OPEN_SECONDS
    task = asyncio.ensure_future(bench.router.text(REQUEST))
    await asked.wait()
    task.cancel()
    await asyncio.wait([task])

    assert (await bench.router.text(REQUEST)).text == "Hello."


async def test_a_refusal_is_no_outage() -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no"))
    for _ in range(5):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 5


async def test_every_model_type_has_its_own_breaker() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    bench.serve(build_result(), kind=ModelType.TEXT_SMALL)
    await fail(bench, 3)

    assert (await bench.router.text(REQUEST, ModelType.TEXT_SMALL)).text == "Hello."


def log_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "bot.models.router"]


@pytest.mark.failure("E-06")
async def test_an_outage_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("openai: no credit left"))
    for _ in range(3):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)

    assert log_messages(caplog) == ["model first (TEXT_LARGE) does not answer: openai: no credit left"]
    assert caplog.records[0].levelno == logging.ERROR
    bench.now += LOG_INTERVAL_SECONDS
    with pytest.raises(ModelRefused):
        await bench.router.text(REQUEST)

    assert log_messages(caplog)[1:] == [
        "model first (TEXT_LARGE) does not answer, 3 failures since the last message: openai: no credit left"
    ]


async def test_the_outage_log_names_the_cause_and_not_the_open_breaker(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 4)
    bench.now += LOG_INTERVAL_SECONDS
    await fail(bench, 2)

    assert log_messages(caplog) == [
        "model first (TEXT_LARGE) does not answer: 500",
        "model first (TEXT_LARGE) does not answer, 3 failures since the last message: 500",
    ]


@pytest.mark.failure("E-05")
async def test_a_prompt_that_is_too_long_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve(PromptTooLong("4096"))
    with pytest.raises(PromptTooLong):
        await bench.router.text(REQUEST)

    assert log_messages(caplog) == []


async def test_an_outage_is_logged_even_if_another_handler_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no credit left"))
    bench.serve(build_result(), name="second")
    await bench.router.text(REQUEST)

    assert log_messages(caplog) == ["model first (TEXT_LARGE) does not answer: no credit left"]


async def test_the_end_of_an_outage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve([ModelRefused("no credit left"), build_result()])
    with pytest.raises(ModelRefused):
        await bench.router.text(REQUEST)
    bench.now += 90
    await bench.router.text(REQUEST)
    await bench.router.text(REQUEST)

    assert log_messages(caplog)[1:] == ["model first (TEXT_LARGE) answers again, after 90 s"]


async def test_a_flapping_model_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve([ModelRefused("no"), build_result()] * 10)
    for _ in range(10):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)
        await bench.router.text(REQUEST)

    assert len(log_messages(caplog)) == 2


async def test_the_status_says_how_a_model_answered_and_why_it_rests() -> None:
    bench = RouterBench()
    bench.serve([build_result(), ModelRefused("no"), BUSY])
    [status] = bench.router.statuses()
    assert (status.calls, status.model, status.median_seconds) == (0, "", None)
    await bench.router.text(REQUEST)
    with pytest.raises(ModelRefused):
        await bench.router.text(REQUEST)
    await fail(bench, 3)
    bench.now += 10
    [status] = bench.router.statuses()
    assert (status.provider, status.type, status.model) == ("first", ModelType.TEXT_LARGE, build_result().model)
    assert (status.calls, status.failed, status.median_seconds) == (5, 4, 0.0)
    assert (status.rest_seconds, status.cause) == (OPEN_SECONDS - 10, "500")
    bench.now += OPEN_SECONDS
    [status] = bench.router.statuses()
    assert (status.rest_seconds, status.cause) == (0.0, "500")  # until it answers


async def test_a_single_refused_call_is_no_failing_model_and_two_in_a_row_are() -> None:
    bench = RouterBench()
    refused = ModelRefused("the key is refused")
    bench.serve([refused, refused, build_result()])
    for cause in ("", "the key is refused"):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)
        assert bench.router.statuses()[0].cause == cause
    await bench.router.text(REQUEST)
    assert bench.router.statuses()[0].cause == ""


async def test_a_busy_model_is_failing_from_the_first_attempt_until_it_answers_and_each_attempt_is_counted() -> None:
    bench = RouterBench(retries=2)
    seen: list[tuple[int, int, str]] = []

    async def attempt(request: TextRequest) -> TextResult:
        [status] = bench.router.statuses()
        seen.append((status.calls, status.failed, status.cause))
        if len(seen) < 3:
            raise ModelBusy("503")
        return build_result()

    bench.serve(attempt)
    await bench.router.text(REQUEST)
    [status] = bench.router.statuses()
    assert seen == [(0, 0, ""), (1, 1, "503"), (2, 2, "503")]
    assert (status.calls, status.failed, status.cause) == (3, 2, "")
    assert len(bench.calls) == status.calls  # what the costs count


async def test_a_server_that_is_not_there_is_failing_after_a_single_call() -> None:
    bench = RouterBench()
    bench.serve(ModelUnreachable("cannot connect"))
    await fail(bench, 1)
    assert bench.router.statuses()[0].cause == "cannot connect"
