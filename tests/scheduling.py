"""A scheduler to try things on: one worker, a clock that a test moves, and what was run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from bot.background.scheduler import Scheduler
from bot.domain.ids import new_id
from bot.domain.task import Task, TaskTag
from bot.plugin_system.components import TaskCondition, Worker
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.store import InMemoryStore
from bot.store.protocols import Store
from bot.testing import running_agent
from bot.turn import Agent
from tests.clocks import ManualClock

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
DEADLINE = 10.0


class Nights:
    """How a scheduler sleeps: until it is woken, by a new task or by the test, whatever time it asked for."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self._woken = asyncio.Event()

    async def __call__(self, woken: asyncio.Event, seconds: float) -> None:
        self._woken = woken
        self.asked.put_nowait(seconds)
        if seconds:
            await woken.wait()
        else:
            await asyncio.sleep(0)

    def end(self) -> None:
        """End the sleep."""
        self._woken.set()


async def always(agent: Agent, task: Task) -> bool:
    return True


class Bench:
    """A scheduler, the store it works on, and what its one worker did."""

    def __init__(
        self,
        agent: Agent,
        work: Callable[[Agent, Task], Any] | None,
        clock: ManualClock,
        validate: TaskCondition = always,
    ) -> None:
        self.runs: list[Task] = []
        self.clock = clock
        self.agent = agent
        self.tasks = agent.store.tasks
        self._work = work
        plugin = Plugin("test", workers=[Worker("POST", self.run, DEADLINE, validate)])
        self.registry = Registry([plugin])
        self.nights = Nights()
        self.scheduler = Scheduler(agent, self.registry, poll_seconds=0, sleep=self.nights)

    async def run(self, agent: Agent, task: Task) -> None:
        self.runs.append(task)
        if self._work is not None:
            await self._work(agent, task)

    async def save(self, **details: Any) -> Task:
        task = Task(new_id(), **{"name": "POST", "next_run": START, **details})
        await self.tasks.save_task(task)
        return task

    async def now(self, task: Task) -> Task:
        found = await self.tasks.task(task.id)
        assert found is not None
        return found

    async def until_gone(self) -> None:
        """Wait until every task is done: the scheduler looks again after each."""
        while await self.tasks.tasks(name="POST"):
            await self.nights.asked.get()


@asynccontextmanager
async def a_bench(
    work: Callable[[Agent, Task], Any] | None = None, store: Store | None = None, validate: TaskCondition = always
) -> AsyncIterator[Bench]:
    clock = ManualClock()
    async with running_agent(store=store or InMemoryStore(clock), clock=clock) as harness:
        yield Bench(harness.agent, work, clock, validate)


def repeating(interval: Any = 60_000) -> dict[str, Any]:
    return {"tags": frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), "metadata": {"updateInterval": interval}}


async def fail(agent: Agent, task: Task) -> None:
    raise ValueError("no words")
