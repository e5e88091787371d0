"""A text that is shown while it is written."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.errors import ModelBusy, ModelError, ModelUnavailable
from bot.models.attempt import CallTimeouts
from bot.models.handler import MAX_STREAMED_LENGTH
from bot.models.types import TextRequest, TextResult
from tests.models.bench import RouterBench, Sink, answer_never, build_result, stream_pieces


def request_for(sink: Any) -> TextRequest:
    return TextRequest("Hello?", sink=sink)


async def test_pieces_are_shown_in_order_and_the_result_is_the_whole() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hel", "", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hel", "lo."]


async def test_who_does_not_want_to_see_anything_gives_the_handler_no_sink() -> None:
    bench = RouterBench()

    async def look(request: TextRequest) -> TextResult:
        return build_result(str(request.sink))

    bench.serve(look)

    assert (await bench.router.text(TextRequest("Hello?"))).text == "None"


async def test_a_handler_that_cannot_stream_shows_nothing() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(build_result())

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == []


async def test_before_another_try_what_was_shown_is_taken_back() -> None:
    bench, sink = RouterBench(retries=1), Sink()
    bench.serve([stream_pieces("Hal", then=[ModelBusy("reset")]), stream_pieces("Hel", "lo.")])

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hal", None, "Hel", "lo."]


async def test_before_another_handler_what_was_shown_is_taken_back() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hal", then=[ModelError("garbled")]))
    bench.serve(stream_pieces("Hello."), name="second")
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hal", None, "Hello."]


async def test_what_was_not_shown_is_not_taken_back() -> None:
    bench, sink = RouterBench(retries=1), Sink()
    bench.serve([ModelBusy("500"), stream_pieces("Hello.")])
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hello."]


async def test_after_the_last_failure_nothing_is_taken_back() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("Hal", then=[ModelBusy("reset")]))
    with pytest.raises(ModelUnavailable):
        await bench.router.text(request_for(sink))

    assert sink.pieces == ["Hal"]


async def test_e03_a_model_that_stalls_in_the_middle_is_given_up_and_another_asked() -> None:
    bench, sink = RouterBench(CallTimeouts(first=60, stall=0.01)), Sink()

    async def stall(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("Hal")
        return await answer_never()

    bench.serve(stall)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert bench.calls[0].error == "first: no data for 0.01 s"


async def test_e03_a_model_that_is_thinking_is_alive() -> None:
    bench, sink = RouterBench(CallTimeouts(first=0, stall=60)), Sink()

    async def think(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("")
        await asyncio.sleep(0)  # here the time for the first piece is over
        return build_result()

    bench.serve(think)

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == []


async def test_e04_a_model_that_drips_is_given_up_when_its_whole_time_is_over() -> None:
    bench, sink = RouterBench(CallTimeouts(first=0.01, stall=60, total=0.05)), Sink()

    async def drip(request: TextRequest) -> TextResult:
        assert request.sink is not None
        while True:
            await request.sink.write(".")
            await asyncio.sleep(0)

    bench.serve(drip)
    with pytest.raises(ModelUnavailable, match=r"first: not finished within 0\.05 s"):
        await bench.router.text(request_for(sink))


async def test_a_sink_that_fails_costs_the_show_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sink):
        async def write(self, text: str) -> None:
            await super().write(text)
            raise ValueError("bug")

    bench, sink = RouterBench(), Broken()
    bench.serve(stream_pieces("Hel", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.pieces == ["Hel"]
    assert len([one for one in caplog.records if "its sink failed" in one.message]) == 1


async def test_a_handler_that_goes_on_after_its_try_is_not_listened_to() -> None:
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


async def test_a_text_without_an_end_is_not_shown_without_an_end() -> None:
    bench, sink = RouterBench(), Sink()
    bench.serve(stream_pieces("x" * MAX_STREAMED_LENGTH, "y"))
    await bench.router.text(request_for(sink))

    assert sink.pieces == ["x" * MAX_STREAMED_LENGTH]


async def test_e12_an_answer_at_the_last_moment_is_taken_and_nobody_else_is_asked() -> None:
    bench = RouterBench(CallTimeouts(first=0))

    async def slow(request: TextRequest) -> TextResult:
        try:
            return await answer_never()
        except asyncio.CancelledError:
            return build_result("just in time")

    bench.serve(slow)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "just in time"
    assert [call.error for call in bench.calls] == [""]


async def test_e12_of_two_that_are_asked_one_answers_and_both_are_booked() -> None:
    bench = RouterBench(CallTimeouts(first=0))
    bench.serve(answer_never)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "Hello."
    assert [bool(call.error) for call in bench.calls] == [True, False]


def test_a_sink_is_no_part_of_what_is_asked() -> None:
    request = request_for(Sink())

    assert request == replace(request, sink=None)
    assert "Sink" not in repr(request)
