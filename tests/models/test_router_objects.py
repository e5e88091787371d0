"""Objects of a given shape, and tools."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from bot.errors import ModelError, ModelUnavailable
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, Tool, ToolCall
from tests.models.bench import RouterBench, build_result


class Guess(BaseModel):
    """A guess, and how sure it is."""

    town: str
    sureness: float = Field(ge=0, le=1)


REQUEST = TextRequest("Which town?", Purpose.OTHER)
GOOD = '{"town": "Ulm", "sureness": 0.5}'


def serve_objects(bench: RouterBench, *answers: str) -> list[TextRequest]:
    """Serve small texts, and remember the requests."""
    requests: list[TextRequest] = []
    remaining = list(answers)

    async def write(request: TextRequest) -> TextResult:
        requests.append(request)
        return build_result(remaining.pop(0))

    bench.serve(write, kind=ModelType.TEXT_SMALL)
    return requests


@pytest.mark.parametrize("written", [GOOD, f"Sure!\n```json\n{GOOD}\n```", f"<response>{GOOD}</response>"])
async def test_an_object_comes_out_as_the_model_that_went_in(written: str) -> None:
    bench = RouterBench()
    requests = serve_objects(bench, written)

    assert await bench.router.object(Guess, REQUEST) == Guess(town="Ulm", sureness=0.5)
    [request] = requests
    assert request.schema == Guess.model_json_schema()
    assert request.prompt.startswith("Which town?\n\n")
    assert '"sureness"' in request.prompt


async def test_an_object_that_does_not_fit_is_mended_once() -> None:
    bench = RouterBench()
    requests = serve_objects(bench, '{"town": "Ulm", "sureness": 7}', GOOD)

    assert (await bench.router.object(Guess, REQUEST)).town == "Ulm"
    assert [request.purpose for request in requests] == [Purpose.OTHER, Purpose.REPAIR]
    assert "sureness: Input should be less than or equal to 1" in requests[1].prompt
    assert '"sureness": 7' in requests[1].prompt


@pytest.mark.parametrize("nonsense", ["", "I do not know.", "[1, 2]", "{" * 2000, '{"town": null}'])
async def test_an_object_that_never_fits_is_an_error_and_no_made_up_one(nonsense: str) -> None:
    bench = RouterBench()
    serve_objects(bench, nonsense, nonsense)
    with pytest.raises(ModelError, match="a-model returned no Guess"):
        await bench.router.object(Guess, REQUEST)

    assert len(bench.calls) == 2


async def test_a_handler_for_objects_goes_before_one_for_texts() -> None:
    bench = RouterBench()
    bench.serve(build_result(GOOD), kind=ModelType.OBJECT_LARGE, name="objects")
    bench.serve(build_result("prose"), name="texts")

    assert (await bench.router.object(Guess, REQUEST, ModelType.OBJECT_LARGE)).town == "Ulm"
    assert bench.handler_calls == ["objects"]


async def test_where_nobody_writes_there_are_no_objects() -> None:
    bench = RouterBench()

    assert not bench.router.has_handler_for(ModelType.OBJECT_SMALL)
    with pytest.raises(ModelUnavailable, match="OBJECT_SMALL"):
        await bench.router.object(Guess, REQUEST)


async def test_whether_tools_can_be_called_is_what_the_first_handler_says() -> None:
    bench = RouterBench()

    assert not bench.router.can_call_tools(ModelType.TEXT_LARGE)
    bench.serve(build_result(), can_call_tools=True)
    assert bench.router.can_call_tools(ModelType.TEXT_LARGE)
    assert bench.router.can_call_tools(ModelType.TEXT_SMALL)
    bench.serve(build_result(), name="better", priority=1)
    assert not bench.router.can_call_tools(ModelType.TEXT_LARGE)


async def test_calls_come_back_beside_the_text_and_not_without_end() -> None:
    bench = RouterBench()
    call = ToolCall("ROLL", {"sides": 6})
    bench.serve(TextResult("Rolling.", tool_calls=(call,) * 1000))
    tool = Tool("ROLL", "Roll a die.", {"type": "object"})
    result: Any = await bench.router.text(TextRequest("Roll!", tools=(tool,)))

    assert (result.text, set(map(repr, result.tool_calls)), len(result.tool_calls)) == (
        "Rolling.",
        {repr(call)},
        64,
    )
