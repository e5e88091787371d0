"""Rules for tools that a provider refuses: found by halving, left out from then on, and reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from math import log2
from typing import Any

import pytest

from bot.errors import BudgetSpent, ModelBusy, ModelRefused, ToolsRefused
from bot.models.types import TextRequest, TextResult, Tool
from tests.models.bench import RouterBench, Sink, answer_never, build_result

TOOLS = tuple(Tool(f"TOOL_{number}", "Do it.", {"type": "object", "properties": {}}) for number in range(16))


class Provider:
    """A provider that refuses requests with one of these tools; `describe` is the message of a refusal."""

    def __init__(
        self, refused: Collection[int], describe: Callable[[list[str]], str] = lambda bad: "invalid tools"
    ) -> None:
        self._refused = {f"TOOL_{number}" for number in refused}
        self._describe = describe
        self.sent: list[list[str]] = []

    async def __call__(self, request: TextRequest) -> TextResult:
        names = [tool.name for tool in request.tools]
        self.sent.append(names)
        if request.sink is not None:
            await request.sink.write(f"with {len(names)}")
        if bad := [name for name in names if name in self._refused]:
            raise ToolsRefused(self._describe(bad))
        return build_result(f"with {len(names)}")


def bench_of(provider: Callable[[Any], Awaitable[TextResult]]) -> RouterBench:
    """Return a router with one handler that calls tools."""
    bench = RouterBench()
    bench.serve(provider, can_call_tools=True)
    return bench


def without(*numbers: int) -> list[str]:
    """Return the names of all other tools."""
    return [tool.name for number, tool in enumerate(TOOLS) if number not in numbers]


@pytest.mark.parametrize("number", range(16))
async def test_the_refused_tool_alone_is_left_out_and_found_by_halving(number: int) -> None:
    provider = Provider({number})
    bench = bench_of(provider)
    result = await bench.router.text(TextRequest("hi", tools=TOOLS))

    assert result.text == "with 15"
    assert without(number) in provider.sent
    assert len(provider.sent) <= log2(len(TOOLS)) + 2
    assert len(bench.calls) == len(provider.sent)
    assert [status.failed for status in bench.router.statuses()] == [0]


async def test_later_calls_leave_a_refused_tool_out_at_once_until_its_schema_changes() -> None:
    provider = Provider({3})
    bench = bench_of(provider)
    await bench.router.text(TextRequest("hi", tools=TOOLS))
    provider.sent.clear()
    await bench.router.text(TextRequest("hi", tools=TOOLS))
    changed = Tool("TOOL_3", "Do it.", {"type": "object", "properties": {"a": {"type": "string"}}})
    await bench.router.text(TextRequest("hi", tools=(changed,)))

    assert provider.sent == [without(3), ["TOOL_3"], []]


@pytest.mark.parametrize(
    "describe",
    [
        lambda bad: f"Invalid schema for function '{bad[0]}': array schema missing items",
        lambda bad: f"tools.{'11' if bad else ''}.custom.input_schema: no oneOf at the top level",
        lambda bad: "tools[0].function_declarations[11].parameters.properties[a]: should be non-empty",
        lambda bad: "{'loc': ('body', 'tools', 11, 'function')}",
    ],
)
async def test_the_tool_that_a_refusal_names_is_left_out_first(describe: Callable[[list[str]], str]) -> None:
    provider = Provider({11}, describe)
    await bench_of(provider).router.text(TextRequest("hi", tools=TOOLS))

    assert provider.sent == [without(), without(11)]


async def test_a_refusal_that_names_a_wrong_tool_costs_no_tool() -> None:
    provider = Provider({11}, lambda bad: "tools.0.custom: invalid")
    bench = bench_of(provider)
    await bench.router.text(TextRequest("hi", tools=TOOLS))
    await bench.router.text(TextRequest("hi", tools=TOOLS))

    assert provider.sent[-1] == without(11)


@pytest.mark.parametrize("refused", [(0, 1), (0, 15), (7, 8), (2, 5, 11)])
async def test_several_refused_tools_are_all_found(refused: tuple[int, ...]) -> None:
    provider = Provider(refused)
    bench = bench_of(provider)
    await bench.router.text(TextRequest("hi", tools=TOOLS))
    await bench.router.text(TextRequest("hi", tools=TOOLS))

    assert provider.sent[-1] == without(*refused)


@pytest.mark.parametrize("count", [1, 2, 16])
async def test_if_every_tool_is_refused_the_answer_is_written_without_tools(count: int) -> None:
    provider = Provider(range(16))
    bench = bench_of(provider)
    assert (await bench.router.text(TextRequest("hi", tools=TOOLS[:count]))).text == "with 0"
    assert len(provider.sent) <= 25
    provider.sent.clear()
    await bench.router.text(TextRequest("hi", tools=TOOLS[:count]))

    assert provider.sent == [[]]


async def test_a_request_that_is_refused_for_its_tools_though_it_has_none_is_not_repeated() -> None:
    bench = RouterBench()
    bench.serve(ToolsRefused("no tools"))
    with pytest.raises(ModelRefused):
        await bench.router.text(TextRequest("hi"))

    assert len(bench.calls) == 1


async def test_the_provider_the_tool_and_the_cause_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    await bench_of(Provider({3}, lambda bad: f"{bad[0]}: no items")).router.text(TextRequest("hi", tools=TOOLS))

    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.message.startswith("first (TEXT_LARGE) refuses the tool TOOL_3, which is left out")
    assert record.message.endswith("TOOL_3: no items")


async def test_a_streamed_text_starts_again_with_each_call() -> None:
    provider, sink = Provider({0}), Sink()
    bench = bench_of(provider)
    await bench.router.text(TextRequest("hi", tools=TOOLS[:2], sink=sink))

    assert sink.pieces == ["with 2", None, "with 1", None, "with 1"]


async def test_a_spent_budget_and_a_busy_model_end_the_search() -> None:
    for error in (BudgetSpent("BUDGET", "spent"), ModelBusy("503")):
        bench = RouterBench()
        bench.serve([ToolsRefused("no"), error], can_call_tools=True)
        with pytest.raises(type(error).__mro__[1]):
            await bench.router.text(TextRequest("hi", tools=TOOLS))

        assert len(bench.calls) == 2


async def test_cancellation_ends_the_search() -> None:
    again = asyncio.Event()

    async def hang(request: TextRequest) -> TextResult:
        again.set()
        return await answer_never()

    bench = RouterBench()
    bench.serve([ToolsRefused("no"), hang], can_call_tools=True)
    task = asyncio.ensure_future(bench.router.text(TextRequest("hi", tools=TOOLS)))
    await again.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [call.error for call in bench.calls] == ["no", "cancelled"]
