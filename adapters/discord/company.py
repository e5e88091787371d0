"""Who has been heard in a channel, and which channels cannot be written to; kept in memory, bounded."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

MOST_CHANNELS = 2000
MOST_PEOPLE = 200


class Company:
    """Remembers people by channel: nobody else is ever told that they were named there."""

    def __init__(self) -> None:
        self._people: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._gone: OrderedDict[str, str] = OrderedDict()

    def heard(self, channel: str, user: str) -> None:
        """Somebody has said something in a channel; so it is there, and we may read it."""
        self._gone.pop(channel, None)
        people = self._people.setdefault(channel, OrderedDict())
        people[user] = None
        people.move_to_end(user)
        self._people.move_to_end(channel)
        _bound(people, MOST_PEOPLE)
        _bound(self._people, MOST_CHANNELS)

    def of(self, channel: str) -> Collection[str]:
        """List who has been heard in a channel lately."""
        return self._people.get(channel, {}).keys()

    def gone(self, channel: str, cause: str) -> None:
        """A channel does not take what we say; it is left alone until something is heard from it."""
        self._gone[channel] = cause
        _bound(self._gone, MOST_CHANNELS)

    def why_gone(self, channel: str) -> str:
        """Say why a channel is left alone; empty where it is not."""
        return self._gone.get(channel, "")


def _bound(books: OrderedDict[str, Any], most: int) -> None:
    while len(books) > most:
        books.popitem(last=False)
