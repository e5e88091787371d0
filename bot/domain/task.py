"""Work for later: a named worker, when it is due, and what it needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

QUEUE = "queue"
REPEAT = "repeat"
IMMEDIATE = "immediate"
LONGEST_BACK_OFF = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work for later.

    Tags: `queue` makes it eligible, `repeat` runs it again every `metadata["updateInterval"]`
    milliseconds, `immediate` makes a repeating one due at once. A claimed task is leased:
    nobody else runs it before `leased_until`, and only the holder of `fence` may complete it.
    """

    id: UUID
    name: str
    next_run: datetime
    description: str = ""
    room_id: UUID | None = None
    world_id: UUID | None = None
    entity_id: UUID | None = None
    tags: frozenset[str] = frozenset({QUEUE})
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 0
    leased_until: datetime | None = None
    fence: int = 0
    is_parked: bool = False
    last_error: str = ""

    @property
    def repeats(self) -> bool:
        """Whether it stays after a successful run."""
        return REPEAT in self.tags

    @property
    def interval(self) -> timedelta:
        """How long after a run the next one is due."""
        return timedelta(milliseconds=float(self.metadata.get("updateInterval", 0)))

    @property
    def back_off(self) -> timedelta:
        """How long to wait after the present number of failures: 1 s, doubled, at most an hour."""
        return min(timedelta(seconds=2.0 ** min(self.attempts - 1, 12)), LONGEST_BACK_OFF)
