"""`KnownPeople`: users seen per channel; only they may be mentioned there."""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class KnownPeople(Generic[C]):
    """Users who wrote in a channel lately, for each of the channels used last.

    Only they may be mentioned there, so that a model cannot be made to notify strangers. Belongs to one
    account; at most `max_channels` channels and `max_people` users of each are remembered.
    """

    def __init__(self, *, max_channels: int = 2000, max_people: int = 200) -> None:
        self._max_channels = max_channels
        self._max_people = max_people
        self._bots: dict[str, None] = {}
        self._users: dict[C, dict[str, None]] = {}

    def add_bot(self, user: str) -> None:
        """Allow a user in every channel: the account's own name, which calls no other person."""
        self._bots[user] = None

    def note_user(self, channel: C, user: str) -> None:
        """Record that a user wrote in a channel."""
        users = self._users.pop(channel, {})
        users.pop(user, None)
        users[user] = None
        self._users[channel] = users
        if len(users) > self._max_people:
            del users[next(iter(users))]
        if len(self._users) > self._max_channels:
            del self._users[next(iter(self._users))]

    def of(self, channel: C) -> Collection[str]:
        """Return the users who may be mentioned in a channel: the account's own names and recent authors."""
        return {**self._bots, **self._users.get(channel, {})}.keys()
