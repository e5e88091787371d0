"""Endpoint windows, monthly and daily quota, off switch."""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from json import dumps, loads
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from adapters.x.config import Allowance, XSettings, quiet_span
from adapters.x.state import Notes
from bot import Clock
from bot.platform import IntakeClosed, NotSent

logger = logging.getLogger(__name__)

SHORTEST, LONGEST = 1.0, 86_400.0
WITHOUT_A_WORD = 5.0
TOO_MANY = 429
KINDS = ("x-rate-limit", "x-user-limit-24hour", "x-app-limit-24hour")
_NUMBER = re.compile(r"(?<=[a-z]/)\d+(?=/|$)")


class Windows:
    """The windows of all endpoints of one account; an endpoint that nothing is known of is open."""

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def note(self, endpoint: str, status: int, headers: Mapping[str, str], now: datetime) -> None:
        """Learn from an answer; the moment of renewal is believed from a second to a day ahead.

        A quarter of an hour and a day have windows of their own: the one that opens last counts.
        """
        told = [(_number(headers, f"{kind}-remaining"), _number(headers, f"{kind}-reset")) for kind in KINDS]
        closed = [reset for remaining, reset in told if remaining == 0]
        if status == TOO_MANY and not closed:
            closed = [told[0][1]]
        if closed:
            until = now + timedelta(seconds=max(_credible(reset, now) for reset in closed))
            self._until[endpoint] = until
        else:
            self._until.pop(endpoint, None)

    def wait(self, endpoint: str, now: datetime) -> float:
        """How many seconds an endpoint must be left alone; 0 where it may be asked."""
        until = self._until.get(endpoint)
        return 0.0 if until is None else max((until - now).total_seconds(), 0.0)

    def closed(self, now: datetime) -> dict[str, datetime]:
        """Give the endpoints that must be left alone, and until when."""
        return {name: until for name, until in self._until.items() if until > now}


def endpoint_of(method: str, path: str) -> str:
    """Name an endpoint: `GET /2/users/:id/mentions`."""
    return f"{method} {_NUMBER.sub(':id', path)}"


def _credible(reset: float | None, now: datetime) -> float:
    wait = WITHOUT_A_WORD if reset is None else reset - now.timestamp()
    return min(max(wait, SHORTEST), LONGEST)


def _number(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name, "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


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


USAGE = "usage"
SWITCH = "x.off"


class Budget:
    """Counts what is read and written, over restarts too.

    What is about to be read is reserved first, and what was not used given back: a crash in between costs
    some of the budget, and never goes over it.
    """

    def __init__(self, settings: XSettings, notes: Notes, folder: Path, clock: Clock) -> None:
        self._settings = settings
        self._notes = notes
        self._clock = clock
        self._zone = ZoneInfo(settings.x_time_zone)
        self._usage = Usage()
        self._switch = folder / SWITCH

    async def load(self) -> None:
        """Find what has been spent before."""
        text = await self._notes.read(USAGE)
        try:
            self._usage = Usage.read(text) if text else Usage()
        except (ValueError, TypeError):
            logger.warning("what was spent on X this month cannot be read; it is counted from now on")

    @property
    def usage(self) -> Usage:
        """What has been spent up to now."""
        return self._usage.at(self._clock(), self._zone)

    @property
    def is_off(self) -> bool:
        """Whether somebody has thrown the switch: a file in the data folder."""
        return self._switch.exists()

    @property
    def switch(self) -> Path:
        """The file that switches everything off."""
        return self._switch

    def reads_left(self, *, with_reserve: bool = False) -> int:
        """How many posts may still be read this month."""
        return self.usage.reads_left(self._settings.allowance, with_reserve=with_reserve)

    def posts_left(self) -> int:
        """How many posts may still be written today."""
        return self.usage.posts_left(self._settings.allowance)

    def check_reads(self, needed: int, left: int) -> None:
        """Raise NotSent, with the time until there are more, where fewer reads are left than needed."""
        if left < needed:
            now = self._clock()
            wait = (next_month(now) - now).total_seconds()
            cause = "the month's reads on X are used up (X_PLAN, X_MONTHLY_READS)"
            raise NotSent(cause, retry_after=wait)

    def check_post(self) -> None:
        """Raise NotSent, with the time until there is more, where no post may be written now."""
        if self.posts_left():
            return
        now, usage = self._clock(), self.usage
        if usage.posts >= self._settings.allowance.posts:
            until, cause = next_month(now), "the month's posts on X are used up (X_PLAN, X_MONTHLY_POSTS)"
        else:
            until, cause = self._tomorrow(now), "the day's posts on X are used up (X_POST_DAILY_CAP)"
        raise NotSent(cause, retry_after=(until - now).total_seconds())

    def why_it_rests(self) -> str:
        """Say why nothing is posted unasked just now; blank where something may be."""
        if self.is_off:
            return f"{self._switch} is there"
        if not self.posts_left():
            return "its posts of the day or of the month are used up"
        return f"X_QUIET_HOURS is {self._settings.x_quiet_hours}" if self._is_quiet() else ""

    async def reserve(self, reads: int) -> None:
        """Count reads before they are made; raises StoreUnavailable where that cannot be kept."""
        self._usage = self.usage.spent(reads=reads)
        with suppress(IntakeClosed):  # stopping: what became of a post is asked all the same
            await self._notes.write(USAGE, str(self._usage))

    async def give_back(self, reads: int) -> None:
        """Take back what was reserved and not read."""
        self._usage = self.usage.spent(reads=-reads)
        await self._notes.jot(USAGE, str(self._usage))

    async def wrote(self) -> None:
        """Count a post that has left, or may have."""
        self._usage = self.usage.spent(posts=1)
        await self._notes.jot(USAGE, str(self._usage))

    def _is_quiet(self) -> bool:
        if not self._settings.x_quiet_hours:
            return False
        start, end = quiet_span(self._settings.x_quiet_hours)
        now = self._clock().astimezone(self._zone).time()
        return start <= now < end if start <= end else now >= start or now < end

    def _tomorrow(self, now: datetime) -> datetime:
        today = now.astimezone(self._zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return today + timedelta(days=1)
