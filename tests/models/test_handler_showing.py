"""Streaming of a text."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.errors import ModelBusy, ModelError, ModelUnavailable
from bot.models.handler import MAX_STREAMED_LENGTH
from bot.models.types import TextRequest, TextResult
from tests.models.bench import RouterBench, Sink, answer_never, build_result, stream_pieces


def request_for(sink: Any) -> TextRequest:
    return TextRequest("Hello?", sink=sink)


async def test_pieces_are_streamed_in_order_and_the_result_is_the_whole() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hel", "", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hel", "lo."]


async def test_a_request_without_sink_is_streamed_too_so_that_a_pause_is_noticed() -> None:
    bench = RouterBench(pause=0.01)

    async def stall(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("Hal")
        return await answer_never()

    bench.serve(stall)
    with pytest.raises(ModelUnavailable, match=r"first: no data for 0\.01 s"):
        await bench.router.text(TextRequest("Hello?"))


async def test_a_handler_without_streaming_writes_nothing() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(build_result())

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == []


async def test_a_retry_restarts_the_stream() -> None:
    bench, sink = RouterBench(retries=1), Sink()
    bench.serve([stream_pieces("Hal", then=[ModelBusy("reset")]), stream_pieces("Hel", "lo.")])

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hal", None, "Hel", "lo."]


async def test_the_next_handler_restarts_the_stream() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hal", then=[ModelError("garbled")]))
    bench.serve(stream_pieces("Hello."), name="second")
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hal", None, "Hello."]


async def test_a_stream_without_pieces_is_not_restarted() -> None:
    bench, sink = RouterBench(retries=1), Sink()
    bench.serve([ModelBusy("500"), stream_pieces("Hello.")])
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hello."]


async def test_the_last_failure_does_not_restart_the_stream() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hal", then=[ModelBusy("reset")]))
    with pytest.raises(ModelUnavailable):
        await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hal"]


@pytest.mark.failure("E-03")
async def test_a_stream_that_stalls_fails_over_to_another_model() -> None:
    bench, sink = RouterBench(pause=0.01), Sink()

    async def stall(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("Hal")
        return await answer_never()

    bench.serve(stall)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert bench.calls[0].error == "first: no data for 0.01 s"


@pytest.mark.failure("E-03")
async def test_empty_pieces_extend_the_timeout() -> None:
    bench, sink = RouterBench(first=0), Sink()

    async def think(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("")
        await asyncio.sleep(0)  # here the time for the first piece is over
        return build_result()

    bench.serve(think)

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == []


@pytest.mark.failure("E-04")
async def test_a_stream_ends_when_the_tokens_of_its_limit_have_had_their_time() -> None:
    bench, sink = RouterBench(token=0.01), Sink()

    async def drip(request: TextRequest) -> TextResult:
        assert request.sink is not None
        while True:
            await request.sink.write(".")
            await asyncio.sleep(0)

    bench.serve(drip)
    with pytest.raises(ModelUnavailable, match=r"first: not finished within 0\.05 s after its first piece"):
        await bench.router.text(replace(request_for(sink), max_tokens=5))


async def test_a_failing_sink_ends_the_stream_and_not_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sink):
        async def write(self, text: str) -> None:
            await super().write(text)
            raise ValueError("bug")

    bench, sink = RouterBench(), Broken()
    bench.serve(stream_pieces("Hel", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hel"]
    assert len([record for record in caplog.records if "its sink failed" in record.message]) == 1


async def test_pieces_after_the_attempt_are_ignored() -> None:
    bench, sink = RouterBench(), Sink()
    late: list[Any] = []

    async def keep(request: TextRequest) -> TextResult:
        late.append(request.sink)
        return build_result()

    bench.serve(keep)
    await bench.router.text(request_for(sink))
    await late[0].write("too late")
    await late[0].restart()

    assert sink.pieces == []


async def test_an_endless_text_is_streamed_up_to_a_limit() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("x" * MAX_STREAMED_LENGTH, "y"))
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["x" * MAX_STREAMED_LENGTH]


@pytest.mark.failure("E-12")
async def test_a_result_just_before_the_timeout_counts() -> None:
    bench = RouterBench(first=0)

    async def slow(request: TextRequest) -> TextResult:
        try:
            return await answer_never()
        except asyncio.CancelledError:
            return build_result("just in time")

    bench.serve(slow)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "just in time"
    assert [call.error for call in bench.calls] == [""]


@pytest.mark.failure("E-12")
async def test_both_attempts_are_recorded_if_the_second_succeeds() -> None:
    bench = RouterBench(first=0)
    bench.serve(answer_never)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "Hello."
    assert [bool(call.error) for call in bench.calls] == [True, False]


def test_a_sink_does_not_affect_the_equality_of_requests() -> None:
    request = request_for(Sink())

    assert request == replace(request, sink=None)
    assert "Sink" not in repr(request)
