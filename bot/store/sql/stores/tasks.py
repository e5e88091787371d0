"""Scheduled tasks and their leases."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
    type_coerce,
    update,
)

from bot.domain.task import Task, TaskTag
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart
from bot.store.sql.core.mapping import (
    EPOCH,
    NIL,
    Row,
    RowMapping,
    is_flag,
    items_parameter,
    limit_parameter,
    matches,
    parameter,
    upsert,
)
from bot.store.sql.core.schema import tasks

MAX_EXCLUDED_ROOMS = 1024
MAX_EMPTY_ROOMS = 10_000
START = (EPOCH.replace(year=1), NIL)  # before every time and id
HOLDS_LEASE = and_(matches(tasks, "id"), tasks.c.fencing_token == bindparam("held_token"))
ELIGIBLE = and_(matches(tasks), is_flag(tasks.c.is_queued), is_flag(tasks.c.is_parked, is_set=False))
NOW = parameter(tasks.c.next_run, "now")
DUE = and_(ELIGIBLE, tasks.c.next_run <= NOW, or_(tasks.c.leased_until.is_(None), tasks.c.leased_until <= NOW))

TASK = RowMapping(tasks, Task, unread=["is_queued"])
UPSERT_TASK = upsert(tasks, ("agent_id", "id"), TASK.stored_names, unchanged=("leased_until", "fencing_token"))
FIND_TASK = select(*TASK).where(matches(tasks, "id"))
ALL_TASKS = select(*TASK).where(matches(tasks)).order_by(tasks.c.position)
TASKS_BY_NAME = select(*TASK).where(matches(tasks, "name")).order_by(tasks.c.position)
TASKS_IN_ROOM = select(*TASK).where(matches(tasks, "room_id")).order_by(tasks.c.position)
TASKS_AFTER = (
    select(*TASK)
    .where(
        matches(tasks),
        tuple_(tasks.c.next_run, tasks.c.id)
        > tuple_(parameter(tasks.c.next_run, "after"), parameter(tasks.c.id, "after_id")),
    )
    .order_by(tasks.c.next_run, tasks.c.id)
    .limit(limit_parameter())
)
HAS_NAME = tasks.c.name.in_(items_parameter(tasks.c.name, "names"))
FIND_DUE = (
    select(*TASK)
    .where(DUE, HAS_NAME)
    .order_by(tasks.c.next_run)
    .limit(limit_parameter())
    .with_for_update(skip_locked=True)  # for PostgreSQL; SQLite has one writer
)
FIND_DUE_ELSEWHERE = FIND_DUE.where(
    or_(tasks.c.room_id.is_(None), tasks.c.room_id.not_in(items_parameter(tasks.c.room_id)))
)
NEXT_DUE = (
    select(tasks.c.next_run)
    .where(ELIGIBLE, tasks.c.leased_until.is_(None), HAS_NAME)
    .order_by(tasks.c.next_run)
    .limit(1)
)
COUNT_TASKS = (
    select(tasks.c.name, func.count(), func.sum(type_coerce(tasks.c.is_parked, BigInteger)))
    .where(matches(tasks), is_flag(tasks.c.is_queued))
    .group_by(tasks.c.name)
)
LEASE_TASK = (
    update(tasks)
    .where(HOLDS_LEASE, DUE)
    .values(
        leased_until=parameter(tasks.c.next_run, "until"),
        fencing_token=tasks.c.fencing_token + 1,
        attempts=tasks.c.attempts + case((tasks.c.leased_until.is_(None), 0), else_=1),
    )
)
REPLACED_NAMES = tuple(name for name in TASK.stored_names if name not in ("agent_id", "id", "fencing_token"))
REPLACE_TASK = (
    update(tasks).where(HOLDS_LEASE).values({name: parameter(tasks.c[name], name) for name in REPLACED_NAMES})
)
DELETE_HELD_TASK = delete(tasks).where(HOLDS_LEASE)
DELETE_TASK = delete(tasks).where(matches(tasks, "id"))


def _find_due(
    agent: int,
    names: Collection[str],
    now: datetime,
    limit: int,
    excluded_room_ids: Collection[UUID],
    connection: Connection,
) -> list[Task]:
    values: dict[str, Any] = {"agent": agent, "names": sorted(names), "now": now, "limit": limit}
    if not excluded_room_ids:
        return list(TASK.read_all(connection.execute(FIND_DUE, values)))
    values["items"] = list(excluded_room_ids)[:MAX_EXCLUDED_ROOMS]
    return list(TASK.read_all(connection.execute(FIND_DUE_ELSEWHERE, values)))


def _claim_tasks(
    agent: int, leases: Mapping[str, timedelta], now: datetime, limit: int, connection: Connection
) -> list[Task]:
    return _lease_tasks(agent, _find_due(agent, leases, now, limit, (), connection), leases, now, connection)


def _lease_tasks(
    agent: int, due: Sequence[Task], leases: Mapping[str, timedelta], now: datetime, connection: Connection
) -> list[Task]:
    """Lease tasks that were found before, except those that were changed since."""
    leased = []
    for task in due:
        until = now + leases[task.name]
        if connection.execute(LEASE_TASK, {**_held_key(agent, task), "now": now, "until": until}).rowcount == 1:
            leased.append(task.lease(until))
    return leased


def _held_key(agent: int, task: Task) -> dict[str, Any]:
    return {"agent": agent, "id_": task.id, "held_token": task.fencing_token}


def _columns_of(task: Task) -> dict[str, Any]:
    """Return the values of the columns of a task that are no fields of it."""
    return {"is_queued": TaskTag.QUEUE in task.tags}


def _complete_task(agent: int, task: Task, replacement: Task | None, connection: Connection) -> bool:
    if replacement is None:
        return connection.execute(DELETE_HELD_TASK, _held_key(agent, task)).rowcount == 1
    values = TASK.values(replace(replacement, leased_until=None), agent, _columns_of(replacement))
    values = {name: values[name] for name in REPLACED_NAMES}
    return connection.execute(REPLACE_TASK, {**_held_key(agent, task), **values}).rowcount == 1


class SqlTasks(SqlStorePart):
    """Stores tasks; see `TaskStore`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._listeners: list[Callable[[], None]] = []
        self._empty_rooms: set[UUID] = set()  # rooms without tasks: every message asks

    async def save_task(self, task: Task) -> None:
        row = TASK.values(task, self._agent, _columns_of(task))
        try:
            await self._database.write(lambda db: UPSERT_TASK.execute_all(db, [row]))
        finally:
            self._empty_rooms = set()
        for listener in self._listeners:
            listener()

    def watch(self, on_saved: Callable[[], None]) -> None:
        self._listeners.append(on_saved)

    async def next_due(self, names: Collection[str]) -> datetime | None:
        if not names:
            return None
        rows = await self._read(NEXT_DUE, names=sorted(names))
        return rows[0][0] if rows else None

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        counts = {}
        for name, count, parked in await self._read(COUNT_TASKS):
            counts.update({(name, False): int(count - parked), (name, True): int(parked)})
        return {kind: count for kind, count in counts.items() if count}

    async def task(self, task_id: UUID) -> Task | None:
        rows = await self._read(FIND_TASK, id_=task_id)
        return TASK.read(rows[0]) if rows else None

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        if room_id in self._empty_rooms:
            return []
        if name is not None:
            rows = await self._read(TASKS_BY_NAME, name_=name)
        elif room_id is not None:
            rows = await self._find_in_room(room_id)
        else:
            rows = await self._read(ALL_TASKS)
        return [
            task
            for task in TASK.read_all(rows)
            if room_id in (None, task.room_id) and entity_id in (None, task.entity_id) and task.tags.issuperset(tags)
        ]

    async def _find_in_room(self, room_id: UUID) -> Sequence[Row]:
        empty_rooms = self._empty_rooms
        rows = await self._read(TASKS_IN_ROOM, room_id_=room_id)
        if not rows and self._database.is_sole_writer and len(empty_rooms) < MAX_EMPTY_ROOMS:
            empty_rooms.add(room_id)  # without effect if a task was saved meanwhile: that replaces the set
        return rows

    async def tasks_after(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        start, start_id = after or START
        return list(TASK.read_all(await self._read(TASKS_AFTER, after=start, after_id=start_id, limit=limit)))

    async def claim_tasks(
        self, leases: Mapping[str, timedelta], now: datetime, limit: int = 10, excluded_room_ids: Collection[UUID] = ()
    ) -> list[Task]:
        """Read before writing: the scheduler asks often, and mostly nothing is due.

        Skipping many tasks of excluded rooms takes a while; no writer waits for it.
        """
        if not leases:
            return []
        count = limit if excluded_room_ids else 1
        due = await self._database.read(partial(_find_due, self._agent, leases, now, count, excluded_room_ids))
        if not due:
            return []
        if excluded_room_ids:
            return await self._database.write(partial(_lease_tasks, self._agent, due, leases, now))
        return await self._database.write(partial(_claim_tasks, self._agent, leases, now, limit))

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        try:
            return await self._database.write(partial(_complete_task, self._agent, task, replacement))
        finally:
            self._empty_rooms = set()

    async def delete_task(self, task_id: UUID) -> bool:
        key = {"agent": self._agent, "id_": task_id}
        return await self._database.write(lambda db: db.execute(DELETE_TASK, key).rowcount == 1)
