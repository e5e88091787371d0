"""`Scheduler`: runs due tasks by lease; repeats, retries or parks them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.tasks import Failure, TaskSet, run_isolated
from bot.domain.environment import find_take_over
from bot.domain.events import TaskEnded
from bot.domain.task import LAST_RUN_KEY, MissedRunPolicy, Task
from bot.errors import StoreUnavailable
from bot.pipeline.commit import ActionParked
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import Registry
from bot.turn import Agent

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
MAX_SLEEP_SECONDS = 10.0  # to see tasks of other processes and a changed clock
MAX_CONCURRENT_TASKS = 10
MAX_SERVED_ROOMS = 1000
RECHECK_INTERVAL = timedelta(minutes=1)
MAX_FAILURES = 20
CANCEL_GRACE_SECONDS = 2.0

WaitForEvent = Callable[[asyncio.Event, float], Awaitable[None]]


async def _wait_for_event(wake_event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake_event.wait()


class Scheduler:
    """Runs the tasks of this agent's workers and of `extra_workers`; a running task is never started again.

    The tasks of a room that a person has taken over, or for a person there, wait until it is given back. It sleeps
    until the next task is due; a new task wakes it. A run that outlives its lease, because the
    clock was set or the machine slept, takes over the next lease. Where more is due than can run, rooms take
    turns: one whose tasks were started waits until every other room had a turn.
    """

    def __init__(
        self,
        agent: Agent,
        registry: Registry,
        extra_workers: Sequence[Worker] = (),
        *,
        poll_seconds: float = POLL_SECONDS,
        sleep: WaitForEvent = _wait_for_event,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._agent = agent
        self._registry = registry
        self._extra_workers = {worker.name: worker for worker in extra_workers}
        self._poll_seconds = poll_seconds
        self._sleep = sleep
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._wake_event = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._running = TaskSet("scheduled task")
        self._claimed: dict[UUID, Task] = {}  # what is running, as it was claimed last
        self._served_rooms: set[UUID] = set()  # rooms that have had their turn, while more is due than can run

    async def __aenter__(self) -> Self:
        self._agent.store.tasks.watch(self._wake_event.set)
        self._loop = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop at once, and end the leases of what was running, so that the next process runs it.

        A task that does not stop keeps its lease.
        """
        if self._loop is not None:
            self._loop.cancel()
        await self._running.cancel(self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        if self._loop is not None:
            await asyncio.wait({self._loop}, timeout=self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))

    async def run_due(self) -> int:
        """Run what is due now, at most ten tasks, wait for them, and return how many they were."""
        tasks = await self._claim(MAX_CONCURRENT_TASKS)
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(self._run_task(task))
        return len(tasks)

    @property
    def _workers(self) -> dict[str, Worker]:
        """The workers by name, as they are now: plugins may register more."""
        return {**self._registry.workers, **self._extra_workers}

    async def _run(self) -> None:
        await run_isolated(self._log_waiting_tasks(), label="finding tasks without a worker", timeout=None)
        if not self._workers:
            return
        while True:
            self._wake_event.clear()
            delay = self._poll_seconds
            try:
                delay = await self._start_due()
            except StoreUnavailable:  # the log has it once, and not for every attempt
                logger.debug("due tasks wait until the store is back")
            except Exception:  # one attempt's fault, the store's most likely: the next one may do
                logger.warning("due tasks could not be claimed", exc_info=True)
            await self._sleep(self._wake_event, delay)

    async def _log_waiting_tasks(self) -> None:
        """Log tasks that will not run: their plugin is gone, or they have failed too often."""
        workers = self._workers
        with suppress(StoreUnavailable):
            for (name, is_parked), count in (await self._agent.store.tasks.count_tasks()).items():
                if name not in workers:
                    logger.warning(
                        "%d tasks of %s wait: no plugin has a worker of this name", count, name, extra={"once": True}
                    )
                elif is_parked:
                    logger.warning(
                        "%d tasks of %s are parked: they have failed too often", count, name, extra={"once": True}
                    )

    async def _start_due(self) -> float:
        """Start what is due, as far as there is capacity; return the seconds to sleep then."""
        started_count = 0
        while room := MAX_CONCURRENT_TASKS - len(self._running):
            tasks = await self._claim(room)
            for task in tasks:
                self._running.start(self._run_task(task)).add_done_callback(self._on_task_done)
            started_count += len(tasks)
            if len(tasks) < room:
                break
        else:
            return MAX_SLEEP_SECONDS  # whichever ends first wakes us
        due = await self._agent.store.tasks.next_due(self._workers)
        if due is None:
            return MAX_SLEEP_SECONDS
        remaining = (due - self._agent.clock()).total_seconds()
        return min(remaining, MAX_SLEEP_SECONDS) if remaining > 0 else self._poll_seconds

    def _on_task_done(self, running: asyncio.Task[None]) -> None:

        self._wake_event.set()

    async def _claim(self, limit: int) -> list[Task]:
        """Claim what is due; cancelled meanwhile, end the leases of what was claimed."""
        claiming = asyncio.get_running_loop().create_task(self._claim_by_turns(limit))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(Exception):  # the store's fault: the leases end in time
                for task in await claiming:
                    await self._release(task)
                    del self._claimed[task.id]
            raise

    async def _claim_by_turns(self, limit: int) -> list[Task]:
        if not self._workers:
            return []
        claimed = await self._claim_excluding(self._served_rooms, limit)
        if self._served_rooms and len(claimed) < limit:  # every room has had its turn
            self._served_rooms.clear()
            claimed += await self._claim_excluding((), limit - len(claimed))
        if len(claimed) == limit and len(self._served_rooms) < MAX_SERVED_ROOMS:
            self._served_rooms |= {task.room_id for task in claimed if task.room_id is not None}
        new_tasks = [task for task in claimed if task.id not in self._claimed]
        self._claimed.update((task.id, task) for task in claimed)
        return new_tasks

    async def _claim_excluding(self, excluded_rooms: Collection[UUID], limit: int) -> list[Task]:
        leases = {worker.name: timedelta(seconds=worker.deadline) for worker in self._workers.values()}
        return await self._agent.store.tasks.claim_tasks(leases, self._agent.clock(), limit, excluded_rooms)

    async def _run_task(self, task: Task) -> None:
        try:
            if self._is_taken_over(task):
                await self._postpone(task)
                return
            await self._complete(task, await self._execute(task))
        except asyncio.CancelledError:
            await self._release(task)
            raise
        except Exception:  # the store's fault: the lease stands, and the task runs again once it is over
            logger.warning("task %s of %s could not be completed", task.id, task.name, exc_info=True)
        finally:
            self._claimed.pop(task.id, None)

    def _is_taken_over(self, task: Task) -> bool:
        current = self._agent.store.take_overs.current
        return (
            bool(current) and task.room_id is not None and bool(find_take_over(current, task.room_id, task.entity_id))
        )

    async def _postpone(self, task: Task) -> None:
        """Look at a task again in a minute; one whose late runs are left out waits for its next time."""
        if task.metadata.get("missed") == MissedRunPolicy.SKIP:
            await self._complete(task, None)
        else:
            waiting = replace(task, next_run=self._agent.clock() + RECHECK_INTERVAL)
            await self._agent.store.tasks.complete_task(self._claimed[task.id], waiting)

    async def _execute(self, task: Task) -> str | None:
        """Run a task or skip it; return why it failed, "", or None where it is not to run now."""
        worker, now = self._workers.get(task.name), self._agent.clock()
        if worker is None:  # it was removed since the task was claimed
            return None
        if task.attempts >= MAX_FAILURES:
            return "its process ended while it ran, again and again"
        try:
            if task.is_repeating:
                task.schedule.find_next_run(task.next_run, now)  # with times that make no sense nothing is begun
            if task.is_missed(now):
                logger.info("task %s of %s is left out: it was due at %s", task.id, task.name, task.next_run)
                return ""
        except ValueError as error:
            return str(error)
        result = await run_isolated(
            self._run_worker(worker, task),
            label=f"worker {task.name}",
            timeout=worker.deadline - min(CANCEL_GRACE_SECONDS, worker.deadline / 10),  # it ends within its lease
            trusted=id(worker) in self._registry.trusted_ids,
        )
        if isinstance(result, Failure):
            return result.cause
        return "" if result else None

    async def _run_worker(self, worker: Worker, task: Task) -> bool:
        if not await worker.validate(self._agent, task):
            return False
        try:
            await worker(self._agent, task)
        except ActionParked:  # it looks again later whether a person has decided
            return False
        return True

    async def _complete(self, task: Task, error: str | None) -> None:
        """Store how a run ended; what the worker has changed in its task stays."""
        current = await self._agent.store.tasks.task(task.id)
        if current is None:
            logger.info("task %s was removed while it ran", task.name)
            return
        next_state = _next_state(task, current, self._agent.clock(), error)
        if next_state is not None and next_state.is_parked:
            logger.error("task %s of %s is parked: %s", task.id, task.name, next_state.last_error)
        if not await self._agent.store.tasks.complete_task(self._claimed[task.id], next_state):
            logger.info("task %s was claimed by another process while it ran", task.name)
        if error is None:  # it did not start
            return
        next_run = None if next_state is None or next_state.is_parked else next_state.next_run
        self._agent.events.emit(TaskEnded(self._agent.id, task.id, task.name, task.room_id, error or "", next_run))

    async def _release(self, task: Task) -> None:
        """End the lease of a task whose run was stopped; its next run counts as a further attempt."""
        try:
            current = await self._agent.store.tasks.task(task.id)
            if current is not None and current.leased_until is not None:
                interrupted = replace(current, attempts=current.attempts + 1)
                await self._agent.store.tasks.complete_task(self._claimed[task.id], interrupted)
        except Exception:  # as above
            logger.warning("the lease of task %s of %s could not be ended", task.id, task.name, exc_info=True)


def _next_state(claimed: Task, current: Task, now: datetime, error: str | None) -> Task | None:
    """Return the task as it runs next, or None for never; after failures later and later.

    `current` is the task as its worker left it, `error` why the run failed, None where it did not start.
    """
    if error is not None and current.is_repeating:
        current = replace(current, metadata={**current.metadata, LAST_RUN_KEY: now.isoformat()})
    if not error and current.is_repeating:
        try:
            due, skipped = current.schedule.find_next_run(claimed.next_run, now)
        except ValueError as schedule_error:
            error = str(schedule_error)
        else:
            if skipped:
                logger.info("task %s of %s skips %d of its times", claimed.id, claimed.name, skipped)
                current = replace(current, metadata={**current.metadata, "skipped": _count_skipped(current) + skipped})
            return replace(current, attempts=0, last_error="", next_run=due)
    if error is None:
        return replace(current, next_run=now + RECHECK_INTERVAL)
    if not error:
        return None
    failed_task = replace(current, attempts=current.attempts + 1, last_error=error)
    return replace(failed_task, next_run=now + failed_task.backoff, is_parked=failed_task.attempts >= MAX_FAILURES)


def _count_skipped(task: Task) -> int:
    skipped = task.metadata.get("skipped")
    return skipped if isinstance(skipped, int) else 0
