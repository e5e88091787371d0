"""Messages by time and platform, and what is open; see `ActivityStore`.

Rows are found by their position, which is in the order of arrival: so reading a span of time needs no index of
its own, which would cost time with every message. Grouping sorts no more than the rows of that span.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, case, func, literal_column, select, text, type_coerce

from bot import Outcome
from bot.platform import DROPPED_CAUSE, DeliveryState
from bot.store import ActivityBucket, Backlog, OpenItems, PlatformHour, TaskBacklog
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.mapping import MICROSECOND, Row, is_flag, matches, microseconds_of, parameter, text_literal
from plugins.sql.core.schema import IS_PARKED, UNFINISHED, deliveries, receipts, tasks

MAX_SENT_PARTS = 500  # of the latest parts, in which the last sent ones are looked for
OF_AGENT = matches(receipts)
SPAN = (
    OF_AGENT,
    receipts.c.position >= parameter(receipts.c.position, "first"),
    receipts.c.position < parameter(receipts.c.position, "end"),
)
OPEN_OUTCOMES = (Outcome.RECEIVED, Outcome.CLAIMED)
RECEIVED, CLOSED = (type_coerce(receipts.c[name], BigInteger) for name in ("received_at", "closed_at"))

FIRST_POSITION = select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position).limit(1)
LAST_POSITION = select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position.desc()).limit(1)
NEXT_RECEIPT = (
    select(receipts.c.position, receipts.c.received_at)
    .where(OF_AGENT, receipts.c.position >= parameter(receipts.c.position, "first"))
    .order_by(receipts.c.position)
    .limit(1)
)


def _number() -> Any:
    """Return the number of the span in which a receipt's event came in."""
    offset = RECEIVED - bindparam("start", type_=BigInteger())
    return (offset // bindparam("step", type_=BigInteger())).label("number")


def _count_outcomes(*conditions: Any) -> Select[Any]:
    cause = case(
        (receipts.c.outcome == text_literal(Outcome.FAILED), receipts.c.rule), else_=literal_column("''")
    ).label("cause")
    number = _number()
    counted = select(number, receipts.c.outcome, cause).where(*SPAN, *conditions).subquery()
    columns = (counted.c.number, counted.c.outcome, counted.c.cause)
    return select(*columns, func.count()).group_by(*columns)


def _find_percentiles(*conditions: Any) -> Select[Any]:
    took, number = (CLOSED - RECEIVED).label("took"), _number()
    answered = receipts.c.outcome == text_literal(Outcome.ANSWERED)
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


OF_PLATFORM = receipts.c.platform == parameter(receipts.c.platform, "platform")
COUNT_OUTCOMES = {"": _count_outcomes(), "platform": _count_outcomes(OF_PLATFORM)}
FIND_PERCENTILES = {"": _find_percentiles(), "platform": _find_percentiles(OF_PLATFORM)}


def _count_hours() -> Select[Any]:
    counted = select(_number(), receipts.c.platform, receipts.c.received_at).where(*SPAN).subquery()
    columns = (counted.c.number, counted.c.platform)
    return select(*columns, func.count(), func.max(counted.c.received_at)).group_by(*columns)


def _find_last_sent() -> Select[Any]:
    names = ("platform", "state", "first_attempt_at", "created_at")
    latest = (
        select(*(deliveries.c[name] for name in names))
        .where(matches(deliveries))
        .order_by(deliveries.c.position.desc())
        .limit(literal_column(str(MAX_SENT_PARTS)))
        .subquery()
    )
    sent_at = func.coalesce(latest.c.first_attempt_at, latest.c.created_at)
    sent = latest.c.state == text_literal(DeliveryState.SENT)
    return select(latest.c.platform, func.max(sent_at)).where(sent).group_by(latest.c.platform)


COUNT_HOURS = _count_hours()
LAST_SENT = _find_last_sent()
COUNT_TURNS = select(func.count(), func.min(receipts.c.received_at)).where(OF_AGENT, is_flag(receipts.c.is_open))
COUNT_PARKED = select(func.count(), func.min(receipts.c.received_at)).where(OF_AGENT, text(IS_PARKED))
COUNT_PARTS = (
    select(deliveries.c.state, func.count(), func.min(deliveries.c.created_at))
    .where(matches(deliveries), text(UNFINISHED), deliveries.c.cause != parameter(deliveries.c.cause, "dropped"))
    .group_by(deliveries.c.state)
)
QUEUED_TASKS = (matches(tasks), is_flag(tasks.c.is_queued), is_flag(tasks.c.is_parked, is_set=False))
COUNT_LATE_TASKS = select(func.count(), func.min(tasks.c.next_run)).where(
    *QUEUED_TASKS, tasks.c.next_run < parameter(tasks.c.next_run, "due_before")
)
NEXT_TASK = select(tasks.c.next_run).where(*QUEUED_TASKS).order_by(tasks.c.next_run).limit(1)


class SqlActivity(SqlStorePart):
    """Counts by grouped queries; see `ActivityStore`."""

    async def buckets(self, start: datetime, step: timedelta, count: int, platform: str = "") -> list[ActivityBucket]:
        return await self._database.search(partial(_find_buckets, self._agent, start, step, count, platform))

    async def platform_hours(self, start: datetime, hours: int) -> list[PlatformHour]:
        return await self._database.search(partial(_find_hours, self._agent, start, hours))

    async def last_sent(self) -> Mapping[str, datetime]:
        return {row[0]: row[1] for row in await self._search(LAST_SENT)}

    async def open_items(self) -> OpenItems:
        return await self._database.search(partial(_count_open, self._agent))

    async def task_backlog(self, due_before: datetime) -> TaskBacklog:
        late = await self._search(COUNT_LATE_TASKS, due_before=due_before)
        next_task = await self._search(NEXT_TASK)
        return TaskBacklog(Backlog(*late[0]), next_task[0][0] if next_task else None)


def find_position(agent: int, at: datetime, connection: Connection) -> int:
    """Return the position of the first receipt of an event that came in at a time or later.

    It is found by halving: each look-up reads one row of an index.
    """
    first = connection.execute(FIRST_POSITION, {"agent": agent}).scalar()
    last = connection.execute(LAST_POSITION, {"agent": agent}).scalar()
    if first is None or last is None:
        return 0
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(NEXT_RECEIPT, {"agent": agent, "first": middle}).first()
        if row is None or row[1] >= at:
            high = middle
        else:
            low = row[0] + 1
    return int(low)


def _span_values(agent: int, start: datetime, step: timedelta, count: int, connection: Connection) -> dict[str, Any]:
    """Return the values for statements about a number of steps in time."""
    return {
        "agent": agent,
        "start": microseconds_of(start),
        "step": step // MICROSECOND,
        "first": find_position(agent, start, connection),
        "end": find_position(agent, start + step * count, connection),
    }


def _find_buckets(
    agent: int, start: datetime, step: timedelta, count: int, platform: str, connection: Connection
) -> list[ActivityBucket]:
    values = _span_values(agent, start, step, count, connection) | ({"platform": platform} if platform else {})
    kind = "platform" if platform else ""
    received, answered, unfinished = (defaultdict[int, int](int) for _ in range(3))
    failures = defaultdict[int, dict[str, int]](dict)
    for number, outcome, cause, amount in connection.execute(COUNT_OUTCOMES[kind], values):
        received[number] += amount
        if outcome == Outcome.ANSWERED:
            answered[number] += amount
        elif outcome == Outcome.FAILED:
            failures[number][cause] = amount
        elif outcome in OPEN_OUTCOMES:
            unfinished[number] += amount
    times: dict[int, Row] = {row[0]: row[1:] for row in connection.execute(FIND_PERCENTILES[kind], values)}
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
    rows = connection.execute(COUNT_HOURS, _span_values(agent, start, hour, hours, connection))
    return [
        PlatformHour(platform, start + hour * number, count, last_at)
        for number, platform, count, last_at in rows
        if 0 <= number < hours  # a clock may have stepped back
    ]


def _count_open(agent: int, connection: Connection) -> OpenItems:
    key = {"agent": agent}
    rows = connection.execute(COUNT_PARTS, {**key, "dropped": DROPPED_CAUSE})
    parts = {state: Backlog(*backlog) for state, *backlog in rows}
    pending, attempting, held, failed = (
        parts.get(state, Backlog())
        for state in (DeliveryState.PENDING, DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN, DeliveryState.FAILED)
    )
    return OpenItems(
        turns=Backlog(*connection.execute(COUNT_TURNS, key).one()),
        waiting=pending.plus(attempting),
        held=held,
        failed=failed,
        parked=Backlog(*connection.execute(COUNT_PARKED, key).one()),
    )
