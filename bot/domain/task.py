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
LONGEST_BACK_OFF = timedelta(hours=1)


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
    fence: int = 0
    is_parked: bool = False
    last_error: str = ""

    @property
    def repeats(self) -> bool:
        """Whether it stays after a successful run."""
        return REPEAT in self.tags

    @property
    def key(self) -> str:
        """The name of this run: the same at every attempt of it, another when the task repeats."""
        return f"{self.id}/{self.fence - self.attempts}" if self.repeats else str(self.id)

    @property
    def interval(self) -> timedelta:
        """How long after a run the next one is due."""
        return timedelta(milliseconds=float(self.metadata.get("updateInterval", 0)))

    @property
    def back_off(self) -> timedelta:
        """How long to wait after the present number of failures: 1 s, doubled, at most an hour."""
        return min(timedelta(seconds=2.0 ** min(self.attempts - 1, 12)), LONGEST_BACK_OFF)

    def leased(self, until: datetime) -> Self:
        """Lease it anew; where a lease is still there, the run that held it has not come to its end."""
        attempts = self.attempts + (self.leased_until is not None)
        return replace(self, leased_until=until, fence=self.fence + 1, attempts=attempts)


SHORTEST_INTERVAL = timedelta(seconds=1)
MISSED_AFTER = timedelta(seconds=60)
MOST_COUNTED = 1000
TIMES = ("cron", "timezone", "updateInterval")


class Missed(StrEnum):
    """What becomes of the times at which a task should have run and did not."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    ALL = "all"


def next_time(task: Task, now: datetime) -> tuple[datetime, int]:
    """Say when a repeating task runs after this run, and how many of its times have passed meanwhile.

    Raises ValueError, with the cause in words, where its times make no sense.
    """
    following = _time_after(task, task.next_run)
    if following > now or policy(task) is Missed.ALL:
        return following, 0
    if "cron" in task.metadata:
        times = takewhile(lambda time: time <= now, _cron_times(task, task.next_run))
        return _time_after(task, now), sum(1 for _ in islice(times, MOST_COUNTED))
    skipped = (now - following) // _interval(task) + 1
    return following + skipped * _interval(task), skipped


def scheduled(task: Task, known: Task | None) -> Task:
    """Say what to keep of a task that is left anew while it may be known; raises ValueError.

    A repeating one goes on: when it is due, its failures, and what it has noted besides.
    """
    policy(task)
    if task.repeats:
        first = _time_after(task, task.next_run)
        task = task if IMMEDIATE in task.tags else replace(task, next_run=first)
    if known is None:
        return task
    kept = {name: what for name, what in known.metadata.items() if name not in (*TIMES, "missed")}
    noted = {**kept, **task.metadata}
    if known.is_parked or not task.repeats or _times(task) != _times(known):
        return replace(task, metadata=noted, leased_until=known.leased_until, fence=known.fence)
    return replace(
        known,
        name=task.name,
        description=task.description,
        room_id=task.room_id,
        world_id=task.world_id,
        entity_id=task.entity_id,
        tags=task.tags,
        metadata=noted,
    )


def is_missed(task: Task, now: datetime) -> bool:
    """Whether a task is to be left out because its time is over; one that was begun is not."""
    return policy(task) is Missed.SKIP and not task.attempts and now - task.next_run > MISSED_AFTER


def _times(task: Task) -> list[Any]:
    return [task.repeats, *(task.metadata.get(name) for name in TIMES)]


def policy(task: Task) -> Missed:
    """Say what becomes of a task's missed times; raises ValueError."""
    wanted = task.metadata.get("missed", Missed.RUN_ONCE)
    try:
        return Missed(wanted)
    except ValueError:
        raise ValueError(f"its missed is none of {', '.join(Missed)}: {_told(wanted)}") from None


def _time_after(task: Task, moment: datetime) -> datetime:
    if "cron" in task.metadata:
        return next(_cron_times(task, moment))
    try:
        return moment + _interval(task)
    except OverflowError:
        raise ValueError(_wrong_interval(task)) from None


def _interval(task: Task) -> timedelta:
    try:
        return max(task.interval, SHORTEST_INTERVAL)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(_wrong_interval(task)) from None


def _wrong_interval(task: Task) -> str:
    return f"its updateInterval is no number of milliseconds: {_told(task.metadata.get('updateInterval'))}"


def _cron_times(task: Task, moment: datetime) -> Iterator[datetime]:
    """Give the times after a moment, in UTC; raises ValueError where there will be none.

    As Debian's cron has it: what the clock leaps over in spring runs right after, what it shows twice in
    autumn runs once; only with `*` in minute or hour the real time that passes counts.
    """
    expression, zone = task.metadata["cron"], _zone(task.metadata.get("timezone", "UTC"))
    try:
        times = CronSim(expression, moment.astimezone(zone))
    except (CronSimError, ValueError, AttributeError) as error:
        raise ValueError(f"its cron is no cron expression ({error}): {_told(expression)}") from None
    for time in times:
        if (found := time.astimezone(UTC)) > moment:  # it may begin in an hour that the clock shows twice
            yield found
    raise ValueError(f"its cron names no time in the next fifty years: {_told(expression)}")


def _zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError, AttributeError):
        raise ValueError(f"its timezone is no IANA time zone: {_told(name)}") from None


def _told(value: Any) -> str:
    return shorten(repr(value), 80)
