"""The circuit breaker and the outage log."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from bot.concurrency.tasks import TaskSlots
from bot.errors import (
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
)
from bot.models.handler import MAX_RETRY_SECONDS
from bot.models.router import LOG_INTERVAL_SECONDS, MAX_CONCURRENT_CALLS, OPEN_SECONDS, ModelRouter
from bot.models.types import ImageDescriptionRequest, ModelType, ModerationRequest, TextRequest, TextResult
from bot.testing import ManualClock
from tests.models.bench import RouterBench, answer_never, build_result

T = TypeVar("T")
REQUEST = TextRequest("Hello?")
BUSY = ModelBusy("500")
UNREACHABLE = ModelUnreachable("the connection is refused")


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


@pytest.mark.long
@pytest.mark.failure("E-08")
async def test_waiting_calls_do_not_reach_a_failing_handler() -> None:
    clock = ManualClock()
    bench = RouterBench(retries=8, time=clock.time_source)
    bench.serve(BUSY)
    crowd = asyncio.gather(*(bench.router.text(REQUEST) for _ in range(1000)), return_exceptions=True)
    results = await run_until(clock, crowd)

    assert all(isinstance(error, ModelUnavailable) for error in results)
    assert len([error for error in results if "failed repeatedly" in str(error)]) >= 1000 - MAX_CONCURRENT_CALLS - 2
    assert len(bench.handler_calls) <= (MAX_CONCURRENT_CALLS + 2) * 9  # those at first, and trials after 30 seconds


async def run_until(clock: ManualClock, done: asyncio.Future[T]) -> T:
    """Advance the clock to each sleeper's time in turn, until a future is done; return its result."""
    while not done.done():
        sleeping = asyncio.ensure_future(clock.wait_for_sleepers())
        await asyncio.wait((sleeping, done), return_when=asyncio.FIRST_COMPLETED)
        if sleeping.done():
            clock.advance(sleeping.result())
        sleeping.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    return done.result()


class Outage:
    """A model of which three calls have failed, at the start of the half minute in which it is not called."""

    def __init__(self, *answers: object, error: ModelUnavailable = UNREACHABLE, **bench: Any) -> None:
        self.clock = ManualClock()
        self.retried: list[float] = []
        self.bench = RouterBench(
            retries=8,
            time=self.clock.time_source,
            on_retry=lambda handler, error, delay: self.retried.append(delay),
            **bench,
        )
        self.bench.serve([error] * 3 + list(answers))

    async def begin(self) -> "Outage":
        """Have the three calls fail."""
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await self.bench.router.text(REQUEST)
        return self

    def ask(self, count: int = 1) -> list[asyncio.Task[TextResult]]:
        """Start so many calls."""
        return [asyncio.ensure_future(self.bench.router.text(REQUEST)) for _ in range(count)]

    async def pass_time(self, *seconds: float) -> None:
        """Advance the clock in steps, once a call waits by it."""
        for step in seconds:
            await self.clock.wait_for_sleepers()
            self.clock.advance(step)
            for _ in range(10):
                await asyncio.sleep(0)


@pytest.mark.failure("E-08")
async def test_without_another_model_a_call_waits_for_the_next_trial() -> None:
    outage = await Outage(build_result()).begin()
    [call] = outage.ask()
    await outage.pass_time(OPEN_SECONDS - 1)
    assert not call.done()
    await outage.pass_time(1)

    assert (await call).text == "Hello."
    assert outage.retried == [OPEN_SECONDS]


@pytest.mark.failure("E-08")
async def test_waiting_calls_send_a_single_trial_and_go_on_when_it_has_succeeded() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> TextResult:
        asked.set()
        await go.wait()
        return build_result()

    outage = await Outage(wait).begin()
    calls = outage.ask(20)
    await outage.pass_time(OPEN_SECONDS)
    await asked.wait()
    late = outage.ask()
    await asyncio.sleep(0)
    assert len(outage.bench.handler_calls) == 4
    go.set()

    assert {result.text for result in await asyncio.gather(*calls, *late)} == {"Hello."}
    assert len(outage.bench.handler_calls) == 3 + 21


@pytest.mark.failure("E-08")
async def test_waiting_calls_go_on_waiting_after_a_failed_trial() -> None:
    outage = await Outage(UNREACHABLE, build_result()).begin()
    calls = outage.ask(5)
    await outage.pass_time(OPEN_SECONDS)
    assert (len(outage.bench.handler_calls), [call.done() for call in calls].count(True)) == (4, 1)
    await outage.pass_time(OPEN_SECONDS)
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(result, TextResult) for result in results].count(True) == 4
    assert len(outage.bench.handler_calls) == 3 + 1 + 4


@pytest.mark.failure("E-08")
async def test_a_waiting_call_fails_once_it_has_waited_as_long_as_retries_take() -> None:
    outage = await Outage(answer_never).begin()
    [trial, call] = outage.ask(2)
    await outage.pass_time(OPEN_SECONDS, MAX_RETRY_SECONDS - OPEN_SECONDS)
    with pytest.raises(ModelUnavailable, match="a trial call is running"):
        await call
    trial.cancel()

    assert len(outage.bench.handler_calls) == 4


@pytest.mark.failure("E-08")
async def test_the_time_that_a_call_has_waited_counts_as_time_of_its_retries() -> None:
    outage = await Outage(BUSY).begin()
    [call] = outage.ask()
    with pytest.raises(ModelUnavailable, match="500"):
        await run_until(outage.clock, call)

    assert outage.clock.monotonic() <= MAX_RETRY_SECONDS


@pytest.mark.failure("E-08")
async def test_where_the_server_asks_for_more_time_than_a_call_has_it_fails_at_once() -> None:
    outage = await Outage(error=ModelBusy("503", retry_after=3600.0)).begin()
    with pytest.raises(ModelUnavailable, match="failed repeatedly"):
        await outage.bench.router.text(REQUEST)


@pytest.mark.failure("E-08")
async def test_with_another_model_a_call_waits_only_for_the_last() -> None:
    outage = Outage(build_result())
    outage.bench.serve([UNREACHABLE] * 3 + [build_result("The second.")], name="second")
    await outage.begin()
    [call] = outage.ask()
    await outage.pass_time(OPEN_SECONDS)

    assert (await call).text == "The second."
    assert outage.bench.handler_calls == ["first", "second"] * 3 + ["second"]


@pytest.mark.failure("E-09")
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (ModelType.TEXT_EMBEDDING, lambda router: router.embed(["hi"], is_question=True)),
        (ModelType.IMAGE_DESCRIPTION, lambda router: router.describe(ImageDescriptionRequest(b"", "image/png"))),
        (ModelType.MODERATION, lambda router: router.moderate(ModerationRequest("hi"))),
    ],
)
async def test_what_a_reply_waits_for_does_not_wait_for_a_trial(
    kind: ModelType, call: Callable[[ModelRouter], Awaitable[object]]
) -> None:
    bench = RouterBench(retries=8, time=ManualClock().time_source)
    bench.serve(UNREACHABLE, kind=kind)
    for cause in ("refused", "refused", "refused", "failed repeatedly"):
        with pytest.raises(ModelUnavailable, match=cause):
            await call(bench.router)


async def test_without_retries_no_call_waits_for_a_trial() -> None:
    bench = RouterBench(retries=0, time=ManualClock().time_source)
    bench.serve(UNREACHABLE)
    for cause in ("refused", "refused", "refused", "failed repeatedly"):
        with pytest.raises(ModelUnavailable, match=cause):
            await bench.router.text(REQUEST)


@pytest.mark.failure("E-08")
async def test_a_waiting_call_that_is_cancelled_leaves_the_trial_to_the_others() -> None:
    outage = await Outage(answer_never, build_result()).begin()
    [first, second, third] = outage.ask(3)
    await outage.clock.wait_for_sleepers(3)
    second.cancel()
    await outage.pass_time(OPEN_SECONDS)
    assert second.cancelled()
    first.cancel()  # the trial

    assert (await third).text == "Hello."


@pytest.mark.failure("E-08")
async def test_a_waiting_call_leaves_the_slot_of_its_task() -> None:
    outage, slots = await Outage(build_result()).begin(), TaskSlots(1)
    outage.bench.router.leave_slot = slots.leave

    async def ask() -> TextResult:
        async with slots.hold():
            return await outage.bench.router.text(REQUEST)

    call = asyncio.ensure_future(ask())
    await outage.clock.wait_for_sleepers()
    async with slots.hold():
        await outage.pass_time(OPEN_SECONDS)

    assert (await call).text == "Hello."


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


async def test_an_outage_after_the_end_of_another_is_logged_once_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve([ModelRefused("no credit left"), build_result(), ModelRefused("wrong key")])
    for seconds in (0, 5, 5, 60):
        bench.now += seconds
        with suppress(ModelRefused):
            await bench.router.text(REQUEST)

    assert log_messages(caplog)[2:] == [
        "model first (TEXT_LARGE) does not answer, 2 failures since the last message: wrong key"
    ]


async def test_an_outage_that_gets_another_cause_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve([InvalidAnswer("no JSON")] * 2 + [ModelRefused("wrong key")])
    for _ in range(4):
        bench.now += 30
        with suppress(ModelError):
            await bench.router.text(REQUEST)

    assert [message.rpartition(": ")[2] for message in log_messages(caplog)] == ["no JSON", "wrong key"]


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
