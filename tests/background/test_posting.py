"""Unprompted posts: when, about what not, and never twice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from bot import ChannelType, MemoryKind, Room, Task, TaskTag, World, derived_id
from bot.background.posting import MAX_ATTEMPTS, POST_WORKER, Post, PostScheduler, publish, recent_posts
from bot.background.scheduler import Scheduler
from bot.models import ModelRefused, ModelUnavailable, Purpose
from bot.models.types import TextRequest
from bot.platform import Feed
from bot.store import CostEntry, InMemoryStore, Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, running_agent
from tests.clocks import ManualClock
from tests.scheduling import START

KNOT = "A knot is a decision that a rope remembers."
FOG = "Fog is just weather minding its own business."
HERON = "The heron caught nothing this morning, with enormous dignity."
TIDE = "The tide came in early and would not say why."
WORLD = World(derived_id("x", "world"), "test", "timeline", "Tamsin's timeline")
ROOM = Room(derived_id("x", "feed"), WORLD.id, ChannelType.FEED, "test", "timeline", "account", "timeline")
EVERY = (timedelta(minutes=90), timedelta(minutes=150))


class Timeline(RecordingAdapter):
    """A platform that is a feed."""

    def __init__(self, every: tuple[timedelta, timedelta] | None = EVERY) -> None:
        super().__init__()
        self.every = every

    def feed(self, agent_id: UUID) -> Feed | None:
        return Feed(WORLD, ROOM, self.every)


@dataclass(frozen=True)
class PostingHarness:
    """An agent that posts, on a clock that the test moves; `draw` chooses the pauses."""

    harness: AgentHarness
    clock: ManualClock
    draw: Callable[[float, float], float]

    async def after(self, **amount: float) -> list[str]:
        """Advance the clock and run what is due; return what was posted by then."""
        self.clock.advance(**amount)
        poster = PostScheduler(self.harness.agent, self.harness.agent_runtime.registry, draw=self.draw)
        await Scheduler(self.harness.agent, self.harness.agent_runtime.registry, [poster.worker]).run_due()
        await self.harness.agent.outbox.drain(5.0)
        return self.harness.texts

    async def appoint(self) -> None:
        await PostScheduler(self.harness.agent, self.harness.agent_runtime.registry, draw=self.draw).schedule_posts()

    async def tasks(self) -> list[Task]:
        return await self.harness.agent.store.tasks.tasks(name=POST_WORKER)

    async def due(self) -> timedelta:
        [task] = await self.tasks()
        return task.next_run - START


def shortest(low: float, high: float) -> float:
    return low


@asynccontextmanager
async def open_posting(
    *script: str | Exception,
    adapter: RecordingAdapter | None = None,
    store: Store | None = None,
    clock: ManualClock | None = None,
    draw: Callable[[float, float], float] = shortest,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[PostingHarness]:
    clock = clock or ManualClock()
    left = list(script or [KNOT])

    def write(request: TextRequest) -> str:
        text = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(text, Exception):
            raise text
        return f"<response><post>{text}</post></response>"

    async with running_agent(
        model=ScriptedModel(write), adapter=adapter or Timeline(), store=store, clock=clock, settings=settings
    ) as harness:
        posting = PostingHarness(harness, clock, draw)
        for task in await posting.tasks():  # the runtime's own has drawn its pause by chance
            if store is None:
                await harness.agent.store.tasks.delete_task(task.id)
        await posting.appoint()
        yield posting


async def test_it_posts_by_itself_after_every_pause() -> None:
    async with open_posting(KNOT, FOG, HERON) as posting:
        assert await posting.after(minutes=89) == []
        assert await posting.after(minutes=1) == [KNOT]
        assert await posting.after(minutes=89) == [KNOT]
        assert await posting.after(minutes=1) == [KNOT, FOG]
        assert await posting.after(minutes=90) == [KNOT, FOG, HERON]
        [first, *_] = posting.harness.adapter.sent
        assert (first.target, first.reply_to, first.room_id) == ("timeline", "", ROOM.id)
        kept = await posting.harness.agent.store.memories.recent(ROOM.id, kind=MemoryKind.MESSAGE)
        assert [memory.content.text for memory in kept] == [KNOT, FOG, HERON]


async def test_nothing_is_posted_from_the_small_model_on_until_the_next_day() -> None:
    async with open_posting(KNOT, FOG, settings={"BUDGET_TOKENS": "1000", "DEGRADE": "50:history,80:small"}) as posting:
        costs, limits = posting.harness.agent.store.costs, posting.harness.agent_runtime.handle.limits
        await costs.add([CostEntry(START.date(), "m", tokens_in=800)])
        await limits.change({}, source="the test")  # which loads the costs
        assert await posting.after(minutes=90) == []
        assert await posting.due() == timedelta(minutes=100)
        await limits.change({"BUDGET_TOKENS": 1_000_000}, source="the test")
        assert await posting.after(minutes=10) == [KNOT]


async def test_pauses_vary_within_their_bounds() -> None:
    drawn = iter([0.25, 0.75, 0.5])

    def draw(low: float, high: float) -> float:
        return low + (high - low) * next(drawn)

    async with open_posting(KNOT, FOG, draw=draw) as posting:
        assert await posting.due() == timedelta(minutes=105)
        await posting.after(minutes=105)
        assert await posting.due() == timedelta(minutes=105 + 135)
        await posting.after(minutes=135)
        assert await posting.due() == timedelta(minutes=105 + 135 + 120)


async def test_a_feed_that_is_posted_to_on_demand_only_is_left_alone() -> None:
    async with open_posting(adapter=Timeline(every=None)) as posting:
        assert await posting.tasks() == []
        assert await posting.after(days=3) == []
        assert posting.harness.model.requests == []


async def test_a_platform_that_is_no_feed_is_never_posted_to() -> None:
    async with open_posting(adapter=RecordingAdapter()) as posting:
        assert await posting.after(days=3) == []
        assert await posting.tasks() == []


async def test_posts_that_are_switched_off_stop_at_the_next_start() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with open_posting(store=store, clock=clock) as posting:
        assert len(await posting.tasks()) == 1
    async with open_posting(store=store, clock=clock, adapter=Timeline(every=None)) as posting:
        assert await posting.tasks() == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_overdue_post_is_published_once_after_a_restart(kind: str, tmp_path: Path) -> None:
    async def run(store: Store) -> None:
        clock = ManualClock()
        async with open_posting(store=store, clock=clock) as posting:
            [before] = await posting.tasks()
            assert TaskTag.REPEAT in before.tags
        clock.advance(days=3)
        async with open_posting(KNOT, FOG, store=store, clock=clock) as posting:
            for _ in range(100_000):  # it may have looked before the platform was there
                if await posting.after(minutes=1):
                    break
                await asyncio.sleep(0)
            at = clock.now - START
            assert await posting.after(minutes=60) == [KNOT]
            assert await posting.due() >= at + timedelta(minutes=89)

    if kind == "memory":
        await run(InMemoryStore())
        return
    async with OpenFiles().open_store(tmp_path / "greenroom.db", derived_id("agent", "Ada")) as opened:
        await run(opened)


async def test_a_restart_does_not_put_off_what_is_to_come() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with open_posting(store=store, clock=clock) as posting:
        before = await posting.due()
    clock.advance(minutes=60)
    async with open_posting(store=store, clock=clock) as posting:
        assert await posting.due() == before


async def test_other_pauses_count_from_the_start_at_which_they_are_set() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with open_posting(store=store, clock=clock):
        clock.advance(minutes=60)
    often = Timeline((timedelta(minutes=5), timedelta(minutes=5)))
    async with open_posting(store=store, clock=clock, adapter=often) as posting:
        assert await posting.due() == timedelta(minutes=65)


async def test_what_was_posted_before_is_written_again_three_times_at_most_and_then_left_out() -> None:
    async with open_posting(KNOT, KNOT) as posting:
        await posting.after(minutes=90)
        assert await posting.after(minutes=90) == [KNOT]
        assert len(posting.harness.model.requests_for(Purpose.POST)) == 1 + MAX_ATTEMPTS
        [task] = await posting.tasks()
        assert (task.attempts, task.is_parked) == (0, False)
        assert await posting.due() == timedelta(minutes=270)


@pytest.mark.long
@pytest.mark.failure("O-12")
async def test_a_post_is_held_against_the_last_two_hundred() -> None:
    async with open_posting(KNOT.upper(), TIDE) as posting:
        feed = Feed(WORLD, ROOM)
        for text in [KNOT, *(f"{number} herons, {number + 1} moods" for number in range(199))]:
            await publish(posting.harness.agent, feed, Post(text))
        assert len(await recent_posts(posting.harness.agent, feed)) == 200
        assert (await posting.after(minutes=90))[-1] == TIDE


@pytest.mark.parametrize(
    ("fault", "again"),
    [(ModelUnavailable("gone"), timedelta(minutes=10)), (ModelRefused("no credit"), timedelta(minutes=90))],
)
async def test_without_a_model_it_asks_once_and_waits(fault: Exception, again: timedelta) -> None:
    async with open_posting(fault, KNOT) as posting:
        assert await posting.after(minutes=90) == []
        assert len(posting.harness.model.requests) == 1
        assert await posting.due() == timedelta(minutes=90) + again
        assert await posting.after(minutes=again.total_seconds() / 60) == [KNOT]


async def test_a_run_that_is_repeated_after_a_crash_publishes_nothing_twice() -> None:
    async with open_posting(KNOT, FOG) as posting:
        poster = PostScheduler(posting.harness.agent, posting.harness.agent_runtime.registry, draw=shortest)
        [task] = await posting.tasks()
        await poster.worker(posting.harness.agent, task)
        await poster.worker(posting.harness.agent, task)
        assert await posting.harness.adapter.wait_until_sent(1) == [KNOT]


async def test_posts_are_numbered_so_that_topics_go_round() -> None:
    async with open_posting() as posting:
        feed = Feed(WORLD, ROOM)
        deliveries = [await publish(posting.harness.agent, feed, Post(text)) for text in (KNOT, FOG, HERON, TIDE)]
        assert [delivery.content.metadata["number"] for delivery in deliveries if delivery] == [0, 1, 2, 3]
