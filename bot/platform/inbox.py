"""The one door in: an event is kept before anybody is told that it arrived."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from bot.domain.arrival import Arrival
from bot.domain.clock import Clock, system_clock
from bot.domain.ledger import Outcome, Receipt
from bot.errors import IntakeClosed, TryAgain
from bot.platform.intake import tidied
from bot.platform.unbroken import Unbroken
from bot.store.protocols import Ledger

logger = logging.getLogger(__name__)
Settle = Callable[[Receipt], None]
Process = Callable[[Receipt, Settle], Coroutine[None, None, None]]

TOO_OLD = timedelta(minutes=15)
MOST_OPEN = 10_000
MOST_BEGUN = 1000
LET_GO = 2.0


class Inbox:
    """Keeps what comes in, has it processed, and tells who waits what became of it.

    `process` is awaited once for every new event; it calls `settle` when the receipt is final, and
    may leave that to the processing of a newer event. Where it raises, the event stays open.
    """

    def __init__(self, ledger: Ledger, process: Process, *, clock: Clock = system_clock) -> None:
        self._ledger = ledger
        self._process = process
        self._clock = clock
        self._is_open = True
        self._is_drained = False
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[UUID] = set()  # receipts: taken up by this process and not settled yet
        self._begun: deque[UUID] = deque(maxlen=MOST_BEGUN)  # `put` may not know yet what `resume` began
        self._keeping = Unbroken()

    async def put(self, arrival: Arrival) -> Receipt:
        """Keep a message and start on it; once this returns the platform may be told.

        A message that is known already gets the receipt it has; where that is open and nobody works
        on it, it is taken up again. Raises IntakeClosed while stopping: the platform must then not be
        told.
        """
        if not self._is_open:
            raise IntakeClosed("the bot is stopping; nothing more is taken in")
        now = self._clock()
        kept = self._keeping.begin(self._ledger.receive([tidied(arrival, now)], now))
        try:
            [(receipt, is_new)] = await asyncio.shield(kept)
        except asyncio.CancelledError:
            kept.add_done_callback(self._kept)
            raise
        if is_new:
            self._begin(receipt)
        else:
            await self._take_up(receipt)
        return receipt

    async def settled(self, receipt_id: UUID) -> Receipt:
        """Wait until an event has its outcome; it is named by its receipt's id or its message's.

        Where it is open and nobody works on it, it is taken up again. Raises LookupError for an
        unknown one, IntakeClosed where the process stops before, TryAgain where it could not be
        processed and stays open.
        """
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            raise LookupError(f"there is no receipt {receipt_id}")
        future = self._waiting.setdefault(receipt.id, asyncio.get_running_loop().create_future())
        receipt = await self._ledger.receipt(receipt.id) or receipt  # it may have got its outcome meanwhile
        if receipt.outcome.is_final:
            self._settle(receipt)
            return receipt
        if self._is_drained:
            self._give_up(receipt.id, _stopped())
        else:
            await self._take_up(receipt)
        return await asyncio.shield(future)

    async def resume(self) -> int:
        """Take up what an earlier process left open; gives back how many are processed again.

        What is older than fifteen minutes is not answered any more.
        What this process has under way already is left alone.
        """
        left = await self._ledger.receipts(is_open=True, limit=MOST_OPEN)
        return sum([await self._take_up(receipt) for receipt in reversed(left)])

    def close(self) -> None:
        """Take nothing more in."""
        self._is_open = False

    async def drain(self, seconds: float) -> int:
        """Wait for what is being processed, then stop the rest; gives back how many were stopped.

        What is stopped stays open in the ledger, for the next start. What does not stop is left alone.
        """
        self.close()
        await self._keeping.wait(min(seconds, LET_GO))
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LET_GO)
        self._is_drained = True
        for receipt_id in list(self._waiting):
            self._give_up(receipt_id, _stopped())
        return len(late)

    def _kept(self, kept: asyncio.Task[list[tuple[Receipt, bool]]]) -> None:
        """Start on what was kept after whoever brought it had hung up."""
        if not kept.cancelled() and kept.exception() is None:
            for receipt, is_new in kept.result():
                if is_new:
                    self._begin(receipt)

    def _begin(self, receipt: Receipt) -> None:
        """Start on a new event, unless `resume` has done so between its commit and here."""
        if self._is_open and receipt.id not in self._under_way and receipt.id not in self._begun:
            self._start(receipt)

    async def _take_up(self, receipt: Receipt) -> bool:
        """Start on an event that may have been left open; tells whether it did.

        It is marked first and read again then: whoever worked on it before has written down the end.
        """
        if receipt.id in self._under_way or receipt.outcome.is_final:
            return False
        self._under_way.add(receipt.id)
        try:
            receipt = await self._ledger.receipt(receipt.id) or receipt
            if not receipt.outcome.is_final and self._is_open:
                receipt = await self._judged(receipt)
        except BaseException:
            self._under_way.discard(receipt.id)
            raise
        if receipt.outcome.is_final:
            self._settle(receipt)
        elif self._is_open:
            self._start(receipt)
            return True
        self._under_way.discard(receipt.id)
        return False

    async def _judged(self, receipt: Receipt) -> Receipt:
        """Close what is too old to be answered."""
        now = self._clock()
        if now - receipt.received_at <= TOO_OLD:
            return receipt
        reason = "it was left unanswered for too long"
        closed = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule="restart", closed_at=now)
        await self._ledger.save_receipts([closed])
        return closed

    def _start(self, receipt: Receipt) -> None:
        self._under_way.add(receipt.id)
        self._begun.append(receipt.id)
        task = asyncio.get_running_loop().create_task(self._process(receipt, self._settle))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, receipt.id))

    def _done(self, receipt_id: UUID, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("message %s could not be processed; it stays open", receipt_id, exc_info=error)
        if (error is not None or task.cancelled()) and self._is_open:
            self._under_way.discard(receipt_id)
            cause = TryAgain(f"message {receipt_id} could not be processed; the next start takes it up")
            self._give_up(receipt_id, cause)

    def _settle(self, receipt: Receipt) -> None:
        self._under_way.discard(receipt.id)
        future = self._waiting.pop(receipt.id, None)
        if future is not None and not future.done():
            future.set_result(receipt)

    def _give_up(self, receipt_id: UUID, error: Exception) -> None:
        future = self._waiting.pop(receipt_id, None)
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # whoever waits has it; where nobody does, it is no error


def _stopped() -> IntakeClosed:
    return IntakeClosed("the bot stopped before this message had its outcome")
