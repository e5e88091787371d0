"""A testing aid: named points at which the process kills itself, to see that nothing is lost or doubled.

With `BOT_KILL_AT=turn.claimed:3` in the environment the process ends by SIGKILL, as by a power cut, the
third time it gets there. Without that variable, and so wherever a character lives, nothing happens.
The tests in `tests/chaos` know every name.
"""

import os
import signal
from dataclasses import dataclass
from functools import cache

from bot.errors import SettingError

VARIABLE = "BOT_KILL_AT"


@dataclass(slots=True)
class _CrashPoint:
    """Where the process ends, and how often it still gets past there."""

    name: str
    remaining: int

    def hit(self, name: str) -> None:
        if name != self.name:
            return
        self.remaining -= 1
        if not self.remaining:
            os.kill(os.getpid(), signal.SIGKILL)


def crash_point(name: str) -> None:
    """Say that this point is reached; the process ends here where it was asked to."""
    point = _configured_point()
    if point is not None:
        point.hit(name)


@cache
def _configured_point() -> _CrashPoint | None:
    """Read the variable, once a process."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, _, number = text.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise SettingError(f"{VARIABLE} is {text!r}: it must look like turn.claimed:1")
    return _CrashPoint(name, int(number))
