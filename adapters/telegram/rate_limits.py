"""How much may be said: a budget for each chat and one for all; status traffic takes what is left."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_CHATS = 10_000


@dataclass(slots=True)
class TokenBucket:
    """So many at once, and so many a second after that."""

    capacity: float
    rate: float
    level: float
    updated_at: float
    blocked_until: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Tell how long the next has to wait."""
        self._refill(now)
        missing = max(0.0, 1.0 - self.level) / self.rate
        return max(missing, self.blocked_until - now)

    def take(self, now: float) -> None:
        """Take one, be it of those that are still to come."""
        self._refill(now)
        self.level -= 1.0

    def _refill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + max(0.0, now - self.updated_at) * self.rate)
        self.updated_at = now


class RateLimiter:
    """Keeps one bot within Telegram's limits: 30 messages a second; in a chat 1, in a group 20 a minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._global_bucket = TokenBucket(30, 30, 30, monotonic())
        self._buckets: OrderedDict[int, TokenBucket] = OrderedDict()

    def acquire(self, chat_id: int, max_wait: float) -> float:
        """Take a place for a message and give the seconds until it comes; none is taken beyond `most`."""
        wait = self.wait_seconds(chat_id)
        if wait <= max_wait:
            now = self._monotonic()
            self._global_bucket.take(now)
            self._bucket_for(chat_id).take(now)
        return wait

    def try_acquire(self, chat_id: int) -> bool:
        """Take a place for what may as well be left out, where nothing else could want it soon."""
        now = self._monotonic()
        chat_bucket = self._bucket_for(chat_id)
        is_available = (
            not self.wait_seconds(chat_id)
            and self._global_bucket.level >= self._global_bucket.capacity / 3
            and chat_bucket.level >= 2
        )
        if is_available:
            self._global_bucket.take(now)
        return is_available

    def wait_seconds(self, chat_id: int) -> float:
        """Tell how long a message to a chat has to wait."""
        now = self._monotonic()
        return max(0.0, self._global_bucket.wait_seconds(now), self._bucket_for(chat_id).wait_seconds(now))

    def block(self, chat_id: int, seconds: float) -> None:
        """Leave a chat alone for as long as Telegram asks."""
        bucket = self._bucket_for(chat_id)
        bucket.blocked_until = max(bucket.blocked_until, self._monotonic() + seconds)

    def _bucket_for(self, chat_id: int) -> TokenBucket:
        if chat_id not in self._buckets:
            capacity, rate = (20.0, 20 / 60) if chat_id < 0 else (5.0, 1.0)
            self._buckets[chat_id] = TokenBucket(capacity, rate, capacity, self._monotonic())
        self._buckets.move_to_end(chat_id)
        while len(self._buckets) > MAX_CHATS:
            self._buckets.popitem(last=False)
        return self._buckets[chat_id]
