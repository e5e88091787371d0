"""Slows down whoever guesses."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

MOST_WRONG, WINDOW, PAUSE, MOST_KNOWN = 10, 60.0, 300.0, 1024


@dataclass(slots=True)
class _Record:
    wrong: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_WRONG))
    shut_until: float = 0.0


class Throttle:
    """Counts wrong guesses by client: ten within a minute shut a client out for five minutes.

    `clock` is monotonic, in seconds. At most 1024 clients are remembered, the latest ones.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()

    def wait(self, client: Hashable) -> float:
        """Tell how many seconds a client is still shut out."""
        record = self._records.get(client)
        return max(0.0, record.shut_until - self._clock()) if record else 0.0

    def count(self, client: Hashable) -> None:
        """Note a wrong guess."""
        now = self._clock()
        record = self._records.setdefault(client, _Record())
        self._records.move_to_end(client)
        record.wrong.append(now)
        if len(record.wrong) == MOST_WRONG and now - record.wrong[0] <= WINDOW:
            record.shut_until = now + PAUSE
            record.wrong.clear()
        while len(self._records) > MOST_KNOWN:
            self._records.popitem(last=False)
