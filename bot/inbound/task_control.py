"""`TaskControl`: list, run, pause, resume and delete the scheduled tasks of an agent."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.task import LAST_RUN_KEY, MISSED_THRESHOLD, PAUSED_KEY, Task, TaskTag
from bot.store.protocols import TaskStore


class TaskState(StrEnum):
    """What a task does at present."""

    WAITING = "waiting"  # for its time
    RUNNING = "running"
    PAUSED = "paused"  # an operator paused it
    FAILED = "failed"  # it failed too often
    ASKING = "asking"  # a person has to choose first


@dataclass(frozen=True, slots=True)
class TaskDecision:
    """A task after a decision, whether it is now as requested, and why not."""

    task: Task
    is_done: bool
    note: str = ""


class TaskControl:
    """The scheduled tasks of one agent, as an operator sees and changes them."""

    def __init__(self, tasks: TaskStore, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock

    async def tasks(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        """Return tasks by their next run; `after` is the next run and the id of the last one of a page."""
        return await self._tasks.tasks_after(limit, after)

    def state_of(self, task: Task) -> TaskState:
        """Return what a task does at present."""
        if task.leased_until is not None and task.leased_until > self._clock():
            return TaskState.RUNNING
        if task.is_parked:
            return TaskState.PAUSED if task.is_paused else TaskState.FAILED
        return TaskState.WAITING if TaskTag.QUEUE in task.tags else TaskState.ASKING

    def late_seconds(self, task: Task) -> float:
        """Return how long a waiting task is past its time, from a minute on; otherwise 0."""
        late = self._clock() - task.next_run
        return late.total_seconds() if self.state_of(task) is TaskState.WAITING and late > MISSED_THRESHOLD else 0.0

    async def count_failed(self) -> int:
        """Return how many tasks have failed too often; paused ones are none of them."""
        names = [name for name, is_parked in await self._tasks.count_tasks() if is_parked]
        tasks = [task for name in names for task in await self._tasks.tasks(name=name)]
        return sum(self.state_of(task) is TaskState.FAILED for task in tasks)

    async def run(self, task_id: UUID) -> TaskDecision | None:
        """Make a task due now; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        state = self.state_of(task)
        if state is TaskState.RUNNING:
            return TaskDecision(task, False, "it is running just now")
        if state is TaskState.PAUSED:
            return TaskDecision(task, False, "it is paused: resume it first")
        if state is TaskState.ASKING:
            return TaskDecision(task, False, "it waits until a person has chosen")
        return await self._save(replace(task, next_run=self._clock(), attempts=0, is_parked=False))

    async def pause(self, task_id: UUID) -> TaskDecision | None:
        """Leave a task out until it is resumed; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        state = self.state_of(task)
        if state is TaskState.RUNNING:
            return TaskDecision(task, False, "it is running just now: try again in a moment")
        if state is TaskState.ASKING:
            return TaskDecision(task, False, "it waits until a person has chosen")
        return await self._save(replace(task, is_parked=True, metadata={**task.metadata, PAUSED_KEY: True}))

    async def resume(self, task_id: UUID) -> TaskDecision | None:
        """Queue a task again that was paused or failed too often; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        if not task.is_parked:
            return TaskDecision(task, True)
        metadata = {name: value for name, value in task.metadata.items() if name != PAUSED_KEY}
        return await self._save(replace(task, is_parked=False, attempts=0, metadata=metadata))

    async def delete(self, task_id: UUID) -> bool:
        """Delete a task; return whether there was one. A plugin may schedule it anew at the next start."""
        return await self._tasks.delete_task(task_id)

    async def _save(self, task: Task) -> TaskDecision:
        await self._tasks.save_task(task)
        return TaskDecision(task, True)


def last_run_of(task: Task) -> datetime | None:
    """Return when a repeating task ran last; None if it has not run."""
    value = task.metadata.get(LAST_RUN_KEY)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
