"""The one door in: an event is kept before anybody is told that it arrived."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from bot.domain.arrival import Arrival
from bot.domain.clock import Clock, system_clock
from bot.domain.ledger import Outcome, Receipt
from bot.errors import IntakeClosed
from bot.platform.intake import tidied
from bot.store.protocols import Ledger

logger = logging.getLogger(__name__)
Settle = Callable[[Receipt], None]
Process = Callable[[Receipt, Settle], Coroutine[None, None, None]]

TOO_OLD = timedelta(minutes=15)
MOST_ATTEMPTS = 3
MOST_OPEN = 10_000


class Inbox:
    """Keeps what comes in, has it processed, and tells who waits what became of it.

    `process` is awaited once for every new event; it calls `settle` when the receipt is final.
    """

    def __init__(self, ledger: Ledger, process: Process, *, clock: Clock = system_clock) -> None:
        self._ledger = ledger
        self._process = process
        self._clock = clock
        self._is_open = True
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, arrival: Arrival) -> Receipt:
        """Keep a message and start on it; once this returns the platform may be told.

        A message that is known already gets the receipt it has. Raises IntakeClosed while stopping:
        the platform must then not be told.
        """
        if not self._is_open:
            raise IntakeClosed("the bot is stopping; nothing more is taken in")
        now = self._clock()
        [(receipt, is_new)] = await self._ledger.receive([tidied(arrival, now)], now)
        if is_new:
            self._start(receipt)
        return receipt

    async def settled(self, receipt_id: UUID) -> Receipt:
        """Wait until an event has its outcome.

        Raises LookupError for an unknown receipt, IntakeClosed where the process stops before.
        """
        future = self._waiting.setdefault(receipt_id, asyncio.get_running_loop().create_future())
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            self._waiting.pop(receipt_id, None)
            raise LookupError(f"there is no receipt {receipt_id}")
        if receipt.outcome.is_final:
            self._settle(receipt)
            return receipt
        return await asyncio.shield(future)

    async def resume(self) -> int:
        """Take up what an earlier process left open; gives back how many are processed again.

        What is older than fifteen minutes is not answered any more, what failed three times is parked.
        """
        left = await self._ledger.receipts(is_open=True, limit=MOST_OPEN)
        now = self._clock()
        started = 0
        for receipt in reversed(left):
            if now - receipt.received_at > TOO_OLD:
                await self._close(receipt, Outcome.EXPIRED, "it was left unanswered for too long", "restart")
            elif receipt.attempts >= MOST_ATTEMPTS:
                await self._close(receipt, Outcome.PARKED, "the process died on it three times", "restart")
            else:
                self._start(receipt)
                started += 1
        return started

    def close(self) -> None:
        """Take nothing more in."""
        self._is_open = False

    async def drain(self, seconds: float) -> int:
        """Wait for what is being processed, then stop the rest; gives back how many were stopped.

        What is stopped stays open in the ledger, for the next start.
        """
        self.close()
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(IntakeClosed("the bot stopped before this message had its outcome"))
                future.exception()  # whoever waited has it; where nobody did, it is no error
        return len(late)

    def _start(self, receipt: Receipt) -> None:
        task = asyncio.get_running_loop().create_task(self._process(receipt, self._settle))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a message could not be processed; it stays open", exc_info=error)

    def _settle(self, receipt: Receipt) -> None:
        future = self._waiting.pop(receipt.id, None)
        if future is not None and not future.done():
            future.set_result(receipt)

    async def _close(self, receipt: Receipt, outcome: Outcome, reason: str, rule: str) -> None:
        closed = replace(receipt, outcome=outcome, reason=reason, rule=rule, closed_at=self._clock())
        await self._ledger.save_receipts([closed])
        self._settle(closed)
