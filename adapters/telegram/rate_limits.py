"""How much may be said: a budget for each chat and one for all; status traffic takes what is left."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CHATS = 10_000


@dataclass(slots=True)
class Bucket:
    """So many at once, and so many a second after that."""

    size: float
    rate: float
    level: float
    at: float
    shut_until: float = 0.0

    def wait(self, now: float) -> float:
        """Tell how long the next has to wait."""
        self._fill(now)
        missing = max(0.0, 1.0 - self.level) / self.rate
        return max(missing, self.shut_until - now)

    def take(self, now: float) -> None:
        """Take one, be it of those that are still to come."""
        self._fill(now)
        self.level -= 1.0

    def _fill(self, now: float) -> None:
        self.level = min(self.size, self.level + max(0.0, now - self.at) * self.rate)
        self.at = now


class Floods:
    """Keeps one bot within Telegram's limits: 30 messages a second; in a chat 1, in a group 20 a minute."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._all = Bucket(30, 30, 30, steady())
        self._chats: OrderedDict[int, Bucket] = OrderedDict()

    def reserve(self, chat: int, most: float) -> float:
        """Take a place for a message and give the seconds until it comes; none is taken beyond `most`."""
        wait = self.wait(chat)
        if wait <= most:
            now = self._steady()
            self._all.take(now)
            self._chat(chat).take(now)
        return wait

    def spare(self, chat: int) -> bool:
        """Take a place for what may as well be left out, where nothing else could want it soon."""
        now = self._steady()
        chat_bucket = self._chat(chat)
        is_there = not self.wait(chat) and self._all.level >= self._all.size / 3 and chat_bucket.level >= 2
        if is_there:
            self._all.take(now)
        return is_there

    def wait(self, chat: int) -> float:
        """Tell how long a message to a chat has to wait."""
        now = self._steady()
        return max(0.0, self._all.wait(now), self._chat(chat).wait(now))

    def shut(self, chat: int, seconds: float) -> None:
        """Leave a chat alone for as long as Telegram asks."""
        bucket = self._chat(chat)
        bucket.shut_until = max(bucket.shut_until, self._steady() + seconds)

    def _chat(self, chat: int) -> Bucket:
        if chat not in self._chats:
            size, rate = (20.0, 20 / 60) if chat < 0 else (5.0, 1.0)
            self._chats[chat] = Bucket(size, rate, size, self._steady())
        self._chats.move_to_end(chat)
        while len(self._chats) > MOST_CHATS:
            self._chats.popitem(last=False)
        return self._chats[chat]
