"""Work for later, done when it is due: claimed by lease, then repeated, removed, or tried again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from bot.agent import Agent
from bot.concurrency.clock import Patience
from bot.concurrency.isolation import Failure, contained
from bot.domain.task import Task, is_missed, next_time
from bot.errors import StoreUnavailable
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import Registry

logger = logging.getLogger(__name__)

TICK = 1.0
LONGEST_SLEEP = 10.0  # then what other processes have left is seen, and that somebody has set the clock
MOST_AT_ONCE = 10
MOST_SERVED = 1000
LEASE_MARGIN = timedelta(seconds=60)
ASK_AGAIN = timedelta(minutes=1)
MOST_FAILURES = 20
LET_GO = 2.0

Sleep = Callable[[asyncio.Event, float], Awaitable[None]]


async def _until(woken: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()


class Scheduler:
    """Runs the tasks whose workers this agent has, and `more`; one still running is never started again.

    It sleeps until the next one is due, and a new one wakes it. A run that outlives its lease, because
    the clock was set or the machine slept, takes the next lease over. Where more is due than can run, rooms
    take turns: one that has had some of its tasks begun waits until every other one has.
    """

    def __init__(
        self,
        agent: Agent,
        registry: Registry,
        more: Sequence[Worker] = (),
        *,
        tick: float = TICK,
        sleep: Sleep = _until,
        patience: Patience | None = None,
    ) -> None:
        self._agent = agent
        self._workers = {**registry.workers, **{worker.name: worker for worker in more}}
        self._tick = tick
        self._sleep = sleep
        self._patience = patience or Patience()
        self._woken = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._held: dict[UUID, Task] = {}  # what is running, as it was claimed last
        self._served: set[UUID] = set()  # rooms that have had their turn, while more is due than can run

    async def __aenter__(self) -> Self:
        self._agent.store.tasks.watch(self._woken.set)
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
        """Run what is due now, at most ten, and wait for it; gives back how many tasks that were."""
        tasks = await self._claim(MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(self._work(task))
        return len(tasks)

    async def _run(self) -> None:
        await contained(self._tell_what_waits(), what="looking what nobody does", deadline=None)
        if not self._workers:
            return
        while True:
            self._woken.clear()
            pause = self._tick
            try:
                pause = await self._begin_due()
            except StoreUnavailable:  # the log has it once, and not for every attempt
                logger.debug("due tasks wait until the store is back")
            except Exception:  # one attempt's fault, the store's most likely: the next one may do
                logger.warning("due tasks could not be claimed", exc_info=True)
            await self._sleep(self._woken, pause)

    async def _tell_what_waits(self) -> None:
        """Tell of tasks that will not run: their plugin is gone, or they have failed too often."""
        with suppress(StoreUnavailable):
            for (name, is_parked), count in (await self._agent.store.tasks.count_tasks()).items():
                if name not in self._workers:
                    logger.warning("%d tasks of %s wait: no plugin has a worker of this name", count, name)
                elif is_parked:
                    logger.warning("%d tasks of %s are parked: they have failed too often", count, name)

    async def _begin_due(self) -> float:
        """Start what is due, as far as there is room for it; gives back how long to sleep then."""
        begun = 0
        while room := MOST_AT_ONCE - len(self._running):
            tasks = await self._claim(room)
            for task in tasks:
                running = asyncio.get_running_loop().create_task(self._work(task))
                self._running.add(running)
                running.add_done_callback(self._ended)
            begun += len(tasks)
            if len(tasks) < room:
                break
        else:
            return LONGEST_SLEEP  # whichever ends first wakes us
        due = await self._agent.store.tasks.next_due(self._workers)
        if due is None:
            return LONGEST_SLEEP
        left = (due - self._agent.clock()).total_seconds()
        return min(left, LONGEST_SLEEP) if left > 0 else self._tick

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        self._woken.set()

    async def _claim(self, most: int) -> list[Task]:
        if not self._workers:
            return []
        claimed = await self._claim_besides(self._served, most)
        if self._served and len(claimed) < most:  # every room has had its turn
            self._served.clear()
            claimed += await self._claim_besides((), most - len(claimed))
        if len(claimed) == most and len(self._served) < MOST_SERVED:
            self._served |= {task.room_id for task in claimed if task.room_id is not None}
        new = [task for task in claimed if task.id not in self._held]
        self._held.update((task.id, task) for task in claimed)
        return new

    async def _claim_besides(self, rooms: Collection[UUID], most: int) -> list[Task]:
        now = self._agent.clock()
        longest = max(worker.deadline for worker in self._workers.values())
        until = now + timedelta(seconds=longest) + LEASE_MARGIN
        return await self._agent.store.tasks.claim_tasks(list(self._workers), now, until, most, rooms)

    async def _work(self, task: Task) -> None:
        try:
            await self._complete(task, await self._outcome(task))
        except Exception:  # the store's fault: the lease stands, and the task runs again once it is over
            logger.warning("task %s of %s could not be completed", task.id, task.name, exc_info=True)
        finally:
            self._held.pop(task.id, None)

    async def _outcome(self, task: Task) -> str | None:
        """Run a task, or leave it out; gives back why it failed, "", or None where it is not to run now."""
        worker, now = self._workers[task.name], self._agent.clock()
        if task.attempts >= MOST_FAILURES:
            return "its process ended while it ran, again and again"
        try:
            if task.repeats:
                next_time(task, now)  # with times that make no sense nothing is begun
            if is_missed(task, now):
                logger.info("task %s of %s is left out: it was due at %s", task.id, task.name, task.next_run)
                return ""
        except ValueError as error:
            return str(error)
        done = await contained(self._try(worker, task), what=f"worker {task.name}", deadline=worker.deadline)
        if isinstance(done, Failure):
            return done.cause
        return "" if done else None

    async def _try(self, worker: Worker, task: Task) -> bool:
        if not await worker.validate(self._agent, task):
            return False
        await worker(self._agent, task)
        return True

    async def _complete(self, task: Task, error: str | None) -> None:
        """Write down how a run ended; what the worker has changed in its task meanwhile is kept."""
        fresh = await self._agent.store.tasks.task(task.id)
        if fresh is None:
            logger.info("task %s was removed while it ran", task.name)
            return
        after = _after(task, fresh, self._agent.clock(), error)
        if after is not None and after.is_parked:
            logger.error("task %s of %s is parked: %s", task.id, task.name, after.last_error)
        if not await self._agent.store.tasks.complete_task(self._held[task.id], after):
            logger.info("task %s was taken over while it ran", task.name)


def _after(ran: Task, fresh: Task, now: datetime, error: str | None) -> Task | None:
    """Say when a task runs again, None for never: at its next time; after failures later and later.

    `fresh` is what the worker has made of it, `error` why the run failed, None where it did not begin.
    """
    if not error and fresh.repeats:
        try:
            due, skipped = next_time(replace(fresh, next_run=ran.next_run), now)
        except ValueError as wrong:
            error = str(wrong)
        else:
            if skipped:
                logger.info("task %s of %s skips %d of its times", ran.id, ran.name, skipped)
                fresh = replace(fresh, metadata={**fresh.metadata, "skipped": _skipped(fresh) + skipped})
            return replace(fresh, attempts=0, last_error="", next_run=due)
    if error is None:
        return replace(fresh, next_run=now + ASK_AGAIN)
    if not error:
        return None
    failed = replace(fresh, attempts=fresh.attempts + 1, last_error=error)
    return replace(failed, next_run=now + failed.back_off, is_parked=failed.attempts >= MOST_FAILURES)


def _skipped(task: Task) -> int:
    known = task.metadata.get("skipped")
    return known if isinstance(known, int) else 0
