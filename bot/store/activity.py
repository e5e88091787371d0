"""`ActivityStore`: figures for operators, in sums: messages by time and platform, and what is open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ActivityBucket:
    """The messages that came in within one span of time, and what became of them.

    `failures` has their number by the rule that their receipts name. The percentiles are of the milliseconds from
    a message's arrival to the end of its work, for answered ones; None without any. `open` are not finished yet.
    """

    start: datetime
    received: int = 0
    answered: int = 0
    open: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    p50_ms: int | None = None
    p95_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PlatformHour:
    """The messages of a platform that came in within the hour that begins at `start`, and when the last one did."""

    platform: str
    start: datetime
    received: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many items wait, and since when the oldest does."""

    count: int = 0
    oldest_at: datetime | None = None

    def plus(self, other: "Backlog") -> "Backlog":
        """Return both together."""
        times = [at for at in (self.oldest_at, other.oldest_at) if at is not None]
        return Backlog(self.count + other.count, min(times, default=None))


@dataclass(frozen=True, slots=True)
class OpenItems:
    """The messages that are being worked on, and the parts of replies that wait, are held, or have failed.

    Parts that an operator has dropped are not counted. `parked` are messages that are not worked on, because they
    came in before a backup was made that was restored.
    """

    turns: Backlog = Backlog()
    waiting: Backlog = Backlog()
    held: Backlog = Backlog()
    failed: Backlog = Backlog()
    parked: Backlog = Backlog()

    def plus(self, other: "OpenItems") -> "OpenItems":
        """Return both together."""
        return OpenItems(
            self.turns.plus(other.turns),
            self.waiting.plus(other.waiting),
            self.held.plus(other.held),
            self.failed.plus(other.failed),
            self.parked.plus(other.parked),
        )


@dataclass(frozen=True, slots=True)
class TaskBacklog:
    """The tasks that should have run already, with the time at which the first was due, and when the next is due."""

    late: Backlog = Backlog()
    next_at: datetime | None = None

    def plus(self, other: "TaskBacklog") -> "TaskBacklog":
        """Return both together."""
        times = [at for at in (self.next_at, other.next_at) if at is not None]
        return TaskBacklog(self.late.plus(other.late), min(times, default=None))


@dataclass(frozen=True, slots=True)
class VoteSum:
    """How many people liked replies of the agent by a reaction, and how many did not, on a day (UTC).

    A person has one vote on a reply: that of their last reaction that says either.
    """

    day: date
    liked: int = 0
    disliked: int = 0


class ActivityStore(Protocol):
    """Sums over receipts, deliveries and tasks. Each method runs a fixed number of queries."""

    async def buckets(self, start: datetime, step: timedelta, count: int, platform: str = "") -> list[ActivityBucket]:
        """Return `count` consecutive spans of `step`, of one platform or of all; the order of arrival counts."""

    async def platform_hours(self, start: datetime, hours: int) -> list[PlatformHour]:
        """Return the hours from `start` in which a platform brought messages."""

    async def last_sent(self) -> Mapping[str, datetime]:
        """Return when a part last left to each platform, as far as the latest parts show it."""

    async def open_items(self) -> OpenItems:
        """Count what is open now."""

    async def votes(self, since: date) -> list[VoteSum]:
        """Return the votes of the days from `since` on that have some, in order."""

    async def votes_of(self, turn_id: UUID) -> VoteSum | None:
        """Return the votes on the replies of a turn, with the day of the last; None if there are none."""

    async def task_backlog(self, due_before: datetime) -> TaskBacklog:
        """Count the tasks that were due before a time and still wait."""
