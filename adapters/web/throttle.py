"""Slows down whoever guesses."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network

WINDOW, PAUSE, MOST_KNOWN = 60.0, 300.0, 1024


def household(address: str | None) -> str:
    """Name who has an address: one line to the net has 2^64 of IPv6, and could guess from each of them."""
    try:
        found = IPv6Address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))


@dataclass(slots=True)
class _Record:
    wrong: deque[float] = field(default_factory=deque)
    shut_until: float = 0.0


class Throttle:
    """Counts wrong guesses by client: `most` of them within a minute shut a client out for five minutes.

    `clock` is monotonic, in seconds. At most 1024 clients are remembered, the latest ones.
    """

    def __init__(self, most: int = 10, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
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
        while record.wrong[0] < now - WINDOW:
            record.wrong.popleft()
        if len(record.wrong) >= self._most:
            record.shut_until = now + PAUSE
            record.wrong.clear()
        while len(self._records) > MOST_KNOWN:
            self._records.popitem(last=False)
