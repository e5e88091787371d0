"""Tasks and their schedules."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from bot.domain.ids import new_id
from bot.domain.task import MAX_BACKOFF, MissedRunPolicy, Task, TaskSchedule, TaskTag

TASK = Task(new_id(), "POST", datetime(2026, 5, 4, tzinfo=UTC))


def test_a_task_is_queued_unless_it_says_otherwise_and_repeats_only_if_it_says_so() -> None:
    assert TASK.tags == {TaskTag.QUEUE}
    assert not TASK.is_repeating
    assert replace(TASK, tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT})).is_repeating


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, timedelta(0)),
        ({"updateInterval": 1500}, timedelta(seconds=1.5)),
        ({"updateInterval": "60000"}, timedelta(minutes=1)),
    ],
)
def test_the_interval_is_written_in_milliseconds(metadata: dict[str, object], expected: timedelta) -> None:
    assert replace(TASK, metadata=metadata).schedule.interval == expected


@pytest.mark.parametrize(
    ("schedule", "metadata"),
    [
        (TaskSchedule(timedelta(seconds=1.5)), {"updateInterval": 1500}),
        (
            TaskSchedule(cron="0 9 * * *", timezone="Asia/Tokyo", missed=MissedRunPolicy.SKIP),
            {"cron": "0 9 * * *", "timezone": "Asia/Tokyo", "missed": "skip"},
        ),
    ],
)
def test_a_schedule_is_written_to_metadata_and_read_from_it(
    schedule: TaskSchedule, metadata: dict[str, object]
) -> None:
    assert schedule.to_metadata() == metadata
    assert TaskSchedule.from_metadata({**metadata, "skipped": 3}) == schedule


def test_the_back_off_doubles_with_every_failure() -> None:
    waits = [replace(TASK, attempts=attempts).backoff for attempts in range(1, 12)]

    assert all(later == 2 * earlier for earlier, later in pairwise(waits))
    assert timedelta(seconds=1) <= waits[0] <= timedelta(seconds=2)


@pytest.mark.parametrize("attempts", [13, 20, 10_000])
def test_the_back_off_is_never_longer_than_an_hour(attempts: int) -> None:
    assert replace(TASK, attempts=attempts).backoff == MAX_BACKOFF == timedelta(hours=1)
