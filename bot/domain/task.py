"""Work for later: a named worker, when it is due, and what it needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

QUEUE = "queue"
REPEAT = "repeat"
IMMEDIATE = "immediate"
AWAITING_CHOICE = "AWAITING_CHOICE"
LONGEST_BACK_OFF = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work for later.

    Tags: `queue` makes it eligible; `repeat` runs it again every `metadata["updateInterval"]`
    milliseconds, or when `metadata["cron"]` says so in `metadata["timezone"]` (UTC); a repeating one that
    is `immediate` runs first when it is scheduled, not one interval later. `metadata["missed"]` says what
    becomes of times that have passed unused: `run_once`, `skip` or `all`. One tagged `AWAITING_CHOICE`
    instead of `queue` waits until somebody in its room has chosen one of `metadata["options"]`; then it
    is queued, and its worker finds the choice in `metadata["choice"]`. `metadata["roles"]` says who may
    choose (OWNER and ADMIN where it says nothing), `metadata["choosers"]`, ids, that nobody else may, and
    `metadata["expiresAt"]` until when. A claimed task is leased: nobody else runs it before
    `leased_until`, and only the holder of `fence` may complete it. `attempts` counts the runs that have
    failed, or ended with their process, since the last that did not.
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
    def key(self) -> str:
        """The name of this run: the same at every attempt of it, another when the task repeats."""
        return f"{self.id}/{self.fence - self.attempts}" if self.repeats else str(self.id)

    @property
    def interval(self) -> timedelta:
        """How long after a run the next one is due."""
        return timedelta(milliseconds=float(self.metadata.get("updateInterval", 0)))

    @property
    def back_off(self) -> timedelta:
        """How long to wait after the present number of failures: 1 s, doubled, at most an hour."""
        return min(timedelta(seconds=2.0 ** min(self.attempts - 1, 12)), LONGEST_BACK_OFF)

    def leased(self, until: datetime) -> Self:
        """Lease it anew; where a lease is still there, the run that held it has not come to its end."""
        attempts = self.attempts + (self.leased_until is not None)
        return replace(self, leased_until=until, fence=self.fence + 1, attempts=attempts)
