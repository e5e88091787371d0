"""Structured output and tools."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from bot.errors import ModelError, ModelUnavailable
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, Tool, ToolCall
from tests.models.bench import RouterBench, build_result


class Guess(BaseModel):
    """An example of structured output."""

    city: str
    sureness: float = Field(ge=0, le=1)


REQUEST = TextRequest("Which city?", Purpose.OTHER)
GOOD = '{"city": "Ulm", "sureness": 0.5}'


def serve_objects(bench: RouterBench, *answers: str) -> list[TextRequest]:
    """Serve small texts, and return the list of requests."""
    requests: list[TextRequest] = []
    remaining = list(answers)

    async def write(request: TextRequest) -> TextResult:
        requests.append(request)
        return build_result(remaining.pop(0))

    bench.serve(write, kind=ModelType.TEXT_SMALL)
    return requests


@pytest.mark.parametrize("written", [GOOD, f"Sure!\n```json\n{GOOD}\n```", f"<response>{GOOD}</response>"])
async def test_an_object_is_an_instance_of_the_requested_model(written: str) -> None:
    bench = RouterBench()
    requests = serve_objects(bench, written)

    assert await bench.router.object(Guess, REQUEST) == Guess(city="Ulm", sureness=0.5)
    [request] = requests
    assert request.schema == Guess.model_json_schema()
    assert request.prompt.startswith("Which city?\n\n")
    assert '"sureness"' in request.prompt


async def test_an_invalid_object_is_repaired_once() -> None:
    bench = RouterBench()
    requests = serve_objects(bench, '{"city": "Ulm", "sureness": 7}', GOOD)

    assert (await bench.router.object(Guess, REQUEST)).city == "Ulm"
    assert [request.purpose for request in requests] == [Purpose.OTHER, Purpose.REPAIR]
    assert "sureness: Input should be less than or equal to 1" in requests[1].prompt
    assert '"sureness": 7' in requests[1].prompt


@pytest.mark.parametrize("nonsense", ["", "I do not know.", "[1, 2]", "{" * 2000, '{"city": null}'])
async def test_an_object_that_stays_invalid_is_an_error(nonsense: str) -> None:
    bench = RouterBench()
    serve_objects(bench, nonsense, nonsense)
    with pytest.raises(ModelError, match="a-model returned no Guess"):
        await bench.router.object(Guess, REQUEST)

    assert len(bench.calls) == 2


async def test_a_handler_for_objects_goes_before_a_handler_for_texts() -> None:
    bench = RouterBench()
    bench.serve(build_result(GOOD), kind=ModelType.OBJECT_LARGE, name="objects")
    bench.serve(build_result("prose"), name="texts")

    assert (await bench.router.object(Guess, REQUEST, ModelType.OBJECT_LARGE)).city == "Ulm"
    assert bench.handler_calls == ["objects"]


async def test_without_a_text_handler_there_are_no_objects() -> None:
    bench = RouterBench()

    assert not bench.router.has_handler_for(ModelType.OBJECT_SMALL)
    with pytest.raises(ModelUnavailable, match="OBJECT_SMALL"):
        await bench.router.object(Guess, REQUEST)


async def test_tool_support_is_that_of_the_first_handler() -> None:
    bench = RouterBench()

    assert not bench.router.can_call_tools(ModelType.TEXT_LARGE)
    bench.serve(build_result(), can_call_tools=True)
    assert bench.router.can_call_tools(ModelType.TEXT_LARGE)
    assert bench.router.can_call_tools(ModelType.TEXT_SMALL)
    bench.serve(build_result(), name="better", priority=1)
    assert not bench.router.can_call_tools(ModelType.TEXT_LARGE)


async def test_tool_calls_are_returned_with_the_text_up_to_a_limit() -> None:
    bench = RouterBench()
    call = ToolCall("ROLL", {"sides": 6})
    bench.serve(TextResult("Rolling.", tool_calls=(call,) * 1000))
    tool = Tool("ROLL", "Roll a die.", {"type": "object"})
    result: Any = await bench.router.text(TextRequest("Roll!", tools=(tool,)))

    assert (result.text, set(map(repr, result.tool_calls)), len(result.tool_calls)) == ("Rolling.", {repr(call)}, 64)
