"""The last things that were seen: bounded, and quick to ask."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[T]):
    """Remembers the last so many things; whether something is among them is known at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[T, None] = {}

    def add(self, one: T) -> None:
        """Remember something, as the latest; the oldest is forgotten where there is no room."""
        self._seen.pop(one, None)
        self._seen[one] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]

    def discard(self, one: T) -> None:
        """Forget something, if it is remembered."""
        self._seen.pop(one, None)

    def __contains__(self, one: T) -> bool:
        return one in self._seen


class Latest(Generic[T, V]):
    """Keeps something for each of the last so many keys that were asked for; what is not there is made."""

    def __init__(self, most: int, make: Callable[[], V]) -> None:
        self._most = most
        self._make = make
        self._kept: dict[T, V] = {}

    def __getitem__(self, key: T) -> V:
        found = self._kept.pop(key) if key in self._kept else self._make()
        self._kept[key] = found
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return found
