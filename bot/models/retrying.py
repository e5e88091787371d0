"""How long to wait before a busy model is asked again, and when to give it up."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
JITTER = 0.25  # so much of a wait is left to chance, so that not all come back at once


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a caller is: how often it asks again, and for how many seconds after the first try.

    Where another model can be asked instead, its patience is `hurry`.
    """

    most: int = 8
    patience: float = 90.0
    hurry: float = 10.0
    chance: Callable[[], float] = random.random

    def wait(self, failed: int, passed: float, told: float | None, *, has_next: bool) -> float | None:
        """Give the seconds to wait after so many failed tries and seconds; None to give it up.

        `told` is what the provider asks for: never less than that, and rather not at all.
        """
        if failed > self.most:
            return None
        if told is None:
            told = 0.0
            wait = min(FIRST_WAIT * 2.0 ** (failed - 1), LONGEST_WAIT) * (1 - JITTER * self.chance())
        else:
            told = max(told, 0.0) if isfinite(told) else self.patience
            wait = told * (1 + JITTER * self.chance())
        left = (self.hurry if has_next else self.patience) - passed
        return None if max(told, wait) > left else wait


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read after how many seconds a server wants to be asked again: a number, or a date.

    None where it does not say, or says nonsense.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if value.replace(".", "", 1).isdecimal():
            return float(value) / unit
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
