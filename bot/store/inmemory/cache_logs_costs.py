"""Cache, logs and costs in memory."""

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.ledger import CostDimension, CostEntry, CostKey, CostUsage, ErasedUsage, sum_costs
from bot.store.protocols import LogEntry

MAX_LOGS = 10_000
MIN_SWEEP_SIZE = 1000
MAX_COST_ENTRIES = 100_000


class InMemoryCache:
    """Implements `CacheStore`."""

    def __init__(self, clock: Clock) -> None:
        self._values: dict[str, tuple[str, datetime | None]] = {}
        self._clock = clock
        self._sweep_at = MIN_SWEEP_SIZE

    async def get(self, key: str) -> Any | None:
        text, expires_at = self._values.get(key, ("null", None))
        if expires_at is not None and expires_at <= self._clock():
            self._values.pop(key)
            return None
        return json.loads(text)

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        self._values[key] = (json.dumps(value), expires_at)
        if len(self._values) >= self._sweep_at:
            self._sweep()

    async def delete(self, key: str) -> None:
        self._values.pop(key, None)

    def erase(self, entity_id: UUID) -> None:
        """Delete the values whose keys name a person."""
        self._values = {key: item for key, item in self._values.items() if str(entity_id) not in key}

    def add_if_absent(self, key: str, until: datetime) -> bool:
        """Store a key until a time; return False if it is stored already."""
        _, end = self._values.get(key, ("", self._clock()))
        if end is None or end > self._clock():
            return False
        self._values[key] = ("true", until)
        return True

    def _sweep(self) -> None:
        """Delete expired values that are never read again."""
        now = self._clock()
        expired = [key for key, (_, end) in self._values.items() if end is not None and end <= now]
        for key in expired:
            del self._values[key]
        self._sweep_at = max(MIN_SWEEP_SIZE, 2 * len(self._values))


class InMemoryLogs:
    """Implements `LogStore`, with the last ten thousand entries of each kind."""

    def __init__(self, clock: Clock) -> None:
        self._kinds: defaultdict[str, deque[tuple[int, dict[str, Any]]]]
        self._kinds = defaultdict(lambda: deque(maxlen=MAX_LOGS))
        self._count = 0
        self._clock = clock

    async def log(
        self, kind: str, body: Mapping[str, Any], *, room_id: UUID | None = None, entity_id: UUID | None = None
    ) -> None:
        entry = {"kind": kind, "at": self._clock(), "room_id": room_id, "entity_id": entity_id}
        self._count += 1
        self._kinds[kind].append((self._count, {**entry, "body": dict(body)}))

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            await self.log(entry.kind, entry.body, room_id=entry.room_id, entity_id=entry.entity_id)

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, entity_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        queues = [reversed(entries) for name, entries in self._kinds.items() if kind in (None, name)]
        newest = merge(*queues, key=itemgetter(0), reverse=True)
        entries = (entry for _, entry in newest)
        matches = (
            entry
            for entry in entries
            if room_id in (None, entry["room_id"]) and entity_id in (None, entry["entity_id"])
        )
        return list(islice(matches, limit))

    def erase(self, entity_id: UUID) -> None:
        """Delete the entries about an entity."""
        for entries in self._kinds.values():
            remaining = [entry for entry in entries if entry[1]["entity_id"] != entity_id]
            entries.clear()
            entries.extend(remaining)


class InMemoryCosts:
    """Implements `CostStore`, with the latest sums."""

    def __init__(self) -> None:
        self._sums: dict[CostKey, CostEntry] = {}
        self._erased = ErasedUsage(date.min)

    async def add(self, entries: Sequence[CostEntry]) -> None:
        for entry in entries:
            total = self._sums.get(entry.key)
            self._sums[entry.key] = entry if total is None else total.plus(entry)
        while len(self._sums) > MAX_COST_ENTRIES:
            del self._sums[next(iter(self._sums))]

    def anonymize(self, person_id: UUID, today: date) -> int:
        """Add the costs of a person to those of no person; return the number of sums that named them.

        What they have used today is kept for `erased_usage`.
        """
        entries = [entry for entry in self._sums.values() if entry.person_id == person_id]
        self._erased = self._erased if self._erased.day == today else ErasedUsage(today)
        for entry in entries:
            if entry.day == today:
                self._erased = self._erased.plus(person_id, CostUsage(entry.cost, entry.tokens))
            del self._sums[entry.key]
            other = replace(entry, person_id=None)
            total = self._sums.get(other.key)
            self._sums[other.key] = other if total is None else total.plus(other)
        return len(entries)

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        entries = (entry for entry in self._sums.values() if since <= entry.day <= until)
        return sorted(entries, key=lambda entry: entry.day)

    async def sums_between(self, since: date, until: date, by: Sequence[CostDimension]) -> list[CostEntry]:
        entries = await self.costs_between(since, until)
        return list(sum_costs(entries, lambda entry: tuple(getattr(entry, dimension) for dimension in by)).values())

    async def erased_usage(self, day: date) -> ErasedUsage:
        return self._erased if self._erased.day == day else ErasedUsage(day)
