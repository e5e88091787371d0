"""`AgentActivity`: the figures of one agent for operators, most of them from the store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from bot.concurrency.clock import Clock
from bot.domain.costs import CostDimension, CostEntry
from bot.models.retry import ModelStatus
from bot.store.activity import ActivityBucket, ActivityStore, OpenItems, PlatformHour, TaskBacklog
from bot.store.protocols import Store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
COMPARED_DAYS = 7  # for what is usual at an hour
SETTLING_TIME = timedelta(minutes=1)  # after a span of time, until what came in then is stored for certain
TASK_TOLERANCE = timedelta(minutes=1)
LATE_FACTOR, MIN_LATE = 3, timedelta(minutes=10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    """When a platform last brought a message in seven days, and the usual time between two at this hour.

    The usual gap is that of this hour of the day, or of the hour in which the last message came in, if that is
    longer; None where the last seven days do not show it.
    """

    last_at: datetime | None = None
    usual_gap: timedelta | None = None

    def late_since(self, connected_at: datetime, now: datetime) -> datetime | None:
        """Return since when the next message is late on an account that is connected; None where it is not.

        It is late after three times the usual gap, at least ten minutes.
        """
        if self.usual_gap is None:
            return None
        late_at = max(self.last_at or connected_at, connected_at) + max(LATE_FACTOR * self.usual_gap, MIN_LATE)
        return late_at if late_at <= now else None


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

    Spans of time that are over and in which nothing is open any more are read from the store once.
    """

    def __init__(
        self,
        store: Store,
        model_statuses: Callable[[], list[ModelStatus]],
        *,
        cost_limit: Callable[[], float],
        recent_costs: RecentCosts,
        clock: Clock,
    ) -> None:
        self._store = store
        self.model_statuses = model_statuses
        self._cost_limit = cost_limit
        self._recent_costs = recent_costs
        self._clock = clock
        self.started_at = clock()
        self._locks = [asyncio.Lock(), asyncio.Lock()]
        self._buckets: dict[tuple[ActivityRange, str], dict[datetime, ActivityBucket]] = {}
        self._hours: dict[datetime, list[PlatformHour]] = {}
        self._last_sent: dict[str, datetime] = {}

    async def open_items(self) -> OpenItems:
        """Count what is open now."""
        return await self._activity.open_items()

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
        step, count, now = time_range.step, time_range.length, self._clock()
        first = _floor(now, step) - step * (count - 1)
        starts = [first + step * number for number in range(count)]
        async with self._locks[0]:
            finished = self._buckets.setdefault((time_range, platform), {})
            missing = next((number for number, start in enumerate(starts) if start not in finished), count - 1)
            buckets = await self._activity.buckets(starts[missing], step, count - missing, platform)
            all_buckets = [finished[start] for start in starts[:missing]] + buckets
            self._buckets[time_range, platform] = {
                bucket.start: bucket
                for bucket in all_buckets
                if not bucket.open and bucket.start + step + SETTLING_TIME <= now
            }
        return all_buckets

    async def arrivals(self) -> Mapping[str, Arrivals]:
        """Return when each platform last brought a message, and how often it usually does."""
        now = self._clock()
        this_hour = _floor(now, HOUR)
        hours = [this_hour - HOUR * number for number in range(COMPARED_DAYS * 24, -1, -1)]
        async with self._locks[1]:
            missing = next((number for number, hour in enumerate(hours) if hour not in self._hours), len(hours) - 1)
            found: dict[datetime, list[PlatformHour]] = {hour: [] for hour in hours[missing:]}
            for item in await self._activity.platform_hours(hours[missing], len(hours) - missing):
                found[item.start].append(item)
            all_hours = {hour: found[hour] if hour in found else self._hours[hour] for hour in hours}
            self._hours = {hour: items for hour, items in all_hours.items() if hour + HOUR + SETTLING_TIME <= now}
        by_platform: dict[str, dict[datetime, PlatformHour]] = {}
        for hour, items in all_hours.items():
            for item in items:
                by_platform.setdefault(item.platform, {})[hour] = item
        return {
            platform: _build_arrivals(platform_hours, this_hour) for platform, platform_hours in by_platform.items()
        }

    @property
    def _activity(self) -> ActivityStore:
        return self._store.activity


def _floor(at: datetime, step: timedelta) -> datetime:
    return EPOCH + (at - EPOCH) // step * step


def _build_arrivals(hours: Mapping[datetime, PlatformHour], this_hour: datetime) -> Arrivals:
    last_hour = max(hours)
    gaps = [_usual_gap(hours, hour) for hour in (this_hour, last_hour)]
    known = [gap for gap in gaps if gap is not None]
    return Arrivals(hours[last_hour].last_at, max(known) if len(known) == len(gaps) else None)


def _usual_gap(hours: Mapping[datetime, PlatformHour], hour: datetime) -> timedelta | None:
    """Return the mean time between two messages at this hour of the days before; None where there were none."""
    before: Sequence[datetime] = [hour - DAY * number for number in range(1, COMPARED_DAYS + 1)]
    days = sum(start >= min(hours) for start in before)
    received = sum(hours[start].received for start in before if start in hours)
    return HOUR * days / received if received else None
