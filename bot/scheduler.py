"""Work for later, done when it is due: claimed by lease, then repeated, removed, or tried again."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from bot.agent import Agent
from bot.boundary import Failure, contained
from bot.domain.task import Task
from bot.errors import StoreUnavailable
from bot.patience import Patience
from bot.registry import Registry
from bot.text import shorten

logger = logging.getLogger(__name__)

TICK = 1.0
LEASE_MARGIN = timedelta(seconds=60)
SHORTEST_INTERVAL = timedelta(seconds=1)
MOST_FAILURES = 20
LET_GO = 2.0


class Scheduler:
    """Runs the tasks whose workers this agent has; one that is still running is never started again.

    A run that outlives its lease, because the clock was set or the machine slept, takes the next
    lease over.
    """

    def __init__(
        self, agent: Agent, registry: Registry, *, tick: float = TICK, patience: Patience | None = None
    ) -> None:
        self._agent = agent
        self._workers = registry.workers
        self._tick = tick
        self._patience = patience or Patience()
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._held: dict[UUID, Task] = {}  # what is running, as it was claimed last

    async def __aenter__(self) -> Self:
        if self._workers:
            self._loop = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop at once: what was under way keeps its lease and runs again once that is over."""
        tasks = {*self._running, *([self._loop] if self._loop else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience.left(LET_GO))

    async def run_due(self) -> int:
        """Run what is due now and wait for it; gives back how many tasks that were."""
        tasks = await self._claim()
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(self._work(task))
        return len(tasks)

    async def _run(self) -> None:
        while True:
            try:
                for task in await self._claim():
                    running = asyncio.get_running_loop().create_task(self._work(task))
                    self._running.add(running)
                    running.add_done_callback(self._running.discard)
            except StoreUnavailable:  # the log has it once, and not for every tick
                logger.debug("due tasks wait until the store is back")
            except Exception:  # one tick's fault, the store's most likely: the next tick tries again
                logger.warning("due tasks could not be claimed", exc_info=True)
            await asyncio.sleep(self._tick)

    async def _claim(self) -> list[Task]:
        if not self._workers:
            return []
        now = self._agent.clock()
        longest = max(worker.deadline for worker in self._workers.values())
        until = now + timedelta(seconds=longest) + LEASE_MARGIN
        claimed = await self._agent.store.tasks.claim_tasks(list(self._workers), now, until)
        new = [task for task in claimed if task.id not in self._held]
        self._held.update((task.id, task) for task in claimed)
        return new

    async def _work(self, task: Task) -> None:
        worker = self._workers[task.name]
        try:
            done = await contained(
                worker(self._agent, task), what=f"worker {task.name}", deadline=worker.deadline
            )
            await self._complete(task, done.cause if isinstance(done, Failure) else "")
        except Exception:  # the store's fault: the lease stands, and the task runs again once it is over
            logger.warning("task %s of %s could not be completed", task.id, task.name, exc_info=True)
        finally:
            self._held.pop(task.id, None)

    async def _complete(self, task: Task, error: str) -> None:
        """Write down how a run ended; what the worker has changed in its task meanwhile is kept."""
        fresh = await self._agent.store.tasks.task(task.id)
        if fresh is None:
            logger.info("task %s was removed while it ran", task.name)
            return
        after = None if not (error or fresh.repeats) else _next(fresh, self._agent.clock(), error)
        if after is not None and after.is_parked:
            logger.error("task %s of %s is parked: %s", task.id, task.name, after.last_error)
        if not await self._agent.store.tasks.complete_task(self._held[task.id], after):
            logger.info("task %s was taken over while it ran", task.name)


def _next(task: Task, now: datetime, error: str) -> Task:
    """Say when a task runs again: after its interval; after failures later and later, in the end never."""
    if not error:
        try:
            due = now + max(task.interval, SHORTEST_INTERVAL)
        except (TypeError, ValueError, OverflowError):
            wrong = shorten(repr(task.metadata["updateInterval"]), 80)
            error = f"its updateInterval is no number of milliseconds: {wrong}"
        else:
            return replace(task, attempts=0, last_error="", next_run=due)
    failed = replace(task, attempts=task.attempts + 1, last_error=error)
    return replace(failed, next_run=now + failed.back_off, is_parked=failed.attempts >= MOST_FAILURES)
