"""Endpoint limits, monthly and daily quota, and the off switch.

Small values of one account, stored as cursors so that they survive a restart.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from json import dumps
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter

from adapters.x.config import PlanLimits, XSettings
from adapters.x.incoming import PLATFORM
from bot import Clock, TemporaryError
from bot.platform import AgentHandle, CursorReader, InboxClosed, NotSent, StreamCursor, is_quiet
from bot.store import StoreUnavailable


class AccountState:
    """The stored values of one account; without a handle they can only be read."""

    def __init__(self, read_cursor: CursorReader, account: str, handle: AgentHandle | None = None) -> None:
        self._read_cursor, self._account, self._handle = read_cursor, account, handle

    async def read(self, name: str) -> str:
        """Return a value; empty if there is none."""
        return await self._read_cursor(PLATFORM, self._account, name) or ""

    def cursor(self, name: str, text: str) -> StreamCursor:
        """Return a value as the cursor that is stored together with messages."""
        return StreamCursor(PLATFORM, self._account, name, text)

    async def write(self, name: str, text: str) -> None:
        """Store a value; raises as the inbox does."""
        if self._handle is None:
            raise TemporaryError("a check stores nothing")
        await self._handle.submit_all([], self.cursor(name, text))

    async def write_later(self, name: str, text: str) -> None:
        """Store a value if the store is available: what it records has happened already."""
        with suppress(InboxClosed, StoreUnavailable):
            await self.write(name, text)


logger = logging.getLogger(__name__)

MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 86_400.0
DEFAULT_WAIT_SECONDS = 5.0
TOO_MANY = 429
HEADER_PREFIXES = ("x-rate-limit", "x-user-limit-24hour", "x-app-limit-24hour")
_NUMBER = re.compile(r"(?<=[a-z]/)\d+(?=/|$)")
READ_RESERVE = 0.1  # of the reads: kept for finding out what happened to a post
USAGE_KEY = "usage"
OFF_SWITCH = "x.off"


class EndpointLimits:
    """The rate limits of the endpoints of one account; unknown endpoints are open."""

    def __init__(self) -> None:
        self._closed_until: dict[str, datetime] = {}

    def update(self, endpoint: str, status: int, headers: Mapping[str, str], now: datetime) -> None:
        """Update the limit of an endpoint from a response; waits are bounded to between a second and a day.

        X has limits per quarter of an hour and per day: the one that ends last counts.
        """
        limits = [
            (_parse_number(headers, f"{prefix}-remaining"), _parse_number(headers, f"{prefix}-reset"))
            for prefix in HEADER_PREFIXES
        ]
        resets = [reset for remaining, reset in limits if remaining == 0]
        if status == TOO_MANY and not resets:
            resets = [limits[0][1]]
        if resets:
            until = now + timedelta(seconds=max(_bounded_wait(reset, now) for reset in resets))
            self._closed_until[endpoint] = until
        else:
            self._closed_until.pop(endpoint, None)

    def wait_seconds(self, endpoint: str, now: datetime) -> float:
        """Return the seconds until an endpoint may be called; 0 if it may be called now."""
        until = self._closed_until.get(endpoint)
        return 0.0 if until is None else max((until - now).total_seconds(), 0.0)

    def closed_endpoints(self, now: datetime) -> dict[str, datetime]:
        """Return the endpoints that may not be called, and until when."""
        return {name: until for name, until in self._closed_until.items() if until > now}


def endpoint_of(method: str, path: str) -> str:
    """Return the name of an endpoint: `GET /2/users/:id/mentions`."""
    return f"{method} {_NUMBER.sub(':id', path)}"


def _bounded_wait(reset: float | None, now: datetime) -> float:
    wait = DEFAULT_WAIT_SECONDS if reset is None else reset - now.timestamp()
    return min(max(wait, MIN_WAIT_SECONDS), MAX_WAIT_SECONDS)


def _parse_number(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name, "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


@dataclass(frozen=True, slots=True)
class Usage:
    """The posts read and written in a month, and written on a day."""

    month: str = ""
    day: str = ""
    reads: int = 0
    posts: int = 0
    today: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of `str`; raise ValueError."""
        return TypeAdapter(cls).validate_json(text)

    def __str__(self) -> str:
        return dumps(asdict(self))

    def at_time(self, now: datetime, zone: tzinfo = UTC) -> Self:
        """Return the usage with the counters of an ended month (UTC) or day (`zone`) reset."""
        month, day = now.astimezone(UTC).strftime("%Y-%m"), now.astimezone(zone).strftime("%Y-%m-%d")
        usage = self if month == self.month else replace(self, month=month, reads=0, posts=0)
        return usage if day == usage.day else replace(usage, day=day, today=0)

    def add(self, *, reads: int = 0, posts: int = 0) -> Self:
        """Return the usage plus these posts; negative numbers release a reservation."""
        return replace(
            self, reads=max(self.reads + reads, 0), posts=max(self.posts + posts, 0), today=max(self.today + posts, 0)
        )

    def remaining_reads(self, plan_limits: PlanLimits, *, with_reserve: bool = False) -> int:
        """Return how many posts may still be read this month."""
        reserved = 0 if with_reserve else int(plan_limits.reads * READ_RESERVE)
        return max(plan_limits.reads - reserved - self.reads, 0)

    def remaining_posts(self, plan_limits: PlanLimits) -> int:
        """Return how many posts may still be written, this month and today."""
        return max(min(plan_limits.posts - self.posts, plan_limits.posts_per_day - self.today), 0)


def next_month_start(now: datetime) -> datetime:
    """Return the start of the next month in UTC."""
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


class Quota:
    """Counts posts read and written; survives restarts.

    Reads are reserved before a call and the unused rest is released after it: a crash in between costs
    quota but never exceeds it.
    """

    def __init__(self, settings: XSettings, state: AccountState, folder: Path, clock: Clock) -> None:
        self._settings = settings
        self._state = state
        self._clock = clock
        self._zone = ZoneInfo(settings.x_time_zone)
        self._usage = Usage()
        self.off_switch = folder / OFF_SWITCH  # a file that switches everything off

    async def load(self) -> None:
        """Read the stored usage."""
        text = await self._state.read(USAGE_KEY)
        try:
            self._usage = Usage.parse(text) if text else Usage()
        except ValueError:
            logger.warning("the stored X usage cannot be read; counting starts at zero")

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return self._usage.at_time(self._clock(), self._zone)

    @property
    def is_off(self) -> bool:
        """Whether the off switch, a file in the data folder, exists."""
        return self.off_switch.exists()

    def remaining_reads(self, *, with_reserve: bool = False) -> int:
        """Return how many posts may still be read this month."""
        return self.usage.remaining_reads(self._settings.plan_limits, with_reserve=with_reserve)

    def remaining_posts(self) -> int:
        """Return how many posts may still be written today."""
        return self.usage.remaining_posts(self._settings.plan_limits)

    def check_reads(self, needed: int, remaining: int) -> None:
        """Raise NotSent with the seconds until next month if fewer reads remain than needed."""
        if remaining < needed:
            now = self._clock()
            wait = (next_month_start(now) - now).total_seconds()
            cause = "the month's reads on X are used up (X_PLAN, X_MONTHLY_READS)"
            raise NotSent(cause, retry_after=wait)

    def check_post(self) -> None:
        """Raise NotSent with the seconds until the next day or month if no post may be written now."""
        if self.remaining_posts():
            return
        now, usage = self._clock(), self.usage
        if usage.posts >= self._settings.plan_limits.posts:
            until, cause = (next_month_start(now), "the month's posts on X are used up (X_PLAN, X_MONTHLY_POSTS)")
        else:
            until, cause = self._next_day_start(now), "the day's posts on X are used up (X_POST_DAILY_CAP)"
        raise NotSent(cause, retry_after=(until - now).total_seconds())

    def pause_reason(self) -> str:
        """Return why no scheduled post is published now; empty if one may be."""
        if self.is_off:
            return f"{self.off_switch} is there"
        if not self.remaining_posts():
            return "the posts of the day or of the month are used up"
        return f"X_QUIET_HOURS is {self._settings.x_quiet_hours}" if self._is_quiet_time() else ""

    async def reserve(self, reads: int) -> None:
        """Count reads before they are made; raise StoreUnavailable if that cannot be stored."""
        self._usage = self.usage.add(reads=reads)
        with suppress(InboxClosed):  # stopping: a post must still be reconciled
            await self._state.write(USAGE_KEY, str(self._usage))

    async def release(self, reads: int) -> None:
        """Release reserved reads that were not used."""
        self._usage = self.usage.add(reads=-reads)
        await self._state.write_later(USAGE_KEY, str(self._usage))

    async def record_post(self) -> None:
        """Count a post that was, or may have been, written."""
        self._usage = self.usage.add(posts=1)
        await self._state.write_later(USAGE_KEY, str(self._usage))

    async def release_post(self, at: datetime) -> None:
        """Release a post that was counted at a time on this day and, as it turned out, was not written."""
        if self._usage.at_time(at, self._zone).day == self.usage.day:
            self._usage = self.usage.add(posts=-1)
            await self._state.write_later(USAGE_KEY, str(self._usage))

    def _is_quiet_time(self) -> bool:
        settings = self._settings
        return is_quiet(settings.x_quiet_hours, settings.x_time_zone, self._clock())

    def _next_day_start(self, now: datetime) -> datetime:
        today = now.astimezone(self._zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return today + timedelta(days=1)
