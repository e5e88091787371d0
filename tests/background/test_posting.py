"""Posting of its own accord: when, what not, and never twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
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
from bot.store import Store
from bot.store.inmemory import InMemoryStore
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, running_agent
from plugins.sql.sqlite.storage import OpenFiles
from tests.scheduling import START, ManualClock

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
class Desk:
    """An agent that posts, on a clock that the test moves; a pause is drawn as the test says."""

    stage: AgentHarness
    clock: ManualClock
    draw: Callable[[float, float], float]

    async def after(self, **amount: float) -> list[str]:
        """Have what is due done when some time has passed; gives what was posted by then."""
        self.clock.advance(**amount)
        poster = PostScheduler(self.stage.agent, self.stage.agent_runtime.registry, draw=self.draw)
        await Scheduler(self.stage.agent, self.stage.agent_runtime.registry, [poster.worker]).run_due()
        await self.stage.agent.outbox.drain(5.0)
        return self.stage.texts

    async def appoint(self) -> None:
        await PostScheduler(self.stage.agent, self.stage.agent_runtime.registry, draw=self.draw).schedule_posts()

    async def tasks(self) -> list[Task]:
        return await self.stage.agent.store.tasks.tasks(name=POST_WORKER)

    async def due(self) -> timedelta:
        [task] = await self.tasks()
        return task.next_run - START


def shortest(low: float, high: float) -> float:
    return low


@asynccontextmanager
async def a_desk(
    *script: str | Exception,
    adapter: RecordingAdapter | None = None,
    store: Store | None = None,
    clock: ManualClock | None = None,
    draw: Callable[[float, float], float] = shortest,
) -> AsyncIterator[Desk]:
    clock = clock or ManualClock()
    left = list(script or [KNOT])

    def write(request: TextRequest) -> str:
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, Exception):
            raise said
        return f"<response><post>{said}</post></response>"

    async with running_agent(
        model=ScriptedModel(write), adapter=adapter or Timeline(), store=store, clock=clock
    ) as stage:
        desk = Desk(stage, clock, draw)
        for task in await desk.tasks():  # the runtime's own has drawn its pause by chance
            if store is None:
                await stage.agent.store.tasks.delete_task(task.id)
        await desk.appoint()
        yield desk


async def test_it_posts_by_itself_after_every_pause() -> None:
    async with a_desk(KNOT, FOG, HERON) as desk:
        assert await desk.after(minutes=89) == []
        assert await desk.after(minutes=1) == [KNOT]
        assert await desk.after(minutes=89) == [KNOT]
        assert await desk.after(minutes=1) == [KNOT, FOG]
        assert await desk.after(minutes=90) == [KNOT, FOG, HERON]
        [first, *_] = desk.stage.adapter.sent
        assert (first.target, first.reply_to, first.room_id) == ("timeline", "", ROOM.id)
        kept = await desk.stage.agent.store.memories.recent(ROOM.id, kind=MemoryKind.MESSAGE)
        assert [one.content.text for one in kept] == [KNOT, FOG, HERON]


async def test_pauses_vary_within_their_bounds() -> None:
    drawn = iter([0.25, 0.75, 0.5])

    def draw(low: float, high: float) -> float:
        return low + (high - low) * next(drawn)

    async with a_desk(KNOT, FOG, draw=draw) as desk:
        assert await desk.due() == timedelta(minutes=105)
        await desk.after(minutes=105)
        assert await desk.due() == timedelta(minutes=105 + 135)
        await desk.after(minutes=135)
        assert await desk.due() == timedelta(minutes=105 + 135 + 120)


async def test_a_feed_that_is_posted_to_on_demand_only_is_left_alone() -> None:
    async with a_desk(adapter=Timeline(every=None)) as desk:
        assert await desk.tasks() == []
        assert await desk.after(days=3) == []
        assert desk.stage.model.requests == []


async def test_a_platform_that_is_no_feed_is_never_posted_to() -> None:
    async with a_desk(adapter=RecordingAdapter()) as desk:
        assert await desk.after(days=3) == []
        assert await desk.tasks() == []


async def test_posts_that_are_switched_off_stop_at_the_next_start() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with a_desk(store=store, clock=clock) as desk:
        assert len(await desk.tasks()) == 1
    async with a_desk(store=store, clock=clock, adapter=Timeline(every=None)) as desk:
        assert await desk.tasks() == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_overdue_post_is_published_once_after_a_restart(kind: str, tmp_path: Path) -> None:
    async def run(store: Store) -> None:
        clock = ManualClock()
        async with a_desk(store=store, clock=clock) as desk:
            [before] = await desk.tasks()
            assert TaskTag.REPEAT in before.tags
        clock.advance(days=3)
        async with a_desk(KNOT, FOG, store=store, clock=clock) as desk:
            for _ in range(100_000):  # it may have looked before the platform was there
                if await desk.after(minutes=1):
                    break
                await asyncio.sleep(0)
            at = clock.now - START
            assert await desk.after(minutes=60) == [KNOT]
            assert await desk.due() >= at + timedelta(minutes=89)

    if kind == "memory":
        await run(InMemoryStore())
        return
    async with OpenFiles().open_store(tmp_path / "greenroom.db", derived_id("agent", "Ada")) as opened:
        await run(opened)


async def test_a_restart_does_not_put_off_what_is_to_come() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with a_desk(store=store, clock=clock) as desk:
        before = await desk.due()
    clock.advance(minutes=60)
    async with a_desk(store=store, clock=clock) as desk:
        assert await desk.due() == before


async def test_other_pauses_count_from_the_start_at_which_they_are_set() -> None:
    store, clock = InMemoryStore(), ManualClock()
    async with a_desk(store=store, clock=clock):
        clock.advance(minutes=60)
    often = Timeline((timedelta(minutes=5), timedelta(minutes=5)))
    async with a_desk(store=store, clock=clock, adapter=often) as desk:
        assert await desk.due() == timedelta(minutes=65)


async def test_what_was_posted_before_is_written_anew_three_times_at_most_and_then_left_out() -> None:
    async with a_desk(KNOT, KNOT) as desk:
        await desk.after(minutes=90)
        assert await desk.after(minutes=90) == [KNOT]
        assert len(desk.stage.model.requests_for(Purpose.POST)) == 1 + MAX_ATTEMPTS
        [task] = await desk.tasks()
        assert (task.attempts, task.is_parked) == (0, False)
        assert await desk.due() == timedelta(minutes=270)


@pytest.mark.failure("O-12")
async def test_a_post_is_held_against_the_last_two_hundred() -> None:
    async with a_desk(KNOT.upper(), TIDE) as desk:
        feed = Feed(WORLD, ROOM)
        for text in [KNOT, *(f"{number} herons, {number + 1} moods" for number in range(199))]:
            await publish(desk.stage.agent, feed, Post(text))
        assert len(await recent_posts(desk.stage.agent, feed)) == 200
        assert (await desk.after(minutes=90))[-1] == TIDE


@pytest.mark.parametrize(
    ("fault", "again"),
    [(ModelUnavailable("gone"), timedelta(minutes=10)), (ModelRefused("no credit"), timedelta(minutes=90))],
)
async def test_without_a_model_it_asks_once_and_waits(fault: Exception, again: timedelta) -> None:
    async with a_desk(fault, KNOT) as desk:
        assert await desk.after(minutes=90) == []
        assert len(desk.stage.model.requests) == 1
        assert await desk.due() == timedelta(minutes=90) + again
        assert await desk.after(minutes=again.total_seconds() / 60) == [KNOT]


async def test_a_run_that_is_repeated_after_a_crash_publishes_nothing_twice() -> None:
    async with a_desk(KNOT, FOG) as desk:
        poster = PostScheduler(desk.stage.agent, desk.stage.agent_runtime.registry, draw=shortest)
        [task] = await desk.tasks()
        await poster.worker(desk.stage.agent, task)
        await poster.worker(desk.stage.agent, task)
        assert await desk.stage.adapter.wait_until_sent(1) == [KNOT]


async def test_posts_are_numbered_so_that_topics_go_round() -> None:
    async with a_desk() as desk:
        feed = Feed(WORLD, ROOM)
        said = [await publish(desk.stage.agent, feed, Post(text)) for text in (KNOT, FOG, HERON, TIDE)]
        assert [one.content.metadata["number"] for one in said if one] == [0, 1, 2, 3]
