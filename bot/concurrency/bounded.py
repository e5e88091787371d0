"""The last things that were seen: bounded, and quick to ask."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")


class BoundedSet(Generic[T]):
    """Remembers the last so many things; whether something is among them is known at once."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._items: dict[T, None] = {}

    def add(self, item: T) -> None:
        """Remember something, as the latest; the oldest is forgotten where there is no room."""
        self._items.pop(item, None)
        self._items[item] = None
        if len(self._items) > self._max_size:
            del self._items[next(iter(self._items))]

    def discard(self, item: T) -> None:
        """Forget something, if it is remembered."""
        self._items.pop(item, None)

    def __contains__(self, item: T) -> bool:
        return item in self._items


class BoundedDict(Generic[T, V]):
    """Keeps something for each of the last so many keys that were asked for; what is not there is made."""

    def __init__(self, max_size: int, factory: Callable[[], V]) -> None:
        self._max_size = max_size
        self._factory = factory
        self._values: dict[T, V] = {}

    def __getitem__(self, key: T) -> V:
        value = self._values.pop(key) if key in self._values else self._factory()
        self._values[key] = value
        if len(self._values) > self._max_size:
            del self._values[next(iter(self._values))]
        return value
