"""Task, its lease, and when it runs next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any, Self
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bot.text import shorten

QUEUE = "queue"
REPEAT = "repeat"
IMMEDIATE = "immediate"
AWAITING_CHOICE = "AWAITING_CHOICE"
MAX_BACKOFF = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work for later.

    Tags: `queue` makes it eligible; `repeat` runs it again every `metadata["updateInterval"]`
    milliseconds, or when `metadata["cron"]` says so in `metadata["timezone"]` (UTC); a repeating one that
    is `immediate` runs first when it is scheduled, not one interval later. `metadata["missed"]` says what
    becomes of times that have passed unused: `run_once`, `skip` or `all`. One tagged `AWAITING_CHOICE`
    instead of `queue` waits until somebody in its room has chosen one of `metadata["options"]`; then it
    is queued, and its worker finds the choice in `metadata["choice"]`. `metadata["roles"]` says who may
    choose (OWNER and ADMIN where it says nothing), `metadata["choosers"]`, ids, that nobody else may, and
    `metadata["expiresAt"]` until when. A claimed task is leased: nobody else runs it before
    `leased_until`, and only the holder of `fence` may complete it. `attempts` counts the runs that have
    failed, or ended with their process, since the last that did not.
    """

    id: UUID
    name: str
    next_run: datetime
    description: str = ""
    room_id: UUID | None = None
    world_id: UUID | None = None
    entity_id: UUID | None = None
    tags: frozenset[str] = frozenset({QUEUE})
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 0
    leased_until: datetime | None = None
    fencing_token: int = 0
    is_parked: bool = False
    last_error: str = ""

    @property
    def is_repeating(self) -> bool:
        """Whether it stays after a successful run."""
        return REPEAT in self.tags

    @property
    def run_key(self) -> str:
        """The name of this run: the same at every attempt of it, another when the task repeats."""
        return f"{self.id}/{self.fencing_token - self.attempts}" if self.is_repeating else str(self.id)

    @property
    def interval(self) -> timedelta:
        """How long after a run the next one is due."""
        return timedelta(milliseconds=float(self.metadata.get("updateInterval", 0)))

    @property
    def backoff(self) -> timedelta:
        """How long to wait after the present number of failures: 1 s, doubled, at most an hour."""
        return min(timedelta(seconds=2.0 ** min(self.attempts - 1, 12)), MAX_BACKOFF)

    def lease(self, until: datetime) -> Self:
        """Lease it anew; where a lease is still there, the run that held it has not come to its end."""
        attempts = self.attempts + (self.leased_until is not None)
        return replace(self, leased_until=until, fencing_token=self.fencing_token + 1, attempts=attempts)


MIN_INTERVAL = timedelta(seconds=1)
MISSED_THRESHOLD = timedelta(seconds=60)
MAX_COUNTED_RUNS = 1000
SCHEDULE_KEYS = ("cron", "timezone", "updateInterval")


class MissedRunPolicy(StrEnum):
    """What becomes of the times at which a task should have run and did not."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    ALL = "all"


def find_next_run(task: Task, now: datetime) -> tuple[datetime, int]:
    """Say when a repeating task runs after this run, and how many of its times have passed meanwhile.

    Raises ValueError, with the cause in words, where its times make no sense.
    """
    next_run = _run_after(task, task.next_run)
    if next_run > now or missed_run_policy(task) is MissedRunPolicy.ALL:
        return next_run, 0
    if "cron" in task.metadata:
        missed_runs = takewhile(lambda time: time <= now, _cron_runs(task, task.next_run))
        return _run_after(task, now), sum(1 for _ in islice(missed_runs, MAX_COUNTED_RUNS))
    skipped = (now - next_run) // _checked_interval(task) + 1
    return next_run + skipped * _checked_interval(task), skipped


def merge_schedule(task: Task, stored: Task | None) -> Task:
    """Say what to keep of a task that is left anew while it may be known; raises ValueError.

    A repeating one goes on: when it is due, its failures, and what it has noted besides.
    """
    missed_run_policy(task)
    if task.is_repeating:
        first_run = _run_after(task, task.next_run)
        task = task if IMMEDIATE in task.tags else replace(task, next_run=first_run)
    if stored is None:
        return task
    notes = {name: value for name, value in stored.metadata.items() if name not in (*SCHEDULE_KEYS, "missed")}
    metadata = {**notes, **task.metadata}
    if stored.is_parked or not task.is_repeating or _schedule_values(task) != _schedule_values(stored):
        return replace(
            task, metadata=metadata, leased_until=stored.leased_until, fencing_token=stored.fencing_token
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


def is_missed(task: Task, now: datetime) -> bool:
    """Whether a task is to be left out because its time is over; one that was begun is not."""
    return (
        missed_run_policy(task) is MissedRunPolicy.SKIP
        and not task.attempts
        and now - task.next_run > MISSED_THRESHOLD
    )


def _schedule_values(task: Task) -> list[Any]:
    return [task.is_repeating, *(task.metadata.get(name) for name in SCHEDULE_KEYS)]


def missed_run_policy(task: Task) -> MissedRunPolicy:
    """Say what becomes of a task's missed times; raises ValueError."""
    value = task.metadata.get("missed", MissedRunPolicy.RUN_ONCE)
    try:
        return MissedRunPolicy(value)
    except ValueError:
        raise ValueError(f"its missed is none of {', '.join(MissedRunPolicy)}: {_quote(value)}") from None


def _run_after(task: Task, timestamp: datetime) -> datetime:
    if "cron" in task.metadata:
        return next(_cron_runs(task, timestamp))
    try:
        return timestamp + _checked_interval(task)
    except OverflowError:
        raise ValueError(_interval_error(task)) from None


def _checked_interval(task: Task) -> timedelta:
    try:
        return max(task.interval, MIN_INTERVAL)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(_interval_error(task)) from None


def _interval_error(task: Task) -> str:
    return f"its updateInterval is no number of milliseconds: {_quote(task.metadata.get('updateInterval'))}"


def _cron_runs(task: Task, timestamp: datetime) -> Iterator[datetime]:
    """Give the times after a moment, in UTC; raises ValueError where there will be none.

    As Debian's cron has it: what the clock leaps over in spring runs right after, what it shows twice in
    autumn runs once; only with `*` in minute or hour the real time that passes counts.
    """
    expression, zone = task.metadata["cron"], _find_zone(task.metadata.get("timezone", "UTC"))
    try:
        runs = CronSim(expression, timestamp.astimezone(zone))
    except (CronSimError, ValueError, AttributeError) as error:
        raise ValueError(f"its cron is no cron expression ({error}): {_quote(expression)}") from None
    for time in runs:
        if (run_at := time.astimezone(UTC)) > timestamp:  # it may begin in an hour that the clock shows twice
            yield run_at
    raise ValueError(f"its cron names no time in the next fifty years: {_quote(expression)}")


def _find_zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError, AttributeError):
        raise ValueError(f"its timezone is no IANA time zone: {_quote(name)}") from None


def _quote(value: Any) -> str:
    return shorten(repr(value), 80)
