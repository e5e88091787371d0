"""How long things are kept that nobody needs any more, and the quiet work of removing them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Self

from bot import Clock, system_clock
from plugins.sql.book import Access
from plugins.sql.owner import Owner
from plugins.sql.trimming import (
    Step,
    last_but,
    trim_cache,
    trim_decisions,
    trim_deliveries,
    trim_logs,
    trim_receipts,
    trim_spending,
    trim_steps,
)
from plugins.sql.values import moment

logger = logging.getLogger(__name__)

FIRST, EVERY = 60.0, 3600.0
SHARE = 20  # of the time: one part of work, so many parts of rest
LONGEST_REST = 5.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long what is over is kept; receipts for so long and for so many, whichever is more."""

    receipts: timedelta = timedelta(days=30)
    receipt_rows: int = 1_000_000
    deliveries: timedelta = timedelta(days=30)
    steps: timedelta = timedelta(days=7)
    logs: timedelta = timedelta(days=30)
    decisions: timedelta = timedelta(days=400)
    spending: timedelta = timedelta(days=400)


DEFAULTS = Keeping()


class Retention:
    """Removes what is over as long as it is entered: an hour apart, a few rows at a time.

    Between two times it rests so long that others hardly notice; the space is used again by new rows.
    """

    def __init__(
        self,
        database: Access,
        owner: Owner,
        keeping: Keeping = DEFAULTS,
        *,
        clock: Clock = system_clock,
        rest: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._agent = owner.number
        self._keeping = keeping
        self._clock = clock
        self._rest = rest
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop between two steps."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])

    async def sweep(self) -> int:
        """Remove all that is over, resting in between; gives how many rows that were."""
        last = await self._database.search(
            partial(last_but, agent=self._agent, keep=self._keeping.receipt_rows)
        )
        return sum([await self._trim(step, age) for step, age in self._chores(last)])

    async def _run(self) -> None:
        await self._rest(FIRST)
        while True:
            try:
                count = await self.sweep()
                logger.debug("%d rows were removed that nobody needs any more", count)
            except Exception:  # the database's fault, which its own watch reports: the next hour tries again
                logger.debug("what is over could not be removed", exc_info=True)
            await self._rest(EVERY)

    def _chores(self, last: int) -> Iterator[tuple[Step, timedelta]]:
        keeping = self._keeping
        yield partial(trim_receipts, last=last), keeping.receipts
        yield trim_deliveries, keeping.deliveries
        yield trim_steps, keeping.steps
        yield trim_logs, keeping.logs
        yield trim_decisions, keeping.decisions
        yield trim_spending, keeping.spending
        yield trim_cache, timedelta()

    async def _trim(self, step: Step, age: timedelta) -> int:
        before, after, count = moment(self._clock() - age), None, 0
        while True:
            started = perf_counter()
            work = partial(step, agent=self._agent, before=before, after=after)
            done = await self._database.write(work)
            count += done.count
            after = done.after
            if after is None:
                return count
            await self._rest(min(SHARE * (perf_counter() - started), LONGEST_REST))
