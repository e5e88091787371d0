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
class _Trap:
    """Where the process ends, and how often it still gets past there."""

    name: str
    left: int

    def spring(self, name: str) -> None:
        if name != self.name:
            return
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def reached(name: str) -> None:
    """Say that this point is reached; the process ends here where it was asked to."""
    trap = _trap()
    if trap is not None:
        trap.spring(name)


@cache
def _trap() -> _Trap | None:
    """Read the variable, once a process."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, _, number = text.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise SettingError(f"{VARIABLE} is {text!r}: it must look like turn.claimed:1")
    return _Trap(name, int(number))
