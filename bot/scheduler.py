"""Work for later, done when it is due: claimed by lease, then repeated, removed, or tried again."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Self

from bot.agent import Agent
from bot.boundary import Failure, contained
from bot.domain.task import Task
from bot.registry import Registry

logger = logging.getLogger(__name__)

TICK = 1.0
LEASE_MARGIN = timedelta(seconds=60)
MOST_FAILURES = 20


class Scheduler:
    """Runs the tasks whose workers this agent has; one that is still running is never started again."""

    def __init__(self, agent: Agent, registry: Registry, *, tick: float = TICK) -> None:
        self._agent = agent
        self._workers = registry.workers
        self._tick = tick
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

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
            await asyncio.wait(tasks)

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
            except Exception:  # one tick's fault, the store's most likely: the next tick tries again
                logger.warning("due tasks could not be claimed", exc_info=True)
            await asyncio.sleep(self._tick)

    async def _claim(self) -> list[Task]:
        if not self._workers:
            return []
        now = self._agent.clock()
        longest = max(worker.deadline for worker in self._workers.values())
        until = now + timedelta(seconds=longest) + LEASE_MARGIN
        return await self._agent.store.tasks.claim_tasks(list(self._workers), now, until)

    async def _work(self, task: Task) -> None:
        worker = self._workers[task.name]
        done = await contained(
            worker(self._agent, task), what=f"worker {task.name}", deadline=worker.deadline
        )
        now = self._agent.clock()
        fresh = await self._agent.store.tasks.task(task.id) or task
        after: Task | None = None
        if isinstance(done, Failure):
            failed = replace(fresh, attempts=task.attempts + 1, last_error=done.cause)
            after = replace(
                failed, next_run=now + failed.back_off, is_parked=failed.attempts >= MOST_FAILURES
            )
        elif fresh.repeats:
            after = replace(fresh, attempts=0, last_error="", next_run=now + fresh.interval)
        if not await self._agent.store.tasks.complete_task(task, after):
            logger.info("task %s was taken over or removed while it ran", task.name)
