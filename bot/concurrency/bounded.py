"""`BoundedSet` and `BoundedDict`: collections that drop the entry used longest ago."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedSet(Generic[T]):
    """A set of at most `max_size` items; adding one more drops the item added longest ago."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._items: dict[T, None] = {}

    def add(self, item: T) -> None:
        """Add an item, as the newest."""
        self._items.pop(item, None)
        self._items[item] = None
        if len(self._items) > self._max_size:
            del self._items[next(iter(self._items))]

    def discard(self, item: T) -> None:
        """Remove an item if it is there."""
        self._items.pop(item, None)

    def __contains__(self, item: T) -> bool:
        return item in self._items


class BoundedDict(OrderedDict[K, V]):
    """A dictionary of at most `max_size`; the least recently used entry is dropped first.

    Reading an entry as `entries[key]` counts as use, `get` does not. With `factory`, a missing key is
    created when it is read.
    """

    def __init__(self, max_size: int, factory: Callable[[], V] | None = None) -> None:
        super().__init__()
        self._max_size = max_size
        self._factory = factory

    def __getitem__(self, key: K) -> V:
        value = super().__getitem__(key)
        self.move_to_end(key)
        return value

    def __missing__(self, key: K) -> V:
        if self._factory is None:
            raise KeyError(key)
        value = self[key] = self._factory()
        return value

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_size:
            del self[next(iter(self))]
