"""Tasks in SQL."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from uuid import UUID

from sqlalchemy import Connection, and_, bindparam, case, delete, func, or_, select, update
from sqlalchemy.sql.expression import Executable

from bot import QUEUE, Task
from plugins.sql.core.base import Access, Book, Owner
from plugins.sql.core.schema import tasks
from plugins.sql.core.statements import (
    Insert,
    Listing,
    Row,
    Statement,
    flag,
    insert_into,
    limit,
    same,
    value,
)
from plugins.sql.core.values import (
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    moment,
    moment_of,
    moment_of_or_none,
    moment_or_none,
    storable_text,
)

MOST_BESIDES = 1024

MOST_VACANT = 10_000
TASK_NAMES = (
    "agent_id",
    "id",
    "name",
    "next_run",
    "description",
    "room_id",
    "world_id",
    "entity_id",
    "tags",
    "metadata",
    "attempts",
    "leased_until",
    "fence",
    "is_parked",
    "last_error",
    "is_queued",
)
TASK = tuple(tasks.c[name] for name in TASK_NAMES[1:-1])
LEASE = ("leased_until", "fence")
OF_AGENT = same(tasks.c.agent_id, "agent")
HELD = and_(OF_AGENT, same(tasks.c.id, "of_id"), same(tasks.c.fence, "of_fence"))
ELIGIBLE = and_(OF_AGENT, flag(tasks.c.is_queued), flag(tasks.c.is_parked, is_set=False))
DUE = and_(
    ELIGIBLE,
    tasks.c.next_run <= value(tasks.c.next_run, "now"),
    or_(tasks.c.leased_until.is_(None), tasks.c.leased_until <= value(tasks.c.next_run, "now")),
)


def _save(insert: Insert) -> Executable:
    statement = insert_into(tasks, TASK_NAMES)(insert)
    kept = ("agent_id", "id", *LEASE)
    changed = {name: statement.excluded[name] for name in TASK_NAMES if name not in kept}
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "id"], set_=changed
    )


SAVE = Statement(_save, *TASK_NAMES)
FIND = Statement(lambda _: select(*TASK).where(OF_AGENT, same(tasks.c.id, "id")), "agent", "id")
ALL = Statement(lambda _: select(*TASK).where(OF_AGENT).order_by(tasks.c.position), "agent")
NAMED = Statement(
    lambda _: select(*TASK).where(OF_AGENT, same(tasks.c.name, "name")).order_by(tasks.c.position),
    "agent",
    "name",
)
IN_ROOM = Statement(
    lambda _: select(*TASK).where(OF_AGENT, same(tasks.c.room_id, "room")).order_by(tasks.c.position),
    "agent",
    "room",
)
FIND_DUE = Listing(
    lambda names: (
        select(*TASK)
        .where(DUE, tasks.c.name.in_(names))
        .order_by(tasks.c.next_run)
        .limit(limit())
        .with_for_update(skip_locked=True)
    ),  # for databases with several writers; SQLite needs none of it
    "agent",
    "now",
    "limit",
)


@cache
def _due_besides(count: int) -> Listing:
    """Find what is due for so many workers, besides some rooms."""
    names = [f"name_{number}" for number in range(count)]
    elsewhere = tasks.c.room_id.not_in
    return Listing(
        lambda rooms: (
            select(*TASK)
            .where(DUE, tasks.c.name.in_(list(map(bindparam, names))))
            .where(or_(tasks.c.room_id.is_(None), elsewhere(rooms)))
            .order_by(tasks.c.next_run)
            .limit(limit())
            .with_for_update(skip_locked=True)
        ),
        "agent",
        "now",
        "limit",
        *names,
        most=MOST_BESIDES,
    )


NEXT_DUE = Listing(
    lambda names: (
        select(tasks.c.next_run)
        .where(ELIGIBLE, tasks.c.leased_until.is_(None), tasks.c.name.in_(names))
        .order_by(tasks.c.next_run)
        .limit(1)
    ),
    "agent",
)
COUNT = Statement(
    lambda _: (
        select(tasks.c.name, func.count(), func.sum(tasks.c.is_parked))
        .where(OF_AGENT, flag(tasks.c.is_queued))
        .group_by(tasks.c.name)
    ),
    "agent",
)
LEASE_TASK = Statement(
    lambda _: (
        update(tasks)
        .where(HELD, DUE)
        .values(
            leased_until=value(tasks.c.next_run, "until"),
            fence=tasks.c.fence + 1,
            attempts=tasks.c.attempts + case((tasks.c.leased_until.is_(None), 0), else_=1),
        )
    ),
    "until",
    "agent",
    "of_id",
    "of_fence",
    "now",
)
REPLACED = tuple(name for name in TASK_NAMES if name not in ("agent_id", "id", "fence"))
REPLACE = Statement(
    lambda _: update(tasks).where(HELD).values({name: value(tasks.c[name], name) for name in REPLACED}),
    *REPLACED,
    "agent",
    "of_id",
    "of_fence",
)
END = Statement(lambda _: delete(tasks).where(HELD), "agent", "of_id", "of_fence")
DELETE = Statement(lambda _: delete(tasks).where(OF_AGENT, same(tasks.c.id, "id")), "agent", "id")


def _values(agent: int, task: Task) -> Row:
    return (
        agent,
        task.id.bytes,
        storable_text(task.name),
        moment(task.next_run),
        storable_text(task.description),
        id_bytes(task.room_id),
        id_bytes(task.world_id),
        id_bytes(task.entity_id),
        dumps(sorted(task.tags)),
        dumps(task.metadata),
        task.attempts,
        moment_or_none(task.leased_until),
        task.fence,
        int(task.is_parked),
        storable_text(task.last_error),
        int(QUEUE in task.tags),
    )


def _task_of(row: Row) -> Task:
    (task_id, name, next_run, description, room_id, world_id, entity_id) = row[:7]
    (tags, metadata, attempts, leased_until, fence, is_parked, last_error) = row[7:]
    return Task(
        id=id_of(task_id),
        name=name,
        next_run=moment_of(next_run),
        description=description,
        room_id=id_or_none(room_id),
        world_id=id_or_none(world_id),
        entity_id=id_or_none(entity_id),
        tags=frozenset(loads(tags)),
        metadata=loads(metadata),
        attempts=attempts,
        leased_until=moment_of_or_none(leased_until),
        fence=fence,
        is_parked=bool(is_parked),
        last_error=last_error,
    )


def _due(
    agent: int,
    names: Collection[str],
    now: int,
    most: int,
    besides: Collection[UUID],
    connection: Connection,
) -> list[Task]:
    if not besides:
        rows = FIND_DUE.rows(connection, agent, now, most, ids=sorted(names))
    else:
        rooms = [room_id.bytes for room_id in besides][:MOST_BESIDES]
        rows = _due_besides(len(names)).rows(connection, agent, now, most, *sorted(names), ids=rooms)
    return [_task_of(row) for row in rows]


def _claim(
    agent: int, names: Collection[str], now: int, until: datetime, most: int, connection: Connection
) -> list[Task]:
    due = _due(agent, names, now, most, (), connection)
    end = moment(until)
    LEASE_TASK.run_many(connection, [(end, agent, task.id.bytes, task.fence, now) for task in due])
    return [task.leased(until) for task in due]


def _lease(
    agent: int, found: Sequence[Task], now: int, until: datetime, connection: Connection
) -> list[Task]:
    """Lease tasks that were found a moment ago, but not what has changed hands since."""
    end = moment(until)
    leased = [
        task for task in found if LEASE_TASK.run(connection, end, agent, task.id.bytes, task.fence, now) == 1
    ]
    return [task.leased(until) for task in leased]


def _complete(agent: int, held: Task, replacement: Task | None, connection: Connection) -> bool:
    key = (agent, held.id.bytes, held.fence)
    if replacement is None:
        return END.run(connection, *key) == 1
    values = dict(zip(TASK_NAMES, _values(agent, replace(replacement, leased_until=None)), strict=True))
    return REPLACE.run(connection, *(values[name] for name in REPLACED), *key) == 1


class SqlTasks(Book):
    """Keeps tasks; see `TaskStore`."""

    def __init__(self, database: Access, owner: Owner) -> None:
        super().__init__(database, owner)
        self._watching: list[Callable[[], None]] = []
        self._vacant: set[UUID] = set()  # rooms for which nothing is kept: every message asks

    async def save_task(self, task: Task) -> None:
        values = _values(self._agent, task)
        try:
            await self._database.write(lambda db: SAVE.run(db, *values))
        finally:
            self._vacant = set()
        for saved in self._watching:
            saved()

    def watch(self, saved: Callable[[], None]) -> None:
        self._watching.append(saved)

    async def next_due(self, names: Collection[str]) -> datetime | None:
        if not names:
            return None
        rows = await self._database.read(lambda db: NEXT_DUE.rows(db, self._agent, ids=sorted(names)))
        return moment_of(rows[0][0]) if rows else None

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        rows = await self._database.read(lambda db: COUNT.rows(db, self._agent))
        counts = {}
        for name, count, parked in rows:
            counts.update({(name, False): count - parked, (name, True): parked})
        return {kind: count for kind, count in counts.items() if count}

    async def task(self, task_id: UUID) -> Task | None:
        row = await self._database.read(lambda db: FIND.first(db, self._agent, task_id.bytes))
        return _task_of(row) if row else None

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        if room_id in self._vacant:
            return []
        if name is not None:
            rows = await self._database.read(lambda db: NAMED.rows(db, self._agent, name))
        elif room_id is not None:
            rows = await self._in_room(room_id)
        else:
            rows = await self._database.read(lambda db: ALL.rows(db, self._agent))
        return [
            task
            for task in map(_task_of, rows)
            if room_id in (None, task.room_id)
            and entity_id in (None, task.entity_id)
            and task.tags.issuperset(tags)
        ]

    async def _in_room(self, room_id: UUID) -> Sequence[Row]:
        vacant = self._vacant
        rows = await self._database.read(lambda db: IN_ROOM.rows(db, self._agent, room_id.bytes))
        if not rows and self._database.is_sole and len(vacant) < MOST_VACANT:
            vacant.add(room_id)  # of no avail where a task has been saved since: another set counts then
        return rows

    async def claim_tasks(
        self,
        names: Collection[str],
        now: datetime,
        until: datetime,
        limit: int = 10,
        besides: Collection[UUID] = (),
    ) -> list[Task]:
        """Look before writing: the scheduler asks again and again, and mostly nothing is due.

        Past many tasks of other rooms the look takes a while, and no writer waits for it.
        """
        if not names:
            return []
        present, count = moment(now), limit if besides else 1
        found = await self._database.read(partial(_due, self._agent, names, present, count, besides))
        if not found:
            return []
        if besides:
            return await self._database.write(partial(_lease, self._agent, found, present, until))
        return await self._database.write(partial(_claim, self._agent, names, present, until, limit))

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        try:
            return await self._database.write(partial(_complete, self._agent, task, replacement))
        finally:
            self._vacant = set()

    async def delete_task(self, task_id: UUID) -> bool:
        return await self._database.write(lambda db: DELETE.run(db, self._agent, task_id.bytes) == 1)
