"""Scheduled tasks and their leases."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from uuid import UUID

from sqlalchemy import Connection, and_, bindparam, case, delete, func, or_, select, tuple_, update

from bot import Task, TaskTag
from plugins.sql.core.base import Access, AgentRow, SqlStorePart
from plugins.sql.core.inserts import upsert
from plugins.sql.core.schema import tasks
from plugins.sql.core.statements import (
    Columns,
    ListStatement,
    Row,
    Statement,
    column_names,
    flag_equals,
    limit_parameter,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import (
    datetime_of,
    datetime_or_none,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)

MAX_EXCLUDED_ROOMS = 1024
MIN_TIME = -(2**62)

MAX_EMPTY_ROOMS = 10_000
TASK_NAMES = column_names(tasks)
OF_AGENT = matches(tasks, "agent_id")
HAS_FENCE = matches(tasks, "agent_id", "id", "fence")
ELIGIBLE = and_(OF_AGENT, flag_equals(tasks.c.is_queued), flag_equals(tasks.c.is_parked, is_set=False))
DUE = and_(
    ELIGIBLE,
    tasks.c.next_run <= typed_parameter(tasks.c.next_run, "now"),
    or_(tasks.c.leased_until.is_(None), tasks.c.leased_until <= typed_parameter(tasks.c.next_run, "now")),
)


def _read_task(row: Row) -> Task:
    task_id, name, next_run, description, room_id, world_id, entity_id, tags, metadata, *rest = row
    attempts, leased_until, fence, is_parked, last_error = rest
    return Task(
        id=id_of(task_id),
        name=name,
        next_run=datetime_of(next_run),
        description=description,
        room_id=id_or_none(room_id),
        world_id=id_or_none(world_id),
        entity_id=id_or_none(entity_id),
        tags=frozenset(loads(tags)),
        metadata=loads(metadata),
        attempts=attempts,
        leased_until=datetime_or_none(leased_until),
        fencing_token=fence,
        is_parked=bool(is_parked),
        last_error=last_error,
    )


TASK = Columns(tasks, TASK_NAMES[1:-1], _read_task)
UPSERT_TASK = upsert(tasks, ("agent_id", "id"), TASK_NAMES, unchanged=("leased_until", "fence"))
FIND_TASK = Statement(lambda _: select(*TASK).where(OF_AGENT, matches(tasks, "id")))
ALL_TASKS = Statement(lambda _: select(*TASK).where(OF_AGENT).order_by(tasks.c.position))
TASKS_BY_NAME = Statement(lambda _: select(*TASK).where(OF_AGENT, matches(tasks, "name")).order_by(tasks.c.position))
TASKS_IN_ROOM = Statement(lambda _: select(*TASK).where(OF_AGENT, matches(tasks, "room_id")).order_by(tasks.c.position))
TASKS_AFTER = Statement(
    lambda _: (
        select(*TASK)
        .where(
            OF_AGENT,
            tuple_(tasks.c.next_run, tasks.c.id)
            > tuple_(typed_parameter(tasks.c.next_run, "after"), typed_parameter(tasks.c.id, "after_id")),
        )
        .order_by(tasks.c.next_run, tasks.c.id)
        .limit(limit_parameter())
    )
)
FIND_DUE = ListStatement(
    lambda names: (
        select(*TASK)
        .where(DUE, tasks.c.name.in_(names))
        .order_by(tasks.c.next_run)
        .limit(limit_parameter())
        .with_for_update(skip_locked=True)  # for PostgreSQL; SQLite has one writer
    )
)


@cache
def _find_due_elsewhere(count: int) -> ListStatement:
    """Return the statement that finds due tasks of `count` names outside some rooms."""
    names = [f"name_{number}" for number in range(count)]
    elsewhere = tasks.c.room_id.not_in
    return ListStatement(
        lambda rooms: (
            select(*TASK)
            .where(DUE, tasks.c.name.in_(list(map(bindparam, names))))
            .where(or_(tasks.c.room_id.is_(None), elsewhere(rooms)))
            .order_by(tasks.c.next_run)
            .limit(limit_parameter())
            .with_for_update(skip_locked=True)
        ),
        max_items=MAX_EXCLUDED_ROOMS,
    )


NEXT_DUE = ListStatement(
    lambda names: (
        select(tasks.c.next_run)
        .where(ELIGIBLE, tasks.c.leased_until.is_(None), tasks.c.name.in_(names))
        .order_by(tasks.c.next_run)
        .limit(1)
    )
)
COUNT_TASKS = Statement(
    lambda _: (
        select(tasks.c.name, func.count(), func.sum(tasks.c.is_parked))
        .where(OF_AGENT, flag_equals(tasks.c.is_queued))
        .group_by(tasks.c.name)
    )
)
LEASE_TASK = Statement(
    lambda _: (
        update(tasks)
        .where(HAS_FENCE, DUE)
        .values(
            leased_until=typed_parameter(tasks.c.next_run, "until"),
            fence=tasks.c.fence + 1,
            attempts=tasks.c.attempts + case((tasks.c.leased_until.is_(None), 0), else_=1),
        )
    )
)
REPLACED_NAMES = tuple(name for name in TASK_NAMES if name not in ("agent_id", "id", "fence"))
REPLACE_TASK = Statement(
    lambda _: (
        update(tasks).where(HAS_FENCE).values({name: typed_parameter(tasks.c[name], name) for name in REPLACED_NAMES})
    )
)
DELETE_HELD_TASK = Statement(lambda _: delete(tasks).where(HAS_FENCE))
DELETE_TASK = Statement(lambda _: delete(tasks).where(OF_AGENT, matches(tasks, "id")))


def _task_values(agent: int, task: Task) -> Row:
    return (
        agent,
        task.id.bytes,
        storable_text(task.name),
        microseconds_of(task.next_run),
        storable_text(task.description),
        id_bytes(task.room_id),
        id_bytes(task.world_id),
        id_bytes(task.entity_id),
        dumps(sorted(task.tags)),
        dumps(task.metadata),
        task.attempts,
        microseconds_or_none(task.leased_until),
        task.fencing_token,
        int(task.is_parked),
        storable_text(task.last_error),
        int(TaskTag.QUEUE in task.tags),
    )


def _find_due(
    agent: int,
    names: Collection[str],
    now: int,
    limit: int,
    excluded_room_ids: Collection[UUID],
    connection: Connection,
) -> list[Task]:
    if not excluded_room_ids:
        rows = FIND_DUE.rows(connection, agent, now, limit, ids=sorted(names))
    else:
        rooms = [room_id.bytes for room_id in excluded_room_ids][:MAX_EXCLUDED_ROOMS]
        rows = _find_due_elsewhere(len(names)).rows(connection, agent, now, *sorted(names), limit, ids=rooms)
    return list(TASK.read_all(rows))


def _claim_tasks(
    agent: int, leases: Mapping[str, timedelta], now: datetime, limit: int, connection: Connection
) -> list[Task]:
    due = _find_due(agent, leases, microseconds_of(now), limit, (), connection)
    leased = [task.lease(now + leases[task.name]) for task in due]
    LEASE_TASK.run_many(connection, [_lease_values(agent, *pair, now) for pair in zip(due, leased, strict=True)])
    return leased


def _lease_tasks(
    agent: int, due: Sequence[Task], leases: Mapping[str, timedelta], now: datetime, connection: Connection
) -> list[Task]:
    """Lease tasks that were found before, except those that were changed since."""
    pairs = [(task, task.lease(now + leases[task.name])) for task in due]
    return [
        leased for task, leased in pairs if LEASE_TASK.run(connection, *_lease_values(agent, task, leased, now)) == 1
    ]


def _lease_values(agent: int, due: Task, leased: Task, now: datetime) -> Row:
    lease_end = microseconds_or_none(leased.leased_until)
    return (lease_end, agent, due.id.bytes, due.fencing_token, microseconds_of(now))


def _complete_task(agent: int, task: Task, replacement: Task | None, connection: Connection) -> bool:
    key = (agent, task.id.bytes, task.fencing_token)
    if replacement is None:
        return DELETE_HELD_TASK.run(connection, *key) == 1
    values = dict(zip(TASK_NAMES, _task_values(agent, replace(replacement, leased_until=None)), strict=True))
    return REPLACE_TASK.run(connection, *(values[name] for name in REPLACED_NAMES), *key) == 1


class SqlTasks(SqlStorePart):
    """Stores tasks; see `TaskStore`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._listeners: list[Callable[[], None]] = []
        self._empty_rooms: set[UUID] = set()  # rooms without tasks: every message asks

    async def save_task(self, task: Task) -> None:
        values = _task_values(self._agent, task)
        try:
            await self._database.write(lambda db: UPSERT_TASK.run(db, *values))
        finally:
            self._empty_rooms = set()
        for listener in self._listeners:
            listener()

    def watch(self, on_saved: Callable[[], None]) -> None:
        self._listeners.append(on_saved)

    async def next_due(self, names: Collection[str]) -> datetime | None:
        if not names:
            return None
        rows = await self._database.read(lambda db: NEXT_DUE.rows(db, self._agent, ids=sorted(names)))
        return datetime_of(rows[0][0]) if rows else None

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        rows = await self._database.read(lambda db: COUNT_TASKS.rows(db, self._agent))
        counts = {}
        for name, count, parked in rows:
            counts.update({(name, False): count - parked, (name, True): parked})
        return {kind: count for kind, count in counts.items() if count}

    async def task(self, task_id: UUID) -> Task | None:
        row = await self._database.read(lambda db: FIND_TASK.first(db, self._agent, task_id.bytes))
        return TASK.read(row) if row else None

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
            rows = await self._database.read(lambda db: TASKS_BY_NAME.rows(db, self._agent, name))
        elif room_id is not None:
            rows = await self._find_in_room(room_id)
        else:
            rows = await self._database.read(lambda db: ALL_TASKS.rows(db, self._agent))
        return [
            task
            for task in TASK.read_all(rows)
            if room_id in (None, task.room_id) and entity_id in (None, task.entity_id) and task.tags.issuperset(tags)
        ]

    async def _find_in_room(self, room_id: UUID) -> Sequence[Row]:
        empty_rooms = self._empty_rooms
        rows = await self._database.read(lambda db: TASKS_IN_ROOM.rows(db, self._agent, room_id.bytes))
        if not rows and self._database.is_sole_writer and len(empty_rooms) < MAX_EMPTY_ROOMS:
            empty_rooms.add(room_id)  # without effect if a task was saved meanwhile: that replaces the set
        return rows

    async def tasks_after(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        start = (MIN_TIME, b"") if after is None else (microseconds_of(after[0]), after[1].bytes)
        rows = await self._database.read(lambda db: TASKS_AFTER.rows(db, self._agent, *start, limit))
        return list(TASK.read_all(rows))

    async def claim_tasks(
        self, leases: Mapping[str, timedelta], now: datetime, limit: int = 10, excluded_room_ids: Collection[UUID] = ()
    ) -> list[Task]:
        """Read before writing: the scheduler asks often, and mostly nothing is due.

        Skipping many tasks of excluded rooms takes a while; no writer waits for it.
        """
        if not leases:
            return []
        count = limit if excluded_room_ids else 1
        due = await self._database.read(
            partial(_find_due, self._agent, leases, microseconds_of(now), count, excluded_room_ids)
        )
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
        return await self._database.write(lambda db: DELETE_TASK.run(db, self._agent, task_id.bytes) == 1)
