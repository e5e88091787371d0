"""How far the mentions are read: what is known up to where, and the gap that is still open below; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self


@dataclass(frozen=True, slots=True)
class Place:
    """Everything up to `since` is kept; so is what lies from `until` to `newest`, and between them is a gap.

    X gives the newest first. A page that is not the last one leaves a gap below it, which is read before
    anything newer: no mention is passed over because the budget ended between two pages. `start` is the
    moment from which on mentions count where none is known yet.
    """

    since: int = 0
    newest: int = 0
    until: int = 0
    start: datetime | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` has written; raises ValueError."""
        first, _, gap = text.partition(" ")
        start = None if first.isdecimal() else datetime.fromisoformat(first)
        newest, _, until = gap.partition(" ")
        return cls(int(first) if start is None else 0, int(newest or 0), int(until or 0), start)

    def __str__(self) -> str:
        first = str(self.since) if self.start is None else self.start.astimezone(UTC).isoformat()
        return f"{first} {self.newest} {self.until}" if self.until else first

    def after(self, ids: Iterable[str], *, lowest: str = "", is_last: bool = True) -> Self:
        """Give the place once a page is kept: `ids` are its mentions, `lowest` the last post on it.

        `is_last` where X has nothing below it. Posts of our own are no mentions: they move nothing but the
        gap's upper end.
        """
        newest = max([self.newest, self.since, *map(int, ids)])
        if is_last:
            return type(self)(since=newest, start=None if newest else self.start)
        return type(self)(self.since, newest, int(lowest or self.until), self.start)

    @property
    def bounds(self) -> dict[str, str | datetime]:
        """The parameters with which the next page is asked for."""
        asked: dict[str, str | datetime] = {}
        if self.start is not None:
            asked["start_time"] = self.start
        elif self.since:
            asked["since_id"] = str(self.since)
        if self.until:
            asked["until_id"] = str(self.until)
        return asked
