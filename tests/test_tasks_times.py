"""When a repeating task runs: intervals, cron in every zone, and what becomes of times that were missed."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.domain.ids import derived_id
from bot.domain.task import MISSED_THRESHOLD, Task, TaskTag, merge_schedule
from tests.scheduling import START

pytestmark = pytest.mark.long

DAY = timedelta(days=1)


def repeating(due: datetime = START, **metadata: Any) -> Task:
    return Task(derived_id("task"), "POST", due, tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), metadata=metadata)


def next_run(task: Task, now: datetime) -> tuple[datetime, int]:
    return task.schedule.find_next_run(task.next_run, now)


def local(zone: str, *moment: int, fold: int = 0) -> datetime:
    """Return a time of that zone's clock, in UTC."""
    return datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)  # type: ignore[arg-type,misc]


def times(cron: str, zone: str, after: datetime, count: int) -> list[datetime]:
    found = []
    for _ in range(count):
        after, _ = next_run(repeating(after, cron=cron, timezone=zone), after)
        found.append(after)
    return found


def test_cron_is_read_on_the_clock_of_its_zone() -> None:
    assert times("0 9 * * mon-fri", "Europe/Berlin", START, 1) == [local("Europe/Berlin", 2026, 5, 5, 9)]
    assert times("0 9 * * mon-fri", "America/New_York", START, 1) == [START + timedelta(hours=1)]
    assert next_run(repeating(cron="0 9 * * *"), START)[0] == datetime(2026, 5, 5, 9, tzinfo=UTC)


@pytest.mark.failure("J-03")
def test_a_time_that_the_clock_leaps_over_runs_once_right_after() -> None:
    zone = "Europe/Berlin"
    assert times("30 2 * * *", zone, local(zone, 2026, 3, 28, 12), 2) == [
        local(zone, 2026, 3, 29, 3),
        local(zone, 2026, 3, 30, 2, 30),
    ]


@pytest.mark.failure("J-03")
@pytest.mark.parametrize("minute", [0, 29, 31])
@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_that_the_clock_shows_twice_runs_once(minute: int, fold: int) -> None:
    zone = "Europe/Berlin"
    first = local(zone, 2026, 10, 25, 2, 30)
    assert times("30 2 * * *", zone, local(zone, 2026, 10, 25, 1), 2)[0] == first
    [after] = times("30 2 * * *", zone, local(zone, 2026, 10, 25, 2, minute, fold=fold), 1)

    assert after == (first if (fold, minute) < (0, 30) else local(zone, 2026, 10, 26, 2, 30))


@pytest.mark.failure("J-03")
def test_every_so_many_minutes_is_real_time_on_the_days_the_clock_changes() -> None:
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        start = local("Europe/Berlin", day.year, day.month, day.day)
        found = times("*/15 * * * *", "Europe/Berlin", start, 100)
        assert found == [start + timedelta(minutes=15 * count) for count in range(1, 101)]


@pytest.mark.failure("J-03")
@pytest.mark.parametrize(
    ("zone", "cron"),
    [
        ("Europe/Berlin", "30 2 * * *"),
        ("America/Sao_Paulo", "0 0 * * *"),  # its summers began at midnight
        ("Australia/Lord_Howe", "15 2 * * *"),  # its summers are half an hour
    ],
)
def test_once_a_day_from_1970_to_2100(zone: str, cron: str) -> None:
    clock, moment = ZoneInfo(zone), datetime(1970, 1, 1, 12, tzinfo=UTC)
    days: Counter[date] = Counter()
    for _ in range(131 * 366):
        [following] = times(cron, zone, moment, 1)
        assert following > moment
        moment = following
        days[moment.astimezone(clock).date()] += 1
        if moment.year > 2100:
            break
    ran = sorted(days)

    assert set(days.values()) == {1}
    assert {late - early for early, late in pairwise(ran)} == {DAY}


@pytest.mark.failure("J-03")
def test_a_zone_that_leaves_out_a_day_goes_on() -> None:
    found = times("0 9 * * *", "Pacific/Apia", local("Pacific/Apia", 2011, 12, 29, 12), 3)
    assert found == sorted(set(found))
    assert found[-1] <= local("Pacific/Apia", 2012, 1, 1, 9)


@pytest.mark.failure("J-03")
def test_leap_days_are_known() -> None:
    assert times("0 12 29 2 *", "UTC", START, 2) == [
        datetime(2028, 2, 29, 12, tzinfo=UTC),
        datetime(2032, 2, 29, 12, tzinfo=UTC),
    ]


@pytest.mark.failure("J-03")
def test_another_zone_holds_from_the_next_run_on() -> None:
    task = repeating(cron="0 9 * * *", timezone="Asia/Tokyo")
    moved = repeating(cron="0 9 * * *", timezone="Europe/London")
    assert next_run(task, START)[0] == local("Asia/Tokyo", 2026, 5, 5, 9)
    assert next_run(moved, START)[0] == local("Europe/London", 2026, 5, 5, 9)


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"cron": "at nine"}, "its cron is no cron expression"),
        ({"cron": "99 9 * * *"}, "Bad minute"),
        ({"cron": "0 9 31 2 *"}, "its cron"),
        ({"cron": None}, "its cron is no cron expression"),
        ({"cron": 9}, "its cron is no cron expression"),
        ({"cron": "0 9 * * *", "timezone": "Europe/Atlantis"}, "'Europe/Atlantis'"),
        ({"cron": "0 9 * * *", "timezone": "../../etc/passwd"}, "no IANA time zone"),
        ({"cron": "0 9 * * *", "timezone": ["UTC"]}, "no IANA time zone"),
        ({"cron": "0 9 * * *", "timezone": ""}, "no IANA time zone"),
        ({"updateInterval": "soon"}, "no number of milliseconds: 'soon'"),
        ({"updateInterval": 60_000, "missed": "twice"}, "none of run_once, skip, all: 'twice'"),
    ],
)
def test_times_that_make_no_sense_are_reported_in_words(metadata: dict[str, Any], cause: str) -> None:
    for wrong in (lambda: next_run(repeating(**metadata), START + DAY), lambda: scheduled_new(**metadata)):
        with pytest.raises(ValueError, match=r"^its ") as caught:
            wrong()
        assert cause in str(caught.value)


def scheduled_new(*tags: str, **metadata: Any) -> Task:
    task = Task(
        derived_id("task"), "POST", START, tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT, *tags}), metadata=metadata
    )
    return merge_schedule(task, None)


def test_a_repeating_task_first_runs_an_interval_later_and_an_immediate_task_at_once() -> None:
    assert scheduled_new(updateInterval=60_000).next_run == START + timedelta(minutes=1)
    assert scheduled_new(cron="0 13 * * *").next_run == START + timedelta(hours=1)
    assert scheduled_new(TaskTag.IMMEDIATE, updateInterval=60_000).next_run == START
    assert scheduled_new(TaskTag.IMMEDIATE, cron="0 13 * * *").next_run == START


@pytest.mark.failure("J-02")
def test_after_eight_hours_a_single_run_makes_up_for_all_and_the_rhythm_is_kept() -> None:
    now = START + timedelta(hours=8, seconds=30)
    following = START + timedelta(hours=8, minutes=1)
    assert next_run(repeating(updateInterval=60_000), now) == (following, 480)
    assert next_run(repeating(cron="* * * * *"), now) == (following, 480)


@pytest.mark.failure("J-02")
def test_who_wants_all_gets_each_missed_time() -> None:
    now = START + timedelta(hours=8)
    for times_of in ({"updateInterval": 60_000}, {"cron": "* * * * *"}):
        assert next_run(repeating(**times_of, missed="all"), now) == (START + timedelta(minutes=1), 0)


@pytest.mark.failure("J-02")
def test_who_skips_leaves_out_what_is_late_but_not_what_was_begun() -> None:
    late = START + MISSED_THRESHOLD + timedelta(seconds=1)
    task = repeating(updateInterval=60_000, missed="skip")
    assert task.is_missed(late)
    assert not task.is_missed(START + MISSED_THRESHOLD)
    assert not task.lease(late).lease(late).is_missed(late)
    assert not repeating(updateInterval=60_000).is_missed(late + DAY)


@pytest.mark.failure("J-02")
def test_years_of_missed_seconds_are_passed_over_at_once() -> None:
    now = START + 3650 * DAY
    assert next_run(repeating(updateInterval=1000), now)[1] == 3650 * 86400
    assert next_run(repeating(cron="* * * * * *"), now)[0] == now + timedelta(seconds=1)
