"""When a repeating task runs next: after an interval, or by a cron expression in its time zone."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bot.domain.task import IMMEDIATE, Task
from bot.text import shorten

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
