"""Tasks: work for later, its lease, and when it runs next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any, ClassVar, Self
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bot.concurrency.clock import Backoff
from bot.text import shorten

MAX_BACKOFF = timedelta(hours=1)
BACKOFF = Backoff(1.0, MAX_BACKOFF.total_seconds(), jitter=0.0)
MIN_INTERVAL = timedelta(seconds=1)
MISSED_THRESHOLD = timedelta(seconds=60)
MAX_COUNTED_RUNS = 1000
MILLISECOND = timedelta(milliseconds=1)
PAUSED_KEY, LAST_RUN_KEY = "paused", "lastRunAt"  # in a task's metadata


class TaskTag(StrEnum):
    """The tags that have a meaning for the scheduler; a task may have others."""

    QUEUE = "queue"
    REPEAT = "repeat"
    IMMEDIATE = "immediate"
    AWAITING_CHOICE = "AWAITING_CHOICE"


class MissedRunPolicy(StrEnum):
    """What happens to runs whose time has passed: one run for all, none, or one for each."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    ALL = "all"

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the policy under the key `missed`, by default RUN_ONCE; raises ValueError."""
        value = metadata.get("missed", cls.RUN_ONCE)
        try:
            return cls(value)
        except ValueError:
            raise ValueError(f"its missed is none of {', '.join(cls)}: {_quote(value)}") from None


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """When a repeating task runs: at an interval, or by a cron expression in a time zone.

    In a task's metadata it has the keys `updateInterval` (in milliseconds), `cron`, `timezone` and `missed`. Without
    a time zone, `Agent.schedule` sets that of the task's world.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("cron", "timezone", "updateInterval", "missed")

    interval: timedelta = timedelta(0)
    cron: str = ""
    timezone: str | None = None
    missed: MissedRunPolicy = MissedRunPolicy.RUN_ONCE

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the schedule that a task's metadata describes; raises ValueError with the cause."""
        missed = MissedRunPolicy.from_metadata(metadata)
        if "cron" not in metadata:
            return cls(_parse_interval(metadata.get("updateInterval", 0)), missed=missed)
        cron, timezone = metadata["cron"], metadata.get("timezone")
        if not isinstance(cron, str) or not cron.strip():
            raise ValueError(f"its cron is no cron expression: {_quote(cron)}")
        if timezone is not None:
            _find_zone(timezone)
        return cls(cron=cron, timezone=timezone, missed=missed)

    def to_metadata(self) -> dict[str, Any]:
        """Return the metadata that describes this schedule."""
        if self.cron:
            times: dict[str, Any] = {"cron": self.cron}
            times |= {} if self.timezone is None else {"timezone": self.timezone}
        else:
            times = {"updateInterval": round(self.interval / MILLISECOND)}
        return times if self.missed is MissedRunPolicy.RUN_ONCE else {**times, "missed": self.missed.value}

    def run_after(self, timestamp: datetime) -> datetime:
        """Return the first run after a time; raises ValueError if there is none."""
        if self.cron:
            return next(self._cron_runs(timestamp))
        try:
            return timestamp + self._step
        except OverflowError:
            raise _interval_error(self.interval / MILLISECOND) from None

    def find_next_run(self, last_run: datetime, now: datetime) -> tuple[datetime, int]:
        """Return when the task runs after `last_run`, and how many runs are skipped; raises ValueError."""
        next_run = self.run_after(last_run)
        if next_run > now or self.missed is MissedRunPolicy.ALL:
            return next_run, 0
        if self.cron:
            missed_runs = takewhile(lambda run: run <= now, self._cron_runs(last_run))
            return self.run_after(now), sum(1 for _ in islice(missed_runs, MAX_COUNTED_RUNS))
        skipped = (now - next_run) // self._step + 1
        return next_run + skipped * self._step, skipped

    @property
    def _step(self) -> timedelta:
        return max(self.interval, MIN_INTERVAL)

    def _cron_runs(self, timestamp: datetime) -> Iterator[datetime]:
        """Yield the runs after a time, in UTC; raises ValueError if there are none.

        Clock changes are handled as by Debian's cron: a time that is skipped in spring runs right after the
        change, one that occurs twice in autumn runs once. With `*` in minute or hour, elapsed time counts.
        """
        try:
            runs = CronSim(self.cron, timestamp.astimezone(_find_zone(self.timezone or "UTC")))
        except (CronSimError, ValueError) as error:
            raise ValueError(f"its cron is no cron expression ({error}): {_quote(self.cron)}") from None
        for run in runs:
            if (run_at := run.astimezone(UTC)) > timestamp:  # it may begin within an hour that occurs twice
                yield run_at
        raise ValueError(f"its cron names no time in the next fifty years: {_quote(self.cron)}")


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work for later, done by the worker of its name.

    Tags are those of `TaskTag`: QUEUE makes it eligible, REPEAT runs it again by its `TaskSchedule`, and
    with IMMEDIATE the first run is when it is scheduled, not one interval later. A task with AWAITING_CHOICE
    instead of QUEUE waits until a user chooses one of the options of its `ChoiceRequest`.

    A claimed task is leased: nothing else runs it before `leased_until`, and only the holder of
    `fencing_token` may complete it. `attempts` counts the runs that failed, or ended with their process,
    since the last success.
    """

    id: UUID
    name: str
    next_run: datetime
    description: str = ""
    room_id: UUID | None = None
    world_id: UUID | None = None
    entity_id: UUID | None = None
    tags: frozenset[str] = frozenset({TaskTag.QUEUE})
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 0
    leased_until: datetime | None = None
    fencing_token: int = 0
    is_parked: bool = False
    last_error: str = ""

    @property
    def is_repeating(self) -> bool:
        """Whether the task remains after a successful run."""
        return TaskTag.REPEAT in self.tags

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused the task; it is parked then."""
        return self.is_parked and self.metadata.get(PAUSED_KEY) is True

    @property
    def run_key(self) -> str:
        """The idempotency key of this run: the same in every attempt, different when the task repeats."""
        return f"{self.id}/{self.fencing_token - self.attempts}" if self.is_repeating else str(self.id)

    @property
    def schedule(self) -> TaskSchedule:
        """The schedule in the metadata; raises ValueError with the cause if it is invalid."""
        return TaskSchedule.from_metadata(self.metadata)

    @property
    def backoff(self) -> timedelta:
        """The delay after the current number of failures: 1 s, doubled each time, at most an hour."""
        return timedelta(seconds=BACKOFF.delay(self.attempts))

    def lease(self, until: datetime) -> Self:
        """Return the task with a new lease; one whose last lease was not ended gets one more attempt."""
        attempts = self.attempts + (self.leased_until is not None)
        return replace(self, leased_until=until, fencing_token=self.fencing_token + 1, attempts=attempts)

    def is_missed(self, now: datetime) -> bool:
        """Return whether to skip the task because it is late; one that was started is not skipped."""
        is_late = not self.attempts and now - self.next_run > MISSED_THRESHOLD
        return MissedRunPolicy.from_metadata(self.metadata) is MissedRunPolicy.SKIP and is_late


def merge_schedule(task: Task, stored: Task | None) -> Task:
    """Return what to store for a task that is scheduled again while it may be stored already.

    A repeating task with unchanged times continues: its next run, its failures and its metadata stay. One that an
    operator paused stays paused. Raises ValueError if its schedule is invalid.
    """
    MissedRunPolicy.from_metadata(task.metadata)
    if task.is_repeating:
        first_run = task.schedule.run_after(task.next_run)
        task = task if TaskTag.IMMEDIATE in task.tags else replace(task, next_run=first_run)
    if stored is None:
        return task
    notes = {name: value for name, value in stored.metadata.items() if name not in TaskSchedule.KEYS}
    metadata = {**notes, **task.metadata}
    is_failed = stored.is_parked and not stored.is_paused
    if is_failed or not task.is_repeating or _times(task) != _times(stored):
        return replace(
            task,
            metadata=metadata,
            leased_until=stored.leased_until,
            fencing_token=stored.fencing_token,
            is_parked=stored.is_paused,
        )
    return replace(
        stored,
        name=task.name,
        description=task.description,
        room_id=task.room_id,
        world_id=task.world_id,
        entity_id=task.entity_id,
        tags=task.tags,
        metadata=metadata,
    )


def _times(task: Task) -> list[Any]:
    return [task.is_repeating, *(task.metadata.get(key) for key in ("cron", "timezone", "updateInterval"))]


def _parse_interval(value: Any) -> timedelta:
    try:
        return timedelta(milliseconds=float(value))
    except (TypeError, ValueError, OverflowError):
        raise _interval_error(value) from None


def _interval_error(value: Any) -> ValueError:
    return ValueError(f"its updateInterval is no number of milliseconds: {_quote(value)}")


def _find_zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError, AttributeError):
        raise ValueError(f"its timezone is no IANA time zone: {_quote(name)}") from None


def _quote(value: Any) -> str:
    return shorten(repr(value), 80)
