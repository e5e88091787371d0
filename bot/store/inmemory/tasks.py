"""Tasks in memory."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from bot.domain.task import Task, TaskTag


class InMemoryTasks:
    """Implements `TaskStore`."""

    def __init__(self) -> None:
        self._tasks: dict[UUID, Task] = {}
        self._watchers: list[Callable[[], None]] = []

    async def save_task(self, task: Task) -> None:
        stored = self._tasks.get(task.id)
        if stored is not None:
            task = replace(task, leased_until=stored.leased_until, fencing_token=stored.fencing_token)
        self._tasks[task.id] = task
        for on_saved in self._watchers:
            on_saved()

    def watch(self, on_saved: Callable[[], None]) -> None:
        self._watchers.append(on_saved)

    async def next_due(self, names: Collection[str]) -> datetime | None:
        due_times = (
            task.next_run
            for task in self._tasks.values()
            if task.name in names and _is_eligible(task) and task.leased_until is None
        )
        return min(due_times, default=None)

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        return Counter((task.name, task.is_parked) for task in self._tasks.values() if TaskTag.QUEUE in task.tags)

    async def task(self, task_id: UUID) -> Task | None:
        return self._tasks.get(task_id)

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        return [
            task
            for task in self._tasks.values()
            if name in (None, task.name)
            and room_id in (None, task.room_id)
            and entity_id in (None, task.entity_id)
            and task.tags.issuperset(tags)
        ]

    async def tasks_after(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        ordered = sorted(self._tasks.values(), key=lambda task: (task.next_run, task.id))
        return [task for task in ordered if after is None or (task.next_run, task.id) > after][:limit]

    async def claim_tasks(
        self, leases: Mapping[str, timedelta], now: datetime, limit: int = 10, excluded_room_ids: Collection[UUID] = ()
    ) -> list[Task]:
        due = [
            task
            for task in self._tasks.values()
            if task.name in leases
            and _is_eligible(task)
            and task.room_id not in excluded_room_ids
            and task.next_run <= now
            and (task.leased_until is None or task.leased_until <= now)
        ]
        due.sort(key=lambda task: task.next_run)
        claimed = [task.lease(now + leases[task.name]) for task in due[:limit]]
        self._tasks.update((task.id, task) for task in claimed)
        return claimed

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        stored = self._tasks.get(task.id)
        if stored is None or stored.fencing_token != task.fencing_token:
            return False
        if replacement is None:
            del self._tasks[task.id]
        else:
            self._tasks[task.id] = replace(replacement, leased_until=None, fencing_token=stored.fencing_token)
        return True

    async def delete_task(self, task_id: UUID) -> bool:
        return self._tasks.pop(task_id, None) is not None

    def erase(self, entity_id: UUID) -> int:
        """Delete the tasks for an entity; return their number."""
        remaining = {task.id: task for task in self._tasks.values() if task.entity_id != entity_id}
        count, self._tasks = len(self._tasks) - len(remaining), remaining
        return count

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> None:
        """Assign all tasks of a room to another one."""
        self._tasks = {
            task.id: replace(task, room_id=new_room_id) if task.room_id == room_id else task
            for task in self._tasks.values()
        }

    def migrate_world(self, world_id: UUID, new_world_id: UUID) -> None:
        """Assign all tasks of a world to another one."""
        self._tasks = {
            task.id: replace(task, world_id=new_world_id) if task.world_id == world_id else task
            for task in self._tasks.values()
        }


def _is_eligible(task: Task) -> bool:
    return TaskTag.QUEUE in task.tags and not task.is_parked
