"""What an account may still spend: its month, its day, and the switch that ends all spending."""

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from adapters.x.config import XSettings, quiet_span
from adapters.x.notes import Notes
from adapters.x.usage import Usage, next_month
from bot import Clock, IntakeClosed, NotSent

logger = logging.getLogger(__name__)
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
