"""Leaving a model in peace that fails failed repeatedly, and telling the operator once an hour."""

import asyncio
import logging

import pytest

from bot.errors import ModelBusy, ModelRefused, ModelUnavailable, PromptTooLong
from bot.models.retry import LOG_INTERVAL_SECONDS, MAX_CONCURRENT_CALLS, OPEN_SECONDS
from bot.models.types import ModelType, TextRequest
from tests.models.bench import RouterBench, build_result

REQUEST = TextRequest("Hello?")
BUSY = ModelBusy("500")


async def fail(bench: RouterBench, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ModelUnavailable):
            await bench.router.text(REQUEST)


async def test_e08_after_three_calls_in_vain_a_model_is_not_asked_for_half_a_minute() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 3)
    with pytest.raises(ModelUnavailable, match="first: failed repeatedly, next attempt in 30 s"):
        await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 3
    assert len(bench.calls) == 3


async def test_while_it_rests_the_next_is_asked_without_delay() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    bench.serve(build_result(), name="second")
    for _ in range(5):
        await bench.router.text(REQUEST)

    assert bench.handler_calls == ["first", "second"] * 3 + ["second"] * 2


async def test_afterwards_one_call_goes_first_and_an_answer_ends_the_rest() -> None:
    bench = RouterBench()
    bench.serve([BUSY, BUSY, BUSY, build_result()])
    await fail(bench, 3)
    bench.now += OPEN_SECONDS

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert (await bench.router.text(REQUEST)).text == "Hello."


async def test_where_that_call_fails_too_it_rests_again() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 3)
    bench.now += OPEN_SECONDS
    await fail(bench, 2)

    assert len(bench.handler_calls) == 4


async def test_e08_the_others_do_not_rush_in_while_it_is_tried() -> None:
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


async def test_e08_one_that_was_asked_before_and_ends_now_lets_no_second_one_try() -> None:
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


async def test_e08_a_crowd_does_not_run_against_a_closed_door() -> None:
    bench = RouterBench(retries=8)
    bench.serve(BUSY)
    crowd = [bench.router.text(REQUEST) for _ in range(1000)]
    told = await asyncio.gather(*crowd, return_exceptions=True)

    assert all(isinstance(one, ModelUnavailable) for one in told)
    assert len(bench.handler_calls) <= MAX_CONCURRENT_CALLS * 9
    assert len([one for one in told if "failed repeatedly" in str(one)]) >= 1000 - MAX_CONCURRENT_CALLS


async def test_a_try_that_is_cancelled_decides_nothing() -> None:
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


async def test_a_refusal_is_an_answer_and_no_outage() -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no"))
    for _ in range(5):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)

    assert len(bench.handler_calls) == 5


async def test_each_type_of_a_plugin_rests_on_its_own() -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    bench.serve(build_result(), kind=ModelType.TEXT_SMALL)
    await fail(bench, 3)

    assert (await bench.router.text(REQUEST, ModelType.TEXT_SMALL)).text == "Hello."


def log_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "bot.models.retry"]


async def test_e06_the_operator_is_told_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_while_it_rests_the_operator_hears_the_cause_and_not_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = RouterBench()
    bench.serve(BUSY)
    await fail(bench, 4)
    bench.now += LOG_INTERVAL_SECONDS
    await fail(bench, 2)

    assert log_messages(caplog) == [
        "model first (TEXT_LARGE) does not answer: 500",
        "model first (TEXT_LARGE) does not answer, 3 failures since the last message: 500",
    ]


async def test_e05_a_prompt_that_is_too_long_is_no_fault_of_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = RouterBench()
    bench.serve(PromptTooLong("4096"))
    with pytest.raises(PromptTooLong):
        await bench.router.text(REQUEST)

    assert log_messages(caplog) == []


async def test_the_operator_is_told_also_where_another_answers_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no credit left"))
    bench.serve(build_result(), name="second")
    await bench.router.text(REQUEST)

    assert log_messages(caplog) == ["model first (TEXT_LARGE) does not answer: no credit left"]


async def test_the_operator_is_told_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = RouterBench()
    bench.serve([ModelRefused("no credit left"), build_result()])
    with pytest.raises(ModelRefused):
        await bench.router.text(REQUEST)
    bench.now += 90
    await bench.router.text(REQUEST)
    await bench.router.text(REQUEST)

    assert log_messages(caplog)[1:] == ["model first (TEXT_LARGE) answers again, after 90 s"]


async def test_a_model_that_comes_and_goes_is_still_told_once_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = RouterBench()
    bench.serve([ModelRefused("no"), build_result()] * 10)
    for _ in range(10):
        with pytest.raises(ModelRefused):
            await bench.router.text(REQUEST)
        await bench.router.text(REQUEST)

    assert len(log_messages(caplog)) == 2
