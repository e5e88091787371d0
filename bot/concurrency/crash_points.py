"""Named points at which a test kills the process, to check that nothing is lost or done twice.

With `BOT_KILL_AT=turn.claimed:3` the process ends by SIGKILL, as in a power cut, when it reaches that point
for the third time. Without the variable nothing happens. The tests in `tests/chaos` use every name.
"""

import os
import signal
from dataclasses import dataclass
from functools import cache

from bot.errors import SettingError

VARIABLE = "BOT_KILL_AT"


@dataclass(slots=True)
class _CrashPoint:
    """The configured point, and how many more times the process must reach it."""

    name: str
    remaining: int

    def hit(self, name: str) -> None:
        if name != self.name:
            return
        self.remaining -= 1
        if not self.remaining:
            os.kill(os.getpid(), signal.SIGKILL)


def crash_point(name: str) -> None:
    """Kill the process if BOT_KILL_AT names this point and its count is reached."""
    point = _configured_point()
    if point is not None:
        point.hit(name)


@cache
def _configured_point() -> _CrashPoint | None:
    """Return the point named by BOT_KILL_AT, read once per process. Raises SettingError."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, _, number = text.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise SettingError(f"{VARIABLE} is {text!r}: it must look like turn.claimed:1")
    return _CrashPoint(name, int(number))
