"""`AgentActivity`: the figures of one agent for operators, most of them from the store."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import TypeAdapter

from bot.concurrency.clock import Clock, every
from bot.concurrency.tasks import TaskSet
from bot.domain.ledger import CareCount, CostDimension, CostEntry, DeliveryKind
from bot.errors import StoreUnavailable
from bot.models.router import ModelStatus
from bot.store.activity import ActivityBucket, ActivityStore, OpenItems, PlatformHour, TaskBacklog, VoteSum
from bot.store.protocols import Store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
COMPARED_DAYS = 7  # for what is usual at an hour
SETTLING_TIME = timedelta(minutes=1)  # after a span of time, until what came in then is stored for certain
TASK_TOLERANCE = timedelta(minutes=1)
MIN_LATE = timedelta(minutes=10)
MIN_EXPECTED = 8  # messages whose absence is no chance: of so many on average, none come once in 3,000 times
MIN_SAMPLES = 2  # days that show what is usual
FIRST_WEEKEND_DAY = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFRESH_SECONDS = 60.0
MAX_SPANS_READ = 60
MONTH_KEY, HOURS_KEY = "activity.month.2:{platform}", "activity.hours.2"  # 2: what their values look like
BUCKETS, HOURS = TypeAdapter(list[ActivityBucket]), TypeAdapter(dict[datetime, list[PlatformHour]])
RecentCosts = Callable[[], Mapping[datetime, float]]


class ActivityRange(StrEnum):
    """A range of time until now, in spans of equal length."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def step(self) -> timedelta:
        """The length of a span."""
        return {"hour": timedelta(minutes=1), "day": timedelta(minutes=10), "month": timedelta(hours=6)}[self.value]

    @property
    def length(self) -> int:
        """The number of spans; the last one has just begun."""
        return {"hour": 60, "day": 144, "month": 120}[self.value]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When a platform last brought a message in seven days, and what is usual at an hour.

    The usual gap is the mean time between two messages at this hour of the day, or at the hour in which the last one
    came in, if that is longer; None where the last seven days do not show it. `fewest` has the fewest messages that
    came in at an hour of the day (UTC) on any of the days before the last message, of working days (False) and of
    weekends (True).
    """

    last_at: datetime | None = None
    usual_gap: timedelta | None = None
    fewest: Mapping[tuple[bool, int], int] = field(default_factory=dict)

    def late_since(self, connected_at: datetime, now: datetime) -> datetime | None:
        """Return since when the next message is late on an account that is connected; None where it is not.

        It is late after ten minutes at least, in which eight messages would have come in even on the quietest day.
        """
        start = at = max(self.last_at or connected_at, connected_at)
        expected = 0.0
        while self.fewest and at < now:
            end = min(_floor(at, HOUR) + HOUR, now)
            rate = self.fewest.get(_hour_of_week(at), 0)
            if expected + rate * ((end - at) / HOUR) >= MIN_EXPECTED:
                late_at = max(at + HOUR * ((MIN_EXPECTED - expected) / rate), start + MIN_LATE)
                return late_at if late_at <= now else None
            expected += rate * ((end - at) / HOUR)
            at = end
        return None


@dataclass(frozen=True, slots=True)
class Spending:
    """What models have cost today (in UTC) by model, in dollars, and the limit; 0 for none.

    `recent` has amounts by time, as `CostMeter.recent_costs` returns them.
    """

    by_model: Mapping[str, CostEntry]
    limit: float
    recent: Mapping[datetime, float]

    @property
    def total(self) -> float:
        """What all models together have cost."""
        return sum(entry.cost for entry in self.by_model.values())


class AgentActivity:
    """Reads figures from the store, and how models have answered from the memory of this process.

    Spans of time that are over and in which nothing is open any more are read from the store once. While it is
    entered, those of the plots and lists that reach back for days are read as they end, a few at a time, and their
    figures are stored: so that no request reads the messages of a month.
    """

    def __init__(
        self,
        store: Store,
        model_statuses: Callable[[], list[ModelStatus]],
        *,
        cost_limit: Callable[[], float],
        recent_costs: RecentCosts,
        clock: Clock,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._store = store
        self.model_statuses = model_statuses
        self._cost_limit = cost_limit
        self._recent_costs = recent_costs
        self._clock = clock
        self.started_at = clock()
        self._refresh_seconds = refresh_seconds
        self._locks = [asyncio.Lock(), asyncio.Lock()]
        self._buckets: dict[tuple[ActivityRange, str], dict[datetime, ActivityBucket]] = {}
        self._hours: dict[datetime, list[PlatformHour]] | None = None
        self._last_sent: dict[str, datetime] = {}
        self._closing = asyncio.Event()
        self._tasks = TaskSet("reading figures", logs_failures=False)

    async def __aenter__(self) -> Self:
        self._tasks.start(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()

    async def _run(self) -> None:
        async for _ in every(self._refresh_seconds, until=self._closing):
            with suppress(StoreUnavailable):  # the writers report the outage
                await self.refresh()

    async def refresh(self) -> None:
        """Read the spans of a month and the hours of a week that are over and not known, and store their figures."""
        async with self._locks[1]:
            before = (await self._known_hours()).keys()
            hours = await self._fill_hours(is_current_wanted=False)
            if hours.keys() != before:
                await self._store.cache.set(HOURS_KEY, HOURS.dump_python(hours, mode="json"))
        for platform in sorted({"", *(item.platform for items in hours.values() for item in items)}):
            async with self._locks[0]:
                known = (await self._known_buckets(ActivityRange.MONTH, platform)).keys()
                finished = await self._fill(ActivityRange.MONTH, platform, is_current_wanted=False)
                if finished.keys() != known:
                    stored = BUCKETS.dump_python(list(finished.values()), mode="json")
                    await self._store.cache.set(MONTH_KEY.format(platform=platform), stored)

    async def open_items(self) -> OpenItems:
        """Count what is open now."""
        return await self._activity.open_items()

    async def care_counts(self, since: date | None = None) -> list[CareCount]:
        """Return how many referrals there were on each day (UTC) from `since` on, by default today, by category."""
        return await self._store.ledger.care_counts(since or self._clock().date())

    async def votes(self, days: int) -> list[VoteSum]:
        """Return how many people liked replies, or did not, on each of the last days (UTC) that has votes."""
        return await self._activity.votes(self._clock().astimezone(UTC).date() - timedelta(days=days - 1))

    async def count_notified(self) -> int:
        """Return how many people were told that an AI writes."""
        return await self._store.ledger.count_disclosed(DeliveryKind.NOTICE)

    async def task_backlog(self) -> TaskBacklog:
        """Count the tasks that are late by more than a minute."""
        return await self._activity.task_backlog(self._clock() - TASK_TOLERANCE)

    async def last_sent(self) -> Mapping[str, datetime]:
        """Return when a part last left to each platform."""
        for platform, at in (await self._activity.last_sent()).items():
            self._last_sent[platform] = max(at, self._last_sent.get(platform, at))
        return self._last_sent

    async def spending(self) -> Spending:
        """Return what was spent today; calls of the last ten seconds may be missing."""
        today = self._clock().astimezone(UTC).date()
        entries = await self._store.costs.sums_between(today, today, [CostDimension.MODEL])
        return Spending({entry.model: entry for entry in entries}, self._cost_limit(), self._recent_costs())

    async def buckets(self, time_range: ActivityRange, platform: str = "") -> list[ActivityBucket]:
        """Return the messages of a range of time until now, of one platform or of all."""
        async with self._locks[0]:
            buckets = await self._fill(time_range, platform, is_current_wanted=True)
        return [buckets[start] for start in sorted(buckets)]

    async def _fill(
        self, time_range: ActivityRange, platform: str, *, is_current_wanted: bool
    ) -> dict[datetime, ActivityBucket]:
        """Return the known spans of a range with those that were read now; of these the finished ones are kept."""
        step, now = time_range.step, self._clock()
        known = await self._known_buckets(time_range, platform)
        starts = _starts(time_range, now)
        wanted = [start for start in starts if is_current_wanted or _is_over(start, step, now)]
        missing = [start for start in wanted if start not in known]
        buckets = {start: known[start] for start in starts if start in known}
        for first, count in _runs(missing, step):
            buckets |= {item.start: item for item in await self._activity.buckets(first, step, count, platform)}
        finished = {start: item for start, item in buckets.items() if not item.open and _is_over(start, step, now)}
        self._buckets[time_range, platform] = finished
        return buckets if is_current_wanted else finished

    async def _known_buckets(self, time_range: ActivityRange, platform: str) -> dict[datetime, ActivityBucket]:
        known = self._buckets.get((time_range, platform))
        if known is None:
            stored = None
            if time_range is ActivityRange.MONTH:
                stored = await self._store.cache.get(MONTH_KEY.format(platform=platform))
            known = {bucket.start: bucket for bucket in BUCKETS.validate_python(stored or ())}
            self._buckets[time_range, platform] = known
        return known

    async def arrivals(self) -> Mapping[str, Arrivals]:
        """Return when each platform last brought a message, and how often it usually does."""
        this_hour = _floor(self._clock(), HOUR)
        async with self._locks[1]:
            all_hours = await self._fill_hours(is_current_wanted=True)
        by_platform: dict[str, dict[datetime, PlatformHour]] = {}
        for hour, items in all_hours.items():
            for item in items:
                by_platform.setdefault(item.platform, {})[hour] = item
        return {
            platform: _build_arrivals(platform_hours, this_hour) for platform, platform_hours in by_platform.items()
        }

    async def _fill_hours(self, *, is_current_wanted: bool) -> dict[datetime, list[PlatformHour]]:
        """Return the known hours of a week with those that were read now; those that are over are kept."""
        now = self._clock()
        first_hour = _floor(now, HOUR) - COMPARED_DAYS * DAY
        starts = [first_hour + HOUR * number for number in range(COMPARED_DAYS * 24 + 1)]
        known = await self._known_hours()
        wanted = [hour for hour in starts if is_current_wanted or _is_over(hour, HOUR, now)]
        missing = [hour for hour in wanted if hour not in known]
        hours = {hour: known.get(hour, []) for hour in wanted}
        for first, count in _runs(missing, HOUR):
            for item in await self._activity.platform_hours(first, count):
                hours[item.start].append(item)
        finished = {hour: items for hour, items in hours.items() if _is_over(hour, HOUR, now)}
        self._hours = finished
        return hours if is_current_wanted else finished

    async def _known_hours(self) -> dict[datetime, list[PlatformHour]]:
        if self._hours is None:
            self._hours = HOURS.validate_python(await self._store.cache.get(HOURS_KEY) or {})
        return self._hours

    @property
    def _activity(self) -> ActivityStore:
        return self._store.activity


def _starts(time_range: ActivityRange, now: datetime) -> list[datetime]:
    first = _floor(now, time_range.step) - time_range.step * (time_range.length - 1)
    return [first + time_range.step * number for number in range(time_range.length)]


def _is_over(start: datetime, step: timedelta, now: datetime) -> bool:
    return start + step + SETTLING_TIME <= now


def _runs(starts: Sequence[datetime], step: timedelta) -> Iterator[tuple[datetime, int]]:
    """Yield the first of consecutive spans, and how many they are, in parts that are quickly read."""
    first = count = 0
    for number, start in enumerate(starts):
        count += 1
        is_last = number + 1 == len(starts) or starts[number + 1] != start + step
        if is_last or count == MAX_SPANS_READ:
            yield starts[first], count
            first, count = number + 1, 0


def _floor(at: datetime, step: timedelta) -> datetime:
    return EPOCH + (at - EPOCH) // step * step


def _build_arrivals(hours: Mapping[datetime, PlatformHour], this_hour: datetime) -> Arrivals:
    last_hour = max(hours)
    gaps = [_usual_gap(hours, hour) for hour in (this_hour, last_hour)]
    known = [gap for gap in gaps if gap is not None]
    usual_gap = max(known) if len(known) == len(gaps) else None
    return Arrivals(hours[last_hour].last_at, usual_gap, _fewest_by_hour(hours, last_hour))


def _fewest_by_hour(hours: Mapping[datetime, PlatformHour], last_hour: datetime) -> dict[tuple[bool, int], int]:
    """Return the fewest messages of an hour of the day, on working days and weekends; without those of none.

    The silence that is looked at does not count, so hours from `last_hour` on do not.
    """
    counts: dict[tuple[bool, int], list[int]] = {}
    start = min(hours)
    while start < last_hour:
        received = hours[start].received if start in hours else 0
        counts.setdefault(_hour_of_week(start), []).append(received)
        start += HOUR
    return {hour: fewest for hour, found in counts.items() if len(found) >= MIN_SAMPLES and (fewest := min(found))}


def _hour_of_week(at: datetime) -> tuple[bool, int]:
    """Return whether a time is on a weekend, and its hour of the day, in UTC."""
    at = at.astimezone(UTC)
    return at.weekday() >= FIRST_WEEKEND_DAY, at.hour


def _usual_gap(hours: Mapping[datetime, PlatformHour], hour: datetime) -> timedelta | None:
    """Return the mean time between two messages at this hour of the days before; None where there were none."""
    before: Sequence[datetime] = [hour - DAY * number for number in range(1, COMPARED_DAYS + 1)]
    days = sum(start >= min(hours) for start in before)
    received = sum(hours[start].received for start in before if start in hours)
    return HOUR * days / received if received else None
