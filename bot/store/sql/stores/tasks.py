"""Scheduled tasks and their leases."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Connection

from bot.domain.task import Task, TaskTag
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart, reads, writes
from bot.store.sql.core.mapping import EPOCH, LIMIT, NIL, Row, RowMapping, is_flag, matches, parameter, upsert
from bot.store.sql.core.schema import tasks

MAX_EXCLUDED_ROOMS = 1024
MAX_EMPTY_ROOMS = 10_000
START = (EPOCH.replace(year=1), NIL)  # before every time and id
HOLDS_LEASE = sa.and_(matches(tasks, "id"), tasks.c.fencing_token == sa.bindparam("held_token"))
ELIGIBLE = sa.and_(matches(tasks), is_flag(tasks.c.is_queued), is_flag(tasks.c.is_parked, is_set=False))
NOW = parameter(tasks.c.next_run, "now")
DUE = sa.and_(ELIGIBLE, tasks.c.next_run <= NOW, sa.or_(tasks.c.leased_until.is_(None), tasks.c.leased_until <= NOW))

TASK = RowMapping(tasks, Task, unread=["is_queued"])
UPSERT_TASK = upsert(tasks, ("agent_id", "id"), TASK.stored_names, unchanged=("leased_until", "fencing_token"))
ALL_TASKS = sa.select(*TASK).where(matches(tasks)).order_by(tasks.c.position)
TASKS_BY_NAME = sa.select(*TASK).where(matches(tasks, "name")).order_by(tasks.c.position)
TASKS_IN_ROOM = sa.select(*TASK).where(matches(tasks, "room_id")).order_by(tasks.c.position)
TASKS_AFTER = (
    sa.select(*TASK)
    .where(
        matches(tasks),
        sa.tuple_(tasks.c.next_run, tasks.c.id)
        > sa.tuple_(parameter(tasks.c.next_run, "after"), parameter(tasks.c.id, "after_id")),
    )
    .order_by(tasks.c.next_run, tasks.c.id)
    .limit(LIMIT)
)
HAS_NAME = tasks.c.name.in_(sa.bindparam("names"))
FIND_DUE = (
    sa.select(*TASK)
    .where(DUE, HAS_NAME)
    .order_by(tasks.c.next_run)
    .limit(LIMIT)
    .with_for_update(skip_locked=True)  # for PostgreSQL; SQLite has one writer
)
FIND_DUE_ELSEWHERE = FIND_DUE.where(sa.or_(tasks.c.room_id.is_(None), tasks.c.room_id.not_in(sa.bindparam("items"))))
NEXT_DUE = (
    sa.select(tasks.c.next_run)
    .where(ELIGIBLE, tasks.c.leased_until.is_(None), HAS_NAME)
    .order_by(tasks.c.next_run)
    .limit(1)
)
COUNT_TASKS = (
    sa.select(tasks.c.name, sa.func.count(), sa.func.sum(sa.type_coerce(tasks.c.is_parked, sa.BigInteger)))
    .where(matches(tasks), is_flag(tasks.c.is_queued))
    .group_by(tasks.c.name)
)
LEASE_TASK = (
    sa.update(tasks)
    .where(HOLDS_LEASE, DUE)
    .values(
        leased_until=sa.bindparam("until"),
        fencing_token=tasks.c.fencing_token + 1,
        attempts=tasks.c.attempts + sa.case((tasks.c.leased_until.is_(None), 0), else_=1),
    )
)
REPLACED_NAMES = tuple(name for name in TASK.stored_names if name not in ("agent_id", "id", "fencing_token"))
REPLACE_TASK = sa.update(tasks).where(HOLDS_LEASE).values({name: sa.bindparam(name) for name in REPLACED_NAMES})
DELETE_HELD_TASK = sa.delete(tasks).where(HOLDS_LEASE)
DELETE_TASK = sa.delete(tasks).where(matches(tasks, "id"))


def _held_key(agent: int, task: Task) -> dict[str, Any]:
    return {"agent": agent, "id_": task.id, "held_token": task.fencing_token}


def _columns_of(task: Task) -> dict[str, Any]:
    """Return the values of the columns of a task that are no fields of it."""
    return {"is_queued": TaskTag.QUEUE in task.tags}


class SqlTasks(SqlStorePart):
    """Stores tasks; see `TaskStore`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._listeners: list[Callable[[], None]] = []
        self._empty_rooms: set[UUID] = set()  # rooms without tasks: every message asks

    async def save_task(self, task: Task) -> None:
        row = TASK.values(task, self._agent, _columns_of(task))
        try:
            await self._database.write(lambda db: UPSERT_TASK.execute(db, row))
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

    @reads
    def task(self, connection: Connection, task_id: UUID) -> Task | None:
        return TASK.get(connection, self._agent, task_id)

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
        values = {"names": sorted(leases), "now": now, "limit": limit if excluded_room_ids else 1}
        if excluded_room_ids:
            rows = await self._read(FIND_DUE_ELSEWHERE, **values, items=list(excluded_room_ids)[:MAX_EXCLUDED_ROOMS])
        else:
            rows = await self._read(FIND_DUE, **values)
        if not rows:
            return []
        return await self._lease(leases, {**values, "limit": limit}, rows if excluded_room_ids else None)

    @writes
    def _lease(
        self,
        connection: Connection,
        leases: Mapping[str, timedelta],
        values: dict[str, Any],
        rows: Sequence[Row] | None,
    ) -> list[Task]:
        """Lease due tasks, or those that were found before, except those that were changed since."""
        if rows is None:
            rows = connection.execute(FIND_DUE, {"agent": self._agent, **values}).all()
        leased = []
        for task in TASK.read_all(rows):
            until = values["now"] + leases[task.name]
            lease = {**_held_key(self._agent, task), "now": values["now"], "until": until}
            if connection.execute(LEASE_TASK, lease).rowcount == 1:
                leased.append(task.lease(until))
        return leased

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        try:
            return await self._complete(task, replacement)
        finally:
            self._empty_rooms = set()

    @writes
    def _complete(self, connection: Connection, task: Task, replacement: Task | None) -> bool:
        if replacement is None:
            return connection.execute(DELETE_HELD_TASK, _held_key(self._agent, task)).rowcount == 1
        values = TASK.values(replace(replacement, leased_until=None), self._agent, _columns_of(replacement))
        values = {name: values[name] for name in REPLACED_NAMES}
        return connection.execute(REPLACE_TASK, {**_held_key(self._agent, task), **values}).rowcount == 1

    @writes
    def delete_task(self, connection: Connection, task_id: UUID) -> bool:
        return connection.execute(DELETE_TASK, {"agent": self._agent, "id_": task_id}).rowcount == 1
