"""Measure whether the cost of a message grows with the number of rooms, and with the members of a room.

Each message goes through the whole pipeline, with a SQLite file and a model that answers at once.
"""

import asyncio
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.doubles import DiscardingAdapter, StatelessModel
from benchmarks.figures import Row, check_answered, find_interval, measure, report_progress
from bot import ChannelType, Content
from bot.cli.process.shutdown import reduce_gc_frequency
from bot.plugin_system.loading import find_plugin
from bot.testing import AgentHarness, running_agent

ROOM_COUNTS = (10, 1_000, 10_000)
MEMBER_COUNTS = (5, 100, 1_000)
LANES, MESSAGES, ROUNDS = 2, 400, 12
GOAL = "goal ≤ 1.1"
Place = dict[str, str | ChannelType]
ListPlaces = Callable[[int], Sequence[Sequence[Place]]]


@dataclass(slots=True)
class Crowd:
    """An agent with a number of rooms or members, and the CPU seconds of a message in each round."""

    count: int
    harness: AgentHarness
    places: Sequence[Sequence[Place]]  # of each lane
    costs: list[float] = field(default_factory=list)


def measure_crowds() -> list[Row]:
    """Measure with each number of rooms and members, in turns."""
    return [
        asyncio.run(_measure("rooms", ROOM_COUNTS, _list_rooms)),
        asyncio.run(_measure("members of a room", MEMBER_COUNTS, _list_members)),
    ]


def _list_rooms(count: int) -> Sequence[Sequence[Place]]:
    return [
        [{"room": f"room {n}", "author": f"person {n}"} for n in range(lane, count, LANES)] for lane in range(LANES)
    ]


def _list_members(count: int) -> Sequence[Sequence[Place]]:
    """Return the members of one room for each lane."""
    return [
        [
            {"room": f"group {lane}", "author": f"member {number} of {lane}", "kind": ChannelType.GROUP}
            for number in range(count)
        ]
        for lane in range(LANES)
    ]


async def _measure(name: str, counts: Sequence[int], list_places: ListPlaces) -> Row:
    async with AsyncExitStack() as stack:
        crowds = [await stack.enter_async_context(_crowd(name, count, list_places(count))) for count in counts]
        reduce_gc_frequency()
        report_progress(f"messages with {', '.join(f'{count:,}' for count in counts)} {name}, in turns")
        for number in range(ROUNDS):
            for crowd in crowds:
                await _measure_round(crowd, number)
    figures = ", ".join(f"{1e6 * statistics.median(crowd.costs):.0f}" for crowd in crowds)
    ratios = ", ".join(describe_growth(crowd.costs, crowds[0].costs) for crowd in crowds[1:])
    return (
        f"{', '.join(f'{count:,}' for count in counts)} {name}",
        f"{figures} µs CPU a message: {ratios} of the first ({GOAL})",
    )


def describe_growth(costs: Sequence[float], first: Sequence[float]) -> str:
    """Return the median of the ratios of all rounds, with its 95 % interval."""
    ratios = [cost / other for cost, other in zip(costs, first, strict=True)]
    low, high = find_interval(ratios)
    return f"{statistics.median(ratios):.2f} × ({low:.2f} to {high:.2f})"


@asynccontextmanager
async def _crowd(name: str, count: int, places: Sequence[Sequence[Place]]) -> AsyncIterator[Crowd]:
    """Run an agent that has heard a message at each place."""
    sql = find_plugin("sql")
    if sql is None:
        raise SystemExit("the sql plugin is not installed")
    report_progress(f"{count:,} {name}")
    with tempfile.TemporaryDirectory() as folder:
        settings = {"DATABASE_URL": f"sqlite:///{Path(folder, 'bench.db')}"}
        async with running_agent(
            sql, model=StatelessModel(), adapter=DiscardingAdapter(), settings=settings
        ) as harness:
            await asyncio.gather(*(_send_all(harness, lane) for lane in places))
            yield Crowd(count, harness, places)


async def _measure_round(crowd: Crowd, number: int) -> None:
    chance = random.Random(number)
    chosen = [chance.choices(lane, k=MESSAGES // LANES) for lane in crowd.places]
    with measure() as usage:
        await asyncio.gather(*(_send_all(crowd.harness, lane) for lane in chosen))
        await crowd.harness.agent.outbox.drain(10.0)
    crowd.costs.append(usage.cpu / MESSAGES)


async def _send_all(harness: AgentHarness, places: Sequence[Place]) -> None:
    for place in places:
        receipt = await harness.submit(Content(text="Ada, what do you think of it?", source="test"), **place)
        check_answered(await harness.agent_runtime.inbox.wait_outcome(receipt.id))
