"""Telegram's limits per chat and per bot; the typing indicator uses spare capacity only."""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from bot.platform import BoundedDict

MAX_CHATS = 10_000
# Messages, and the seconds of any period in which there are at most so many; a little longer than Telegram's, because
# requests take unequally long.
BOT_LIMIT, GROUP_LIMIT = (30, 1.05), (20, 60.5)
PRIVATE_BURST, PRIVATE_INTERVAL = 5, 1.0  # in a private chat Telegram allows short bursts above one message a second


@dataclass(slots=True)
class SlidingWindow:
    """Allows `limit` messages in any period of so many seconds; `times` are those of the sent and the reserved ones."""

    limit: int
    seconds: float
    times: list[float] = field(default_factory=list)
    blocked_until: float = 0.0

    def find_time(self, earliest: float) -> float:
        """Return the first time from `earliest` on at which one more message may be sent."""
        time = max(earliest, self.blocked_until)
        while len(near := self._find_near(time)) >= self.limit:
            time = near[len(near) - self.limit] + self.seconds
        return time

    def count_spare(self, now: float) -> int:
        """Return how many messages could be sent at once."""
        return self.limit - len(self._find_near(now))

    def reserve(self, time: float, now: float) -> None:
        """Count a message that is sent at a time, and forget those that are too old to matter."""
        del self.times[: bisect_right(self.times, now - self.seconds)]
        insort(self.times, time)

    def _find_near(self, time: float) -> list[float]:
        """Return the times that may lie in one period with a time."""
        first = bisect_right(self.times, time, key=lambda at: at + self.seconds)
        return self.times[first : bisect_left(self.times, time + self.seconds)]


@dataclass(slots=True)
class BurstLimit:
    """Allows one message per `interval` seconds, and `burst` at once after a pause, which ends at `next_at`."""

    burst: int
    interval: float
    next_at: float = 0.0
    blocked_until: float = 0.0

    def find_time(self, earliest: float) -> float:
        """Return the first time from `earliest` on at which one more message may be sent."""
        return max(earliest, self.blocked_until, self.next_at - (self.burst - 1) * self.interval)

    def count_spare(self, now: float) -> int:
        """Return how many messages could be sent at once."""
        return self.burst - math.ceil(max(0.0, self.next_at - now) / self.interval)

    def reserve(self, time: float, now: float) -> None:
        """Count a message that is sent at a time."""
        self.next_at = max(self.next_at, time) + self.interval


class RateLimiter:
    """Telegram's limits of one bot: 30 messages a second in all, 1 in a private chat, 20 a minute in a group."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._bot_window = SlidingWindow(*BOT_LIMIT)
        self._chats: BoundedDict[int, SlidingWindow | BurstLimit] = BoundedDict(MAX_CHATS)

    def acquire(self, chat_id: int, max_wait: float) -> float:
        """Reserve a message and return the seconds to wait; nothing is reserved beyond `max_wait`."""
        wait, now = self.wait_seconds(chat_id), self._monotonic()
        if wait <= max_wait:
            self._bot_window.reserve(now + wait, now)
            self._limit_of(chat_id).reserve(now + wait, now)
        return wait

    def try_acquire(self, chat_id: int) -> bool:
        """Return whether an optional request may be sent, and count it; leaves room for messages."""
        now, bot_window = self._monotonic(), self._bot_window
        is_available = (
            not self.wait_seconds(chat_id)
            and bot_window.count_spare(now) >= bot_window.limit / 3
            and self._limit_of(chat_id).count_spare(now) >= 2
        )
        if is_available:
            bot_window.reserve(now, now)
        return is_available

    def wait_seconds(self, chat_id: int) -> float:
        """Return the seconds that a message to a chat has to wait."""
        now = time = self._monotonic()
        limits = (self._bot_window, self._limit_of(chat_id))
        while (later := max(limit.find_time(time) for limit in limits)) > time:
            time = later
        return time - now

    def block(self, chat_id: int, seconds: float) -> None:
        """Block a chat for `seconds`, as requested by Telegram."""
        limit = self._limit_of(chat_id)
        limit.blocked_until = max(limit.blocked_until, self._monotonic() + seconds)

    def _limit_of(self, chat_id: int) -> SlidingWindow | BurstLimit:
        if chat_id not in self._chats:
            is_group = chat_id < 0
            self._chats[chat_id] = (
                SlidingWindow(*GROUP_LIMIT) if is_group else BurstLimit(PRIVATE_BURST, PRIVATE_INTERVAL)
            )
        return self._chats[chat_id]
