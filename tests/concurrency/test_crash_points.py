"""Crash points: without the variable nothing happens, with it the process is killed."""

import os
import signal
import subprocess
import sys

import pytest

from bot.concurrency.tasks import VARIABLE, kill_at
from bot.errors import SettingError

PASSES = """
from bot.concurrency.tasks import crash_point
for number in range(5):
    crash_point("turn.claimed")
    crash_point("outbox.committed")
    print(number, flush=True)
"""


def count_passes(kill_at: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if kill_at is not None:
        environment[VARIABLE] = kill_at
    command = [sys.executable, "-c", PASSES]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_process_is_killed_the_nth_time_it_reaches_the_point_that_is_named() -> None:
    ended = count_passes("turn.claimed:3")
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["0", "1"]


@pytest.mark.parametrize("kill_at", [None, "", "turn.claimed:6", "another.point:1"])
def test_nothing_happens_at_points_that_are_not_named(kill_at: str | None) -> None:
    ended = count_passes(kill_at)
    assert ended.returncode == 0
    assert len(ended.stdout.split()) == 5


@pytest.mark.parametrize("text", ["turn.claimed", "turn.claimed:", "turn.claimed:0", "turn.claimed:x"])
def test_an_invalid_crash_point_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(SettingError, match=r"turn\.claimed:1"):
        kill_at(text)
