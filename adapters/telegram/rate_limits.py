"""Token buckets per chat and per bot; the typing indicator uses spare capacity only."""

from collections.abc import Callable
from dataclasses import dataclass

from bot.platform import BoundedDict

MAX_CHATS = 10_000


@dataclass(slots=True)
class TokenBucket:
    """`capacity` messages at once, then `rate` per second."""

    capacity: float
    rate: float
    level: float
    updated_at: float
    blocked_until: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the next message may be sent."""
        self._refill(now)
        missing = max(0.0, 1.0 - self.level) / self.rate
        return max(missing, self.blocked_until - now)

    def take(self, now: float) -> None:
        """Take one token, if need be in advance."""
        self._refill(now)
        self.level -= 1.0

    def _refill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + max(0.0, now - self.updated_at) * self.rate)
        self.updated_at = now


class RateLimiter:
    """Telegram's limits of one bot: 30 messages a second in all, 1 in a chat; 20 a minute in a group."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._global_bucket = TokenBucket(30, 30, 30, monotonic())
        self._buckets: BoundedDict[int, TokenBucket] = BoundedDict(MAX_CHATS)

    def acquire(self, chat_id: int, max_wait: float) -> float:
        """Reserve a message and return the seconds to wait; nothing is reserved beyond `max_wait`."""
        wait = self.wait_seconds(chat_id)
        if wait <= max_wait:
            now = self._monotonic()
            self._global_bucket.take(now)
            self._bucket_for(chat_id).take(now)
        return wait

    def try_acquire(self, chat_id: int) -> bool:
        """Return whether an optional request may be sent, and count it; leaves room for messages."""
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
        """Return the seconds that a message to a chat has to wait."""
        now = self._monotonic()
        return max(0.0, self._global_bucket.wait_seconds(now), self._bucket_for(chat_id).wait_seconds(now))

    def block(self, chat_id: int, seconds: float) -> None:
        """Block a chat for `seconds`, as requested by Telegram."""
        bucket = self._bucket_for(chat_id)
        bucket.blocked_until = max(bucket.blocked_until, self._monotonic() + seconds)

    def _bucket_for(self, chat_id: int) -> TokenBucket:
        if chat_id not in self._buckets:
            capacity, rate = (20.0, 20 / 60) if chat_id < 0 else (5.0, 1.0)
            self._buckets[chat_id] = TokenBucket(capacity, rate, capacity, self._monotonic())
        return self._buckets[chat_id]
