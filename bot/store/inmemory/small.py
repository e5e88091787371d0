"""The cache and the logs in memory."""

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from bot.domain.clock import Clock

MOST_LOGS = 10_000


class InMemoryCache:
    """Keeps small values; see `CacheStore`."""

    def __init__(self, clock: Clock) -> None:
        self._values: dict[str, tuple[Any, datetime | None]] = {}
        self._clock = clock

    async def get(self, key: str) -> Any | None:
        value, expires_at = self._values.get(key, (None, None))
        if expires_at is not None and expires_at <= self._clock():
            self._values.pop(key)
            return None
        return value

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        self._values[key] = (value, expires_at)

    async def drop(self, key: str) -> None:
        self._values.pop(key, None)


class InMemoryLogs:
    """Keeps the last ten thousand entries; see `LogStore`."""

    def __init__(self, clock: Clock) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=MOST_LOGS)
        self._clock = clock

    async def log(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
    ) -> None:
        entry = {"kind": kind, "at": self._clock(), "room_id": room_id, "entity_id": entity_id}
        self._entries.append({**entry, "body": dict(body)})

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        found = (
            entry
            for entry in reversed(self._entries)
            if kind in (None, entry["kind"]) and room_id in (None, entry["room_id"])
        )
        return [entry for entry, _ in zip(found, range(limit), strict=False)]
