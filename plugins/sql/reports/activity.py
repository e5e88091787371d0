"""Messages by time and platform, and what is open; see `ActivityStore`.

Rows are found by their position, which is in the order of arrival: so reading a span of time needs no index of
its own, which would cost time with every message. Grouping sorts no more than the rows of that span.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, case, func, literal_column, select, text

from bot import Outcome
from bot.platform import DROPPED_CAUSE, DeliveryState
from bot.store import ActivityBucket, Backlog, OpenItems, PlatformHour, TaskBacklog
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.schema import IS_PARKED, UNFINISHED, deliveries, receipts, tasks
from plugins.sql.core.statements import Row, Statement, equals, flag_equals, matches, typed_parameter
from plugins.sql.core.values import datetime_of, datetime_or_none, microseconds_of, storable_text

MAX_SENT_PARTS = 500  # of the latest parts, in which the last sent ones are looked for
MICROSECOND = timedelta(microseconds=1)
OF_AGENT = matches(receipts, "agent_id")
SPAN = (
    OF_AGENT,
    receipts.c.position >= typed_parameter(receipts.c.position, "first"),
    receipts.c.position < typed_parameter(receipts.c.position, "end"),
)
OPEN_OUTCOMES = (Outcome.RECEIVED, Outcome.CLAIMED)

FIRST_POSITION = Statement(lambda _: select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position).limit(1))
LAST_POSITION = Statement(
    lambda _: select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position.desc()).limit(1)
)
NEXT_RECEIPT = Statement(
    lambda _: (
        select(receipts.c.position, receipts.c.received_at)
        .where(OF_AGENT, receipts.c.position >= typed_parameter(receipts.c.position, "first"))
        .order_by(receipts.c.position)
        .limit(1)
    )
)


def _number() -> Any:
    """Return the number of the span in which a receipt's event came in."""
    offset = receipts.c.received_at - bindparam("start", type_=BigInteger())
    return (offset // bindparam("step", type_=BigInteger())).label("number")


def _count_outcomes(*conditions: Any) -> Select[Any]:
    failed: Any = literal_column(f"'{Outcome.FAILED}'")
    cause = case((receipts.c.outcome == failed, receipts.c.rule), else_=literal_column("''")).label("cause")
    number = _number()
    counted = select(number, receipts.c.outcome, cause).where(*SPAN, *conditions).subquery()
    columns = (counted.c.number, counted.c.outcome, counted.c.cause)
    return select(*columns, func.count()).group_by(*columns)


def _find_percentiles(*conditions: Any) -> Select[Any]:
    took, number = (receipts.c.closed_at - receipts.c.received_at).label("took"), _number()
    answered = receipts.c.outcome == literal_column(f"'{Outcome.ANSWERED}'")
    times = select(number, took).where(*SPAN, answered, receipts.c.closed_at.is_not(None), *conditions).subquery()
    ranked = select(
        times.c.number,
        times.c.took,
        func.row_number().over(partition_by=times.c.number, order_by=times.c.took).label("rank"),
        func.count().over(partition_by=times.c.number).label("size"),
    ).subquery()

    def percentile(percent: int) -> Any:
        rank = (ranked.c.size * literal_column(str(percent)) + literal_column("99")) // literal_column("100")
        return func.max(case((ranked.c.rank == rank, ranked.c.took)))

    return select(ranked.c.number, percentile(50), percentile(95)).group_by(ranked.c.number)


OF_PLATFORM = equals(receipts.c.platform, "platform")
COUNT_OUTCOMES: dict[tuple[str, ...], Statement] = {
    (): Statement(lambda _: _count_outcomes()),
    ("platform",): Statement(lambda _: _count_outcomes(OF_PLATFORM)),
}
FIND_PERCENTILES: dict[tuple[str, ...], Statement] = {
    (): Statement(lambda _: _find_percentiles()),
    ("platform",): Statement(lambda _: _find_percentiles(OF_PLATFORM)),
}


def _count_hours() -> Select[Any]:
    counted = select(_number(), receipts.c.platform, receipts.c.received_at).where(*SPAN).subquery()
    columns = (counted.c.number, counted.c.platform)
    return select(*columns, func.count(), func.max(counted.c.received_at)).group_by(*columns)


def _find_last_sent() -> Select[Any]:
    names = ("platform", "state", "first_attempt_at", "created_at")
    latest = (
        select(*(deliveries.c[name] for name in names))
        .where(matches(deliveries, "agent_id"))
        .order_by(deliveries.c.position.desc())
        .limit(literal_column(str(MAX_SENT_PARTS)))
        .subquery()
    )
    sent_at = func.coalesce(latest.c.first_attempt_at, latest.c.created_at)
    sent = latest.c.state == literal_column(f"'{DeliveryState.SENT}'")
    return select(latest.c.platform, func.max(sent_at)).where(sent).group_by(latest.c.platform)


COUNT_HOURS = Statement(lambda _: _count_hours())
LAST_SENT = Statement(lambda _: _find_last_sent())
COUNT_TURNS = Statement(
    lambda _: select(func.count(), func.min(receipts.c.received_at)).where(OF_AGENT, flag_equals(receipts.c.is_open))
)
COUNT_PARKED = Statement(
    lambda _: select(func.count(), func.min(receipts.c.received_at)).where(OF_AGENT, text(IS_PARKED))
)
COUNT_PARTS = Statement(
    lambda _: (
        select(deliveries.c.state, func.count(), func.min(deliveries.c.created_at))
        .where(
            matches(deliveries, "agent_id"),
            text(UNFINISHED),
            deliveries.c.cause != typed_parameter(deliveries.c.cause, "dropped"),
        )
        .group_by(deliveries.c.state)
    )
)
QUEUED_TASKS = (
    matches(tasks, "agent_id"),
    flag_equals(tasks.c.is_queued),
    flag_equals(tasks.c.is_parked, is_set=False),
)
COUNT_LATE_TASKS = Statement(
    lambda _: select(func.count(), func.min(tasks.c.next_run)).where(
        *QUEUED_TASKS, tasks.c.next_run < typed_parameter(tasks.c.next_run, "due_before")
    )
)
NEXT_TASK = Statement(lambda _: select(tasks.c.next_run).where(*QUEUED_TASKS).order_by(tasks.c.next_run).limit(1))


class SqlActivity(SqlStorePart):
    """Counts by grouped queries; see `ActivityStore`."""

    async def buckets(self, start: datetime, step: timedelta, count: int, platform: str = "") -> list[ActivityBucket]:
        return await self._database.search(
            partial(_find_buckets, self._agent, start, step, count, storable_text(platform))
        )

    async def platform_hours(self, start: datetime, hours: int) -> list[PlatformHour]:
        return await self._database.search(partial(_find_hours, self._agent, start, hours))

    async def last_sent(self) -> Mapping[str, datetime]:
        rows = await self._database.search(lambda db: LAST_SENT.rows(db, self._agent))
        return {platform: datetime_of(at) for platform, at in rows}

    async def open_items(self) -> OpenItems:
        return await self._database.search(partial(_count_open, self._agent))

    async def task_backlog(self, due_before: datetime) -> TaskBacklog:
        return await self._database.search(partial(_count_late_tasks, self._agent, due_before))


def find_position(agent: int, at: int, connection: Connection) -> int:
    """Return the position of the first receipt of an event that came in at a time or later.

    It is found by halving: each look-up reads one row of an index.
    """
    first, last = FIRST_POSITION.first(connection, agent), LAST_POSITION.first(connection, agent)
    if first is None or last is None:
        return 0
    low, high = first[0], last[0] + 1
    while low < high:
        middle = (low + high) // 2
        row = NEXT_RECEIPT.first(connection, agent, middle)
        if row is None or row[1] >= at:
            high = middle
        else:
            low = row[0] + 1
    return int(low)


def _find_span(agent: int, start: datetime, end: datetime, connection: Connection) -> tuple[int, int]:
    """Return the positions of the first receipt in a span of time and of the first one after it."""
    return tuple(find_position(agent, microseconds_of(at), connection) for at in (start, end))  # type: ignore[return-value]  # two


def _find_buckets(
    agent: int, start: datetime, step: timedelta, count: int, platform: str, connection: Connection
) -> list[ActivityBucket]:
    first, end = _find_span(agent, start, start + step * count, connection)
    values: Row = (microseconds_of(start), step // MICROSECOND, agent, first, end)
    kind: tuple[str, ...] = ("platform",) if platform else ()
    values = (*values, platform) if platform else values
    received, answered, unfinished = (defaultdict[int, int](int) for _ in range(3))
    failures = defaultdict[int, dict[str, int]](dict)
    for number, outcome, cause, amount in COUNT_OUTCOMES[kind].rows(connection, *values):
        received[number] += amount
        if outcome == Outcome.ANSWERED:
            answered[number] += amount
        elif outcome == Outcome.FAILED:
            failures[number][cause] = amount
        elif outcome in OPEN_OUTCOMES:
            unfinished[number] += amount
    times = {number: row for number, *row in FIND_PERCENTILES[kind].rows(connection, *values)}
    return [
        ActivityBucket(
            start + step * number,
            received[number],
            answered[number],
            unfinished[number],
            failures[number],
            *(took // 1000 for took in times.get(number, ())),
        )
        for number in range(count)
    ]


def _find_hours(agent: int, start: datetime, hours: int, connection: Connection) -> list[PlatformHour]:
    hour = timedelta(hours=1)
    first, end = _find_span(agent, start, start + hour * hours, connection)
    rows = COUNT_HOURS.rows(connection, microseconds_of(start), hour // MICROSECOND, agent, first, end)
    return [
        PlatformHour(platform, start + hour * number, count, datetime_of(last_at))
        for number, platform, count, last_at in rows
        if 0 <= number < hours  # a clock may have stepped back
    ]


def _count_open(agent: int, connection: Connection) -> OpenItems:
    parts = {state: _backlog(row) for state, *row in COUNT_PARTS.rows(connection, agent, DROPPED_CAUSE)}
    waiting = (parts.get(state, Backlog()) for state in (DeliveryState.PENDING, DeliveryState.ATTEMPTING))
    return OpenItems(
        turns=_backlog(COUNT_TURNS.first(connection, agent) or (0, None)),
        waiting=next(waiting).plus(next(waiting)),
        held=parts.get(DeliveryState.UNKNOWN, Backlog()),
        failed=parts.get(DeliveryState.FAILED, Backlog()),
        parked=_backlog(COUNT_PARKED.first(connection, agent) or (0, None)),
    )


def _count_late_tasks(agent: int, due_before: datetime, connection: Connection) -> TaskBacklog:
    late = COUNT_LATE_TASKS.first(connection, agent, microseconds_of(due_before)) or (0, None)
    next_task = NEXT_TASK.first(connection, agent)
    return TaskBacklog(_backlog(late), None if next_task is None else datetime_of(next_task[0]))


def _backlog(row: Row) -> Backlog:
    return Backlog(row[0], datetime_or_none(row[1]))
