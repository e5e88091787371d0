"""What a month and a day have cost so far, in a form that a cursor keeps; pure."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, tzinfo
from json import dumps, loads
from typing import Self

from adapters.x.config import Allowance

RESERVE = 0.1  # of the reads: kept for asking what became of a post of ours


@dataclass(frozen=True, slots=True)
class Usage:
    """How many posts were read and written in a month, and written on a day."""

    month: str = ""
    day: str = ""
    reads: int = 0
    posts: int = 0
    today: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` has written; raises ValueError."""
        values = loads(text)
        if not isinstance(values, dict):
            raise ValueError("it is no object")
        return cls(
            month=str(values.get("month", "")),
            day=str(values.get("day", "")),
            reads=int(values.get("reads", 0)),
            posts=int(values.get("posts", 0)),
            today=int(values.get("today", 0)),
        )

    def __str__(self) -> str:
        return dumps(asdict(self))

    def at(self, now: datetime, zone: tzinfo = UTC) -> Self:
        """Begin anew what a new month or a new day begins: the month by UTC, the day by the zone."""
        month, day = now.astimezone(UTC).strftime("%Y-%m"), now.astimezone(zone).strftime("%Y-%m-%d")
        fresh = self if month == self.month else replace(self, month=month, reads=0, posts=0)
        return fresh if day == fresh.day else replace(fresh, day=day, today=0)

    def spent(self, *, reads: int = 0, posts: int = 0) -> Self:
        """Add what was read or written; what was reserved and not used is given back by less than none."""
        return replace(
            self,
            reads=max(self.reads + reads, 0),
            posts=max(self.posts + posts, 0),
            today=max(self.today + posts, 0),
        )

    def reads_left(self, allowance: Allowance, *, with_reserve: bool = False) -> int:
        """How many posts may still be read in the month."""
        kept = 0 if with_reserve else int(allowance.reads * RESERVE)
        return max(allowance.reads - kept - self.reads, 0)

    def posts_left(self, allowance: Allowance) -> int:
        """How many posts may still be written, in the month and on the day."""
        return max(min(allowance.posts - self.posts, allowance.a_day - self.today), 0)


def next_month(now: datetime) -> datetime:
    """The moment at which the month is over."""
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
