"""A text that is shown while it is written."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.errors import ModelBusy, ModelError, ModelUnavailable
from bot.models.attempt import Deadlines
from bot.models.handler import MOST_SHOWN
from bot.models.types import TextRequest, TextResult
from tests.models.bench import Bench, Sink, never, said, writing


def request_for(sink: Any) -> TextRequest:
    return TextRequest("Hello?", sink=sink)


async def test_pieces_are_shown_in_order_and_the_result_is_the_whole() -> None:
    bench, sink = Bench(), Sink()
    bench.serve(writing("Hel", "", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.seen == ["Hel", "lo."]


async def test_who_does_not_want_to_see_anything_gives_the_handler_no_sink() -> None:
    bench = Bench()

    async def look(request: TextRequest) -> TextResult:
        return said(str(request.sink))

    bench.serve(look)

    assert (await bench.router.text(TextRequest("Hello?"))).text == "None"


async def test_a_handler_that_cannot_stream_shows_nothing() -> None:
    bench, sink = Bench(), Sink()
    bench.serve(said())

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.seen == []


async def test_before_another_try_what_was_shown_is_taken_back() -> None:
    bench, sink = Bench(retries=1), Sink()
    bench.serve([writing("Hal", then=[ModelBusy("reset")]), writing("Hel", "lo.")])

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.seen == ["Hal", None, "Hel", "lo."]


async def test_before_another_handler_what_was_shown_is_taken_back() -> None:
    bench, sink = Bench(), Sink()
    bench.serve(writing("Hal", then=[ModelError("garbled")]))
    bench.serve(writing("Hello."), name="second")
    await bench.router.text(request_for(sink))

    assert sink.seen == ["Hal", None, "Hello."]


async def test_what_was_not_shown_is_not_taken_back() -> None:
    bench, sink = Bench(retries=1), Sink()
    bench.serve([ModelBusy("500"), writing("Hello.")])
    await bench.router.text(request_for(sink))

    assert sink.seen == ["Hello."]


async def test_after_the_last_failure_nothing_is_taken_back() -> None:
    bench, sink = Bench(), Sink()
    bench.serve(writing("Hal", then=[ModelBusy("reset")]))
    with pytest.raises(ModelUnavailable):
        await bench.router.text(request_for(sink))

    assert sink.seen == ["Hal"]


async def test_e03_a_model_that_stalls_in_the_middle_is_given_up_and_another_asked() -> None:
    bench, sink = Bench(Deadlines(first=60, stall=0.01)), Sink()

    async def stall(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.piece("Hal")
        return await never()

    bench.serve(stall)
    bench.serve(said(), name="second")

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert bench.booked[0].error == "first: nothing more for 0.01 s"


async def test_e03_a_model_that_is_thinking_is_alive() -> None:
    bench, sink = Bench(Deadlines(first=0, stall=60)), Sink()

    async def think(request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.piece("")
        await asyncio.sleep(0)  # here the time for the first piece is over
        return said()

    bench.serve(think)

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.seen == []


async def test_e04_a_model_that_drips_is_given_up_when_its_whole_time_is_over() -> None:
    bench, sink = Bench(Deadlines(first=0.01, stall=60, whole=0.05)), Sink()

    async def drip(request: TextRequest) -> TextResult:
        assert request.sink is not None
        while True:
            await request.sink.piece(".")
            await asyncio.sleep(0)

    bench.serve(drip)
    with pytest.raises(ModelUnavailable, match=r"first: no end within 0\.05 s"):
        await bench.router.text(request_for(sink))


async def test_a_sink_that_fails_costs_the_show_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sink):
        async def piece(self, text: str) -> None:
            await super().piece(text)
            raise ValueError("bug")

    bench, sink = Bench(), Broken()
    bench.serve(writing("Hel", "lo."))

    assert (await bench.router.text(request_for(sink))).text == "Hello."
    assert sink.seen == ["Hel"]
    assert len([one for one in caplog.records if "its sink failed" in one.message]) == 1


async def test_a_handler_that_goes_on_after_its_try_is_not_listened_to() -> None:
    bench, sink = Bench(), Sink()
    late: list[Any] = []

    async def keep(request: TextRequest) -> TextResult:
        late.append(request.sink)
        return said()

    bench.serve(keep)
    await bench.router.text(request_for(sink))
    await late[0].piece("too late")
    await late[0].restart()

    assert sink.seen == []


async def test_a_text_without_an_end_is_not_shown_without_an_end() -> None:
    bench, sink = Bench(), Sink()
    bench.serve(writing("x" * MOST_SHOWN, "y"))
    await bench.router.text(request_for(sink))

    assert sink.seen == ["x" * MOST_SHOWN]


async def test_e12_an_answer_at_the_last_moment_is_taken_and_nobody_else_is_asked() -> None:
    bench = Bench(Deadlines(first=0))

    async def slow(request: TextRequest) -> TextResult:
        try:
            return await never()
        except asyncio.CancelledError:
            return said("just in time")

    bench.serve(slow)
    bench.serve(said(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "just in time"
    assert [call.error for call in bench.booked] == [""]


async def test_e12_of_two_that_are_asked_one_answers_and_both_are_booked() -> None:
    bench = Bench(Deadlines(first=0))
    bench.serve(never)
    bench.serve(said(), name="second")

    assert (await bench.router.text(TextRequest("Hello?"))).text == "Hello."
    assert [bool(call.error) for call in bench.booked] == [True, False]


def test_a_sink_is_no_part_of_what_is_asked() -> None:
    request = request_for(Sink())

    assert request == replace(request, sink=None)
    assert "Sink" not in repr(request)
