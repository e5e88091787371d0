"""Retention: deletion of expired rows in small steps.

Of memories only the results of actions are deleted, and messages where the settings say for how long. Each step
examines some rows of one agent, deletes finished ones that are too old, and returns where the next step continues:
None once it reaches rows that stay.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from time import perf_counter
from typing import Any, Self
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import TaskSet
from bot.domain.ledger import DeliveryState
from bot.domain.memory import MemoryKind
from bot.domain.proposal import ProposalState
from bot.store.protocols import LogKind
from bot.store.sql.core.base import DEFAULT_RETENTION, Access, AgentRow, RetentionPolicy
from bot.store.sql.core.mapping import NIL, count_changed, first_id, is_flag
from bot.store.sql.core.schema import (
    cache,
    cost_sums,
    costs,
    deliveries,
    logs,
    memories,
    proposals,
    receipts,
    rooms,
    steps,
    unreadable_events,
    worlds,
)
from bot.store.sql.stores.memories import DELETE_MEMORIES
from bot.store.sql.stores.summaries import EMPTY_EXPIRED

logger = logging.getLogger(__name__)

ROWS_PER_STEP = 25  # take about two milliseconds
MESSAGES_PER_STEP = 50
ALWAYS: ColumnElement[bool] = sa.literal(1) == 1
FINISHED_STATES = (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.CANCELLED)

FIRST_DELAY_SECONDS, INTERVAL_SECONDS = 60.0, 3600.0
REST_FACTOR = 20  # seconds of rest for each second of work
MAX_REST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """How many rows a step has deleted, and where the next one continues."""

    count: int
    after: Any = None


# Deletes some of an agent's rows older than `before`; `after` is where the previous step ended.
DeletionStep = Callable[..., StepResult]


def find_last_surplus(connection: Connection, agent: int, keep_count: int) -> int:
    """Return the position of the newest receipt that has that many newer ones; 0 if there is none."""
    newest = sa.select(receipts.c.position).where(receipts.c.agent_id == agent)
    return connection.scalar(newest.order_by(receipts.c.position.desc()).limit(1).offset(keep_count)) or 0


def _delete_in_order(
    created_at: ColumnElement[datetime], *conditions: ColumnElement[bool], is_deletable: ColumnElement[bool] = ALWAYS
) -> DeletionStep:
    """Return the step for a table of which rows are examined in order of insertion, up to the first too young one."""
    table: Any = created_at.table
    position = table.c.position

    def step(connection: Connection, agent: int, before: datetime, after: Any) -> StepResult:
        query = (
            sa.select(position, created_at, is_deletable)
            .where(table.c.agent_id == agent, *conditions, position > (after or 0))
            .order_by(position)
            .limit(ROWS_PER_STEP)
        )
        expired = list(takewhile(lambda row: row[1] < before, connection.execute(query).all()))
        deleted = [row[0] for row in expired if row[2]]
        if deleted:
            connection.execute(sa.delete(table).where(position.in_(deleted)))
        return StepResult(len(deleted), expired[-1][0] if len(expired) == ROWS_PER_STEP else None)

    return step


def _delete_receipts(last_position: int) -> DeletionStep:
    """Return the step for closed receipts up to a position; an event is recognised as long as its receipt exists."""
    is_closed = is_flag(receipts.c.is_open, is_set=False)
    return _delete_in_order(receipts.c.received_at, receipts.c.position <= last_position, is_deletable=is_closed)


# Held deliveries wait for an operator.
DELETE_DELIVERIES = _delete_in_order(deliveries.c.created_at, is_deletable=deliveries.c.state.in_(FINISHED_STATES))
DELETE_PROPOSALS = _delete_in_order(proposals.c.created_at, is_deletable=proposals.c.state != ProposalState.WAITING)
DELETE_LOGS = _delete_in_order(logs.c.at, logs.c.kind != LogKind.AUTHORIZATION)
DELETE_DECISIONS = _delete_in_order(logs.c.at, logs.c.kind == LogKind.AUTHORIZATION)
DELETE_UNREADABLE_EVENTS = _delete_in_order(unreadable_events.c.received_at)


def _delete_steps(connection: Connection, agent: int, before: datetime, after: Any) -> StepResult:
    """Delete the journal of finished turns; a turn's id begins with its time."""
    turn = steps.c.turn_id
    youngest = first_id(before)
    of_agent = steps.c.agent_id == agent
    query = sa.select(turn, steps.c.recorded_at).where(of_agent, turn > (after or NIL), turn < youngest)
    rows = connection.execute(query.order_by(turn, steps.c.key).limit(ROWS_PER_STEP)).all()
    open_turns = sa.select(receipts.c.turn_id).where(
        receipts.c.agent_id == agent, is_flag(receipts.c.is_open), receipts.c.turn_id.is_not(None)
    )
    protected = set(connection.scalars(open_turns))
    protected |= {row[0] for row in rows if row[1] is not None and row[1] >= before}
    deleted = list({row[0] for row in rows} - protected)
    count = connection.execute(sa.delete(steps).where(of_agent, turn.in_(deleted))).rowcount if deleted else 0
    return StepResult(count, rows[-1][0] if len(rows) == ROWS_PER_STEP else None)


def _delete_results(connection: Connection, agent: int, before: datetime, after: Any) -> StepResult:
    """Delete results of actions, some rooms per step."""
    of_agent = sa.and_(rooms.c.agent_id == agent, rooms.c.position > (after or 0))
    query = sa.select(rooms.c.position, rooms.c.id).where(of_agent).order_by(rooms.c.position).limit(ROWS_PER_STEP)
    found = connection.execute(query).all()
    in_rooms = sa.and_(
        memories.c.agent_id == agent,
        memories.c.room_id.in_([row[1] for row in found]),
        memories.c.kind == MemoryKind.ACTION_RESULT.value,
    )
    count = connection.execute(sa.delete(memories).where(in_rooms, memories.c.created_at < before)).rowcount
    return StepResult(count, found[-1][0] if len(found) == ROWS_PER_STEP else None)


def _delete_messages(
    policy: RetentionPolicy, connection: Connection, agent: int, before: datetime, after: Any
) -> StepResult:
    """Delete the messages and reactions of some rooms that are older than the policy allows there.

    With them go sent parts and log entries of the room; messages that are being worked on stay.
    """
    columns = (rooms.c.position, rooms.c.id, rooms.c.platform, rooms.c.external_id, worlds.c.id, worlds.c.external_id)
    is_world = sa.and_(worlds.c.agent_id == rooms.c.agent_id, worlds.c.id == rooms.c.world_id)
    of_agent = sa.and_(rooms.c.agent_id == agent, rooms.c.position > (after or 0))
    query = sa.select(*columns).join(worlds, is_world).where(of_agent).order_by(rooms.c.position).limit(ROWS_PER_STEP)
    found = connection.execute(query).all()
    last_done = after
    for position, room_id, platform, room_name, world_id, world_name in found:
        names = [*_place_names(platform, room_id, room_name), *_place_names(platform, world_id, world_name)]
        lifetime = policy.message_lifetime(names)
        count = 0 if lifetime is None else _delete_in_room(connection, agent, room_id, before - lifetime)
        if count:
            return StepResult(count, last_done or 0)  # the room may have more
        last_done = position
    return StepResult(0, last_done if len(found) == ROWS_PER_STEP else None)


def _place_names(platform: str, place_id: UUID, external_id: str) -> tuple[str, ...]:
    return str(place_id), f"{platform}:{external_id}", external_id


def _delete_in_room(connection: Connection, agent: int, room_id: UUID, before: datetime) -> int:
    """Delete the oldest expired messages, parts and log entries of a room; return how many."""
    count = 0
    in_room = sa.and_(memories.c.agent_id == agent, memories.c.room_id == room_id)
    is_open = sa.and_(receipts.c.agent_id == agent, is_flag(receipts.c.is_open), receipts.c.room_id == room_id)
    open_ids = set(connection.scalars(sa.select(receipts.c.memory_id).where(is_open)))
    for kind in (MemoryKind.MESSAGE, MemoryKind.REACTION):
        query = sa.select(memories.c.id, memories.c.created_at).where(in_room, memories.c.kind == kind.value)
        oldest = connection.execute(query.order_by(memories.c.position).limit(MESSAGES_PER_STEP + len(open_ids))).all()
        expired = takewhile(lambda row: row[1] < before, (row for row in oldest if row[0] not in open_ids))
        count += count_changed(connection, DELETE_MEMORIES, [row[0] for row in expired], agent=agent)
    connection.execute(EMPTY_EXPIRED, {"agent": agent, "room_id_": room_id, "before": before})
    is_finished = deliveries.c.state.in_(FINISHED_STATES)
    parts = sa.and_(deliveries.c.agent_id == agent, deliveries.c.room_id == room_id, deliveries.c.created_at < before)
    count += connection.execute(sa.delete(deliveries).where(parts, is_finished)).rowcount
    entries = sa.and_(logs.c.agent_id == agent, logs.c.room_id == room_id, logs.c.kind != LogKind.AUTHORIZATION)
    return count + connection.execute(sa.delete(logs).where(entries, logs.c.at < before)).rowcount


def _delete_cache(connection: Connection, agent: int, before: datetime, after: Any) -> StepResult:
    """Delete expired values."""
    of_agent = cache.c.agent_id == agent
    query = sa.select(cache.c.key).where(of_agent, cache.c.expires_at <= before).limit(ROWS_PER_STEP)
    deleted = list(connection.scalars(query))
    if deleted:
        connection.execute(sa.delete(cache).where(of_agent, cache.c.key.in_(deleted)))
    return StepResult(len(deleted), "more" if len(deleted) == ROWS_PER_STEP else None)


def _delete_costs(connection: Connection, agent: int, before: datetime, after: Any) -> StepResult:
    """Delete the sums of old days, one day per step."""
    of_agent = costs.c.agent_id == agent
    query = sa.select(costs.c.day).where(of_agent, costs.c.day < before.date())
    day = connection.scalar(query.order_by(costs.c.day).limit(1))
    if day is None:
        return StepResult(0)
    count = connection.execute(sa.delete(costs).where(of_agent, costs.c.day == day)).rowcount
    of_day = sa.and_(cost_sums.c.agent_id == agent, cost_sums.c.day == day)
    connection.execute(sa.delete(cost_sums).where(of_day, cost_sums.c.grouping.in_(("work", "room", "person"))))
    return StepResult(count, day)


class Retention:
    """Deletes expired rows every hour while it is entered, a few rows at a time.

    It rests between steps, so that other work is hardly delayed; new rows reuse the space.
    """

    def __init__(
        self,
        database: Access,
        agent_row: AgentRow,
        policy: RetentionPolicy = DEFAULT_RETENTION,
        *,
        clock: Clock = system_clock,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._agent = agent_row.number
        self._policy = policy
        self._clock = clock
        self._sleep = sleep
        self._tasks = TaskSet("deleting expired rows")

    async def __aenter__(self) -> Self:
        self._tasks.start(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop between two steps."""
        await self._tasks.cancel()

    async def run_once(self) -> int:
        """Delete all expired rows, resting in between; return how many there were."""
        last_position = await self._database.search(
            partial(find_last_surplus, agent=self._agent, keep_count=self._policy.receipt_rows)
        )
        return sum([await self._delete_expired(step, age) for step, age in self._steps(last_position)])

    async def _run(self) -> None:
        await self._sleep(FIRST_DELAY_SECONDS)
        while True:
            try:
                count = await self.run_once()
                logger.debug("deleted %d expired rows", count)
            except Exception:  # the file's or server's monitor reports it; retried in an hour
                logger.debug("expired rows could not be deleted", exc_info=True)
            await self._sleep(INTERVAL_SECONDS)

    def _steps(self, last_position: int) -> Iterator[tuple[DeletionStep, timedelta]]:
        policy = self._policy
        yield _delete_receipts(last_position), policy.receipts
        yield DELETE_DELIVERIES, policy.deliveries
        yield DELETE_PROPOSALS, policy.deliveries
        yield _delete_steps, policy.steps
        yield _delete_results, policy.action_results
        yield DELETE_LOGS, policy.logs
        yield DELETE_UNREADABLE_EVENTS, policy.logs
        yield DELETE_DECISIONS, policy.decisions
        yield _delete_costs, policy.costs
        yield _delete_cache, timedelta()
        if policy.messages is not None or policy.places:
            yield partial(_delete_messages, policy), timedelta()

    async def _delete_expired(self, step: DeletionStep, age: timedelta) -> int:
        before, after, count = self._clock() - age, None, 0
        while True:
            started = perf_counter()
            work = partial(step, agent=self._agent, before=before, after=after)
            result = await self._database.write(work)
            count += result.count
            after = result.after
            if after is None:
                return count
            await self._sleep(min(REST_FACTOR * (perf_counter() - started), MAX_REST_SECONDS))
