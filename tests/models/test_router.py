"""The router: priority, failover, validation."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from bot.errors import ModelError, ModelRefused, ModelUnavailable
from bot.models.handler import MAX_TEXT_LENGTH, note_call
from bot.models.router import ModelRouter
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelType,
    Purpose,
    TextRequest,
    TextResult,
    Tool,
    TranscriptionRequest,
    Usage,
)
from tests.models.bench import RouterBench, Sink, answer_never, build_result, stream_pieces

REQUEST = TextRequest("12345678", Purpose.REPLY, system="1234")


async def test_a_call_is_recorded_as_the_provider_counted_it() -> None:
    bench = RouterBench()
    bench.serve(build_result(usage=Usage(30, 20, 10)))

    assert (await bench.router.text(REQUEST)).text == "Hello."
    [call] = bench.calls
    assert (call.type, call.purpose, call.model, call.error) == ("TEXT_LARGE", "reply", "a-model", "")
    assert (call.tokens_in, call.tokens_out, call.tokens_cached, call.is_estimate) == (30, 20, 10, False)
    assert call.prompt_bytes == 12
    assert call.seconds >= 0


@pytest.mark.failure("E-11")
@pytest.mark.parametrize(
    "usage",
    [
        None,
        Usage(-1, 2),
        Usage(3, -2),
        Usage(3, 2, -1),
        Usage(10**12, 2),
        Usage(0, 2),
        Usage(None, None),  # type: ignore[arg-type]
        {"tokens_in": 3},
    ],
)
async def test_numbers_that_are_missing_or_impossible_are_estimated_and_flagged(usage: Any) -> None:
    bench = RouterBench()
    bench.serve(TextResult("12345678", usage=usage))
    await bench.router.text(REQUEST)
    [call] = bench.calls

    assert (call.tokens_in, call.tokens_out, call.tokens_cached, call.is_estimate) == (5, 3, 0, True)
    assert call.model == "first"


async def test_tools_count_as_part_of_the_prompt() -> None:
    bench = RouterBench()
    bench.serve(build_result())
    await bench.router.text(replace(REQUEST, tools=(Tool("ROLL", "Roll.", {"type": "object"}),)))

    assert bench.calls[0].prompt_bytes == 12 + len("ROLL" + "Roll." + '{"type": "object"}')


async def test_the_higher_priority_is_asked_first_and_among_equals_the_earlier() -> None:
    bench = RouterBench()
    bench.serve(ModelError("no"), name="low", priority=-1)
    bench.serve(ModelError("no"), name="early")
    bench.serve(ModelError("no"), name="late")
    bench.serve(ModelError("no"), name="high", priority=5)
    with pytest.raises(ModelUnavailable):
        await bench.router.text(REQUEST)

    assert bench.handler_calls == ["high", "early", "late", "low"]


@pytest.mark.parametrize(
    "failure",
    [ModelError("busy"), ModelRefused("no credit"), ValueError("bug"), TimeoutError("slow"), SystemExit(1)],
    ids=lambda value: type(value).__name__,
)
async def test_the_next_handler_is_asked_when_a_handler_fails(failure: BaseException) -> None:
    bench = RouterBench()
    bench.serve(failure)
    bench.serve(build_result(), name="second")

    assert (await bench.router.text(REQUEST)).text == "Hello."
    assert bench.handler_calls == ["first", "second"]
    assert [bool(call.error) for call in bench.calls] == [True, False]
    assert bench.calls[0].is_estimate


async def test_when_all_fail_every_cause_is_named() -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no credit"))
    bench.serve(ValueError("bug"), name="second")
    with pytest.raises(ModelUnavailable, match="no credit; second: ValueError: bug"):
        await bench.router.text(REQUEST)


async def test_a_single_failure_keeps_its_class() -> None:
    bench = RouterBench()
    bench.serve(ModelRefused("no credit"))
    with pytest.raises(ModelRefused, match="no credit"):
        await bench.router.text(REQUEST)


async def test_a_type_without_a_handler_is_named() -> None:
    bench = RouterBench()
    bench.serve(build_result())
    with pytest.raises(ModelUnavailable, match="TEXT_EMBEDDING"):
        await bench.router.embed(["a"])

    assert bench.calls == []
    assert not bench.router.has_handler_for(ModelType.TEXT_EMBEDDING)


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
        (ModelType.TEXT_SMALL, ModelType.TEXT_LARGE),
        (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM),
        (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ],
)
async def test_another_size_is_the_fallback_of_a_size_without_handler(served: ModelType, asked: ModelType) -> None:
    bench = RouterBench()
    bench.serve(build_result(), kind=served)

    assert bench.router.has_handler_for(asked)
    assert (await bench.router.text(REQUEST, asked)).text == "Hello."
    assert bench.calls[0].type == asked.value


async def test_the_nearest_size_is_the_fallback() -> None:
    bench = RouterBench()
    for kind in (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM):
        bench.serve(build_result(kind.value), kind=kind)

    assert (await bench.router.text(REQUEST, ModelType.TEXT_LARGE)).text == "TEXT_MEDIUM"


@pytest.mark.failure("E-03")
async def test_every_handler_has_its_own_timeout() -> None:
    bench = RouterBench(first=0)
    bench.serve(answer_never, name="slow")
    with pytest.raises(ModelUnavailable, match="slow: no answer within 0 s"):
        await bench.router.text(REQUEST)

    bench.serve(build_result(), name="second")
    assert (await bench.router.text(REQUEST)).text == "Hello."


async def test_a_timeout_raised_by_the_handler_is_reported_as_such() -> None:
    bench = RouterBench()
    bench.serve(TimeoutError("connecting"))
    with pytest.raises(ModelUnavailable, match="first: TimeoutError: connecting"):
        await bench.router.text(REQUEST)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (None, "returned NoneType instead of TextResult"),
        ("Hello.", "returned str instead of TextResult"),
        (EmbeddingResult(((1.0,),)), "returned EmbeddingResult instead of TextResult"),
        (TextResult(None), "returned a text of type NoneType"),  # type: ignore[arg-type]  # a plugin may
    ],
)
async def test_an_answer_of_the_wrong_type_is_a_failure(given: Any, cause: str) -> None:
    bench = RouterBench()
    bench.serve(given)
    with pytest.raises(ModelError, match=f"first: {cause}"):
        await bench.router.text(REQUEST)

    assert cause in bench.calls[0].error


async def test_a_wrong_number_of_vectors_is_a_failure() -> None:
    bench = RouterBench()
    bench.serve(EmbeddingResult(((1.0,), (2.0,)), "e"), kind=ModelType.TEXT_EMBEDDING)

    assert (await bench.router.embed(["a", "b"])).vectors == ((1.0,), (2.0,))
    with pytest.raises(ModelError, match="2 vectors for 1 texts"):
        await bench.router.embed(["a"])


async def test_a_request_for_embeddings_says_whether_its_texts_are_questions() -> None:
    questions = []

    async def embed(request: EmbeddingRequest) -> EmbeddingResult:
        questions.append(request.is_question)
        return EmbeddingResult(((1.0,),), "e")

    bench = RouterBench()
    bench.serve(embed, kind=ModelType.TEXT_EMBEDDING)
    await bench.router.embed(["where are the keys?"], is_question=True)
    await bench.router.embed(["the keys are in the drawer"])
    assert questions == [True, False]


async def test_a_text_comes_back_storable_and_bounded() -> None:
    bench = RouterBench()
    bench.serve(TextResult("a\0b\ud83d", usage=None))

    assert (await bench.router.text(TextRequest("\ud83d"))).text == "ab\ufffd"
    endless = RouterBench()
    endless.serve(TextResult("x" * (MAX_TEXT_LENGTH + 1)))
    assert len((await endless.router.text(REQUEST)).text) == MAX_TEXT_LENGTH


async def test_a_cancelled_call_is_recorded_and_no_other_handler_is_called() -> None:
    bench, started = RouterBench(), asyncio.Event()

    async def wait(request: Any) -> TextResult:
        started.set()
        return await answer_never()

    bench.serve(wait)
    bench.serve(build_result(), name="second")
    task = asyncio.ensure_future(bench.router.text(REQUEST))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [(call.error, call.tokens_in, call.is_estimate) for call in bench.calls] == [("cancelled", 5, True)]
    assert bench.handler_calls == ["first"]


async def test_a_call_without_a_result_counts_for_its_model_with_what_was_streamed() -> None:
    bench, streamed = RouterBench(), asyncio.Event()

    async def write(request: Any) -> TextResult:
        note_call("a-noted-model", Usage(70, 1, 50))
        await request.sink.write("eight by")
        await request.sink.write("tes and ")
        streamed.set()
        return await answer_never()

    bench.serve(write)
    task = asyncio.ensure_future(bench.router.text(TextRequest("the prompt", sink=Sink())))
    await streamed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    [call] = bench.calls
    assert (call.model, call.error, call.is_estimate, call.is_counted) == ("a-noted-model", "cancelled", True, True)
    assert (call.tokens_in, call.tokens_out, call.tokens_cached) == (70, 6, 50)


async def test_a_call_whose_handler_notes_no_model_counts_for_the_last_model_that_answered() -> None:
    bench = RouterBench()
    bench.serve([build_result(), ModelError("no luck")])
    await bench.router.text(REQUEST)
    with pytest.raises(ModelError):
        await bench.router.text(REQUEST)
    assert [(call.model, call.is_counted) for call in bench.calls] == [("a-model", True), ("a-model", False)]


async def test_an_answer_that_broke_off_is_counted_by_estimate() -> None:
    bench = RouterBench()
    bench.serve(stream_pieces("twelve bytes", then=[ModelError("it broke off")]))
    with pytest.raises(ModelError):
        await bench.router.text(TextRequest("the prompt", sink=Sink()))
    [call] = bench.calls
    assert (call.tokens_out, call.has_failed, call.is_counted) == (4, True, True)


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    bench = RouterBench()
    bench.serve(asyncio.CancelledError())
    with pytest.raises(ModelError, match="CancelledError"):
        await bench.router.text(REQUEST)


@pytest.mark.parametrize("after", [build_result(), ModelError("late"), ValueError("late")])
async def test_a_handler_that_swallows_a_cancellation_does_not_end_it(after: Any) -> None:
    bench, started = RouterBench(), asyncio.Event()

    async def swallow(request: Any) -> TextResult:
        try:
            started.set()
            return await answer_never()
        except asyncio.CancelledError:
            if isinstance(after, Exception):
                raise after from None
            return build_result()

    bench.serve(swallow)
    bench.serve(answer_never, name="second")
    task = asyncio.ensure_future(bench.router.text(REQUEST))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bench.handler_calls == ["first"]
    assert len(bench.calls) == 1


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (ModelType.IMAGE_DESCRIPTION, lambda router: router.describe(ImageDescriptionRequest(b"png", "image/png"))),
        (ModelType.TRANSCRIPTION, lambda router: router.transcribe(TranscriptionRequest(b"ogg", "audio/ogg"))),
    ],
    ids=["picture", "recording"],
)
async def test_images_and_recordings_have_handlers_of_their_own(
    kind: ModelType, ask: Callable[[ModelRouter], Awaitable[TextResult]]
) -> None:
    bench = RouterBench()
    bench.serve(build_result("a cat"), kind=kind)

    assert (await ask(bench.router)).text == "a cat"
    assert [(call.type, call.purpose) for call in bench.calls] == [(kind.value, "description")]


async def test_an_empty_image_is_a_failure_and_the_next_handler_is_called() -> None:
    bench = RouterBench()
    bench.serve(ImageResult(model="empty"), kind=ModelType.IMAGE, priority=1)
    bench.serve(ImageResult(data=b"png", model="painter"), kind=ModelType.IMAGE, name="second")

    assert (await bench.router.draw(ImageRequest("an engine"))).data == b"png"
    assert [(call.model, call.purpose, call.prompt_bytes) for call in bench.calls] == [
        ("first", "image", 9),
        ("painter", "image", 9),
    ]
    assert "without data and URL" in bench.calls[0].error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text_large", ModelType.TEXT_LARGE),
        (" IMAGE_GENERATION ", ModelType.IMAGE),
        ("speech_to_text", ModelType.TRANSCRIPTION),
        ("OBJECT_SMALL", ModelType.OBJECT_SMALL),
    ],
)
def test_model_types_are_read_in_any_case_and_by_their_aliases(name: str, expected: ModelType) -> None:
    assert ModelType(name) is expected


def test_an_unknown_model_type_is_refused() -> None:
    with pytest.raises(ValueError, match="TEXT_HUGE"):
        ModelType("TEXT_HUGE")
