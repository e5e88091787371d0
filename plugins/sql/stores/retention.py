"""Deletes expired rows in small steps.

Memories are never among it. Each step looks at so many rows of one agent, removes those that are over and
too old, and tells where the next one goes on: None where it has come to rows that stay.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import takewhile
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self

from sqlalchemy import ColumnElement, Connection, and_, delete, literal, select

from bot import Clock, system_clock
from bot.platform import DeliveryState
from bot.store import AUDIT
from plugins.sql.core.base import Access, Owner
from plugins.sql.core.schema import cache, deliveries, logs, receipts, spending, steps
from plugins.sql.core.values import moment, moment_of

logger = logging.getLogger(__name__)

MOST = 25  # in about two milliseconds
OVER = (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.CANCELLED)
TIME_BITS = 48  # that a time-ordered id begins with, in milliseconds


@dataclass(frozen=True, slots=True)
class Trimmed:
    """How many rows a step has removed, and where the next one goes on."""

    count: int
    after: Any = None


class Step(Protocol):
    """Removes some of an agent's rows from before a moment; `after` is where the one before it ended."""

    def __call__(self, connection: Connection, /, agent: int, before: int, after: Any) -> Trimmed: ...


def last_but(connection: Connection, agent: int, keep: int) -> int:
    """Find the position of the newest receipt behind so many newer ones; 0 where there is none."""
    newest = select(receipts.c.position).where(receipts.c.agent_id == agent)
    return connection.scalar(newest.order_by(receipts.c.position.desc()).limit(1).offset(keep)) or 0


def trim_receipts(connection: Connection, agent: int, before: int, after: Any, last: int = 0) -> Trimmed:
    """Remove closed receipts up to a position: as long as one is there, its event is known again."""
    return _in_order(
        connection,
        and_(receipts.c.agent_id == agent, receipts.c.position <= last),
        receipts.c.received_at,
        receipts.c.is_open == 0,
        before,
        after,
    )


def trim_deliveries(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove parts that were sent, failed or dropped; what is held waits for a person."""
    is_over = deliveries.c.state.in_([state.value for state in OVER])
    of_agent = deliveries.c.agent_id == agent
    return _in_order(connection, of_agent, deliveries.c.created_at, is_over, before, after)


def trim_logs(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove entries, but no decisions."""
    which = and_(logs.c.agent_id == agent, logs.c.kind != AUDIT)
    return _in_order(connection, which, logs.c.at, literal(1) == 1, before, after)


def trim_decisions(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove what the log says of who was allowed what."""
    which = and_(logs.c.agent_id == agent, logs.c.kind == AUDIT)
    return _in_order(connection, which, logs.c.at, literal(1) == 1, before, after)


def _in_order(
    connection: Connection,
    which: ColumnElement[bool],
    at: ColumnElement[int],
    is_over: ColumnElement[bool],
    before: int,
    after: Any,
) -> Trimmed:
    """Go through rows in the order in which they were made; one that is too young ends it."""
    table: Any = at.table
    position = table.c.position
    look = select(position, at, is_over).where(which, position > (after or 0)).order_by(position).limit(MOST)
    rows = connection.execute(look).all()
    old = list(takewhile(lambda row: row[1] < before, rows))
    gone = [row[0] for row in old if row[2]]
    if gone:
        connection.execute(delete(table).where(position.in_(gone)))
    return Trimmed(len(gone), old[-1][0] if len(old) == MOST else None)


def trim_steps(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove the journal of turns that are over; a turn's id begins with its time."""
    turn = steps.c.turn_id
    youngest = (before // 1000 << (128 - TIME_BITS)).to_bytes(16, "big")
    of_agent = steps.c.agent_id == agent
    look = select(turn, steps.c.at).where(of_agent, turn > (after or bytes(16)), turn < youngest)
    rows = connection.execute(look.order_by(turn, steps.c.key).limit(MOST)).all()
    busy = select(receipts.c.turn_id).where(
        receipts.c.agent_id == agent, receipts.c.is_open == 1, receipts.c.turn_id.is_not(None)
    )
    kept = {bytes(row[0]) for row in connection.execute(busy)}
    kept |= {bytes(row[0]) for row in rows if row[1] is not None and row[1] >= before}
    gone = list({bytes(row[0]) for row in rows} - kept)
    count = connection.execute(delete(steps).where(of_agent, turn.in_(gone))).rowcount if gone else 0
    return Trimmed(count, bytes(rows[-1][0]) if len(rows) == MOST else None)


def trim_cache(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove values that are over."""
    of_agent = cache.c.agent_id == agent
    look = select(cache.c.key).where(of_agent, cache.c.expires_at <= before).limit(MOST)
    gone = list(connection.scalars(look))
    if gone:
        connection.execute(delete(cache).where(of_agent, cache.c.key.in_(gone)))
    return Trimmed(len(gone), "more" if len(gone) == MOST else None)


def trim_spending(connection: Connection, agent: int, before: int, after: Any) -> Trimmed:
    """Remove the sums of days that are long gone, a day at a time."""
    of_agent = spending.c.agent_id == agent
    look = select(spending.c.day).where(of_agent, spending.c.day < moment_of(before).date().isoformat())
    day = connection.scalar(look.order_by(spending.c.day).limit(1))
    if day is None:
        return Trimmed(0)
    count = connection.execute(delete(spending).where(of_agent, spending.c.day == day)).rowcount
    return Trimmed(count, day)


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
