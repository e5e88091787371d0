"""`Inbox`: persist, acknowledge, wait for the outcome."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from bot.concurrency.bounded import Remembered
from bot.concurrency.clock import Clock, Patience, system_clock
from bot.concurrency.crash_points import reached
from bot.concurrency.tasks import Unbroken
from bot.domain.ids import new_id
from bot.domain.inbound import TOO_OLD, Arrival, Cursor, Received
from bot.domain.ledger import Outcome, Receipt
from bot.errors import IntakeClosed, StoreUnavailable, TryAgain
from bot.inbound.processing import Postponed
from bot.inbound.sanitize import tidied
from bot.store.ledger import Ledger, Trouble

logger = logging.getLogger(__name__)

T = TypeVar("T")
Settle = Callable[[Receipt], None]
Process = Callable[[Received, Settle], Coroutine[None, None, None]]

MOST_OPEN = 10_000
MOST_BEGUN = 1000
MOST_RESUMED = 50
LET_GO = 1.0


class Inbox:
    """Keeps what comes in, has it processed, and tells who waits what became of it.

    `process` is awaited once for every new event; it calls `settle` when the receipt is final, and
    may leave that to the processing of a newer event. Where it raises, the event stays open. What the
    store's outage cut short, by raising StoreUnavailable or by settling what is not final, is gone back
    to when the outage is over. In a room that this process does not hold events are kept and left alone;
    so is what an earlier process left of a platform that this one does not reach. `ended` is told of every
    receipt that is final.
    """

    def __init__(
        self,
        ledger: Ledger,
        process: Process,
        *,
        holds: Callable[[UUID], bool] = lambda room_id: True,
        reaches: Callable[[str], bool] = lambda platform: True,
        ended: Settle = lambda receipt: None,
        clock: Clock = system_clock,
        patience: Patience | None = None,
    ) -> None:
        self._ledger = ledger
        self._process = process
        self._holds = holds
        self._reaches = reaches
        self._ended = ended
        self._clock = clock
        self._patience = patience or Patience()
        self._is_open = True
        self._is_drained = False
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[UUID] = set()  # receipts: taken up by this process and not settled yet
        self._begun = Remembered[UUID](MOST_BEGUN)  # `put` may not know yet what `resume` began
        self._keeping = Unbroken()
        self._places = asyncio.Semaphore(MOST_RESUMED)
        self._postponed = Postponed(ledger.health, self._come_back)

    @property
    def trouble(self) -> Trouble | None:
        """What keeps everything from being taken in just now."""
        return self._ledger.health.trouble

    async def put(self, arrival: Arrival) -> Receipt:
        """Keep a message and start on it; once this returns the platform may be told.

        A message that is known already gets the receipt it has; where that is open and nobody works
        on it, it is taken up again. Raises IntakeClosed while stopping, StoreUnavailable while nothing
        can be kept: the platform must then not be told.
        """
        [receipt] = await self.put_all([arrival])
        return receipt

    async def put_all(self, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> list[Receipt]:
        """Keep a batch as `put` does one, all of it or nothing, and with it how far the stream is read."""
        if not self._is_open:
            raise IntakeClosed("the bot is stopping; nothing more is taken in")
        self._ledger.health.check()
        now = self._clock()
        bounded = [tidied(arrival, now) for arrival in arrivals]
        reached("ingress.pre_commit")
        kept = self._keeping.begin(self._ledger.receive(bounded, now, cursor))
        try:
            received = await asyncio.shield(kept)
        except asyncio.CancelledError:
            kept.add_done_callback(self._kept)
            raise
        reached("ingress.post_commit")
        for one in received:
            if one.is_new:
                self._begin(one)
            else:
                await self._take_up(one.receipt)
        return [one.receipt for one in received]

    async def carry_out(self, change: Coroutine[Any, Any, T]) -> T:
        """Have a change kept, to its end also where whoever brought it hangs up; raises as `put` does."""
        try:
            if not self._is_open:
                raise IntakeClosed("the bot is stopping; nothing more is taken in")
            self._ledger.health.check()
            task = self._keeping.begin(change)
        except BaseException:
            change.close()
            raise
        return await asyncio.shield(task)

    async def begin(self, received: Received) -> None:
        """Start on an event that was kept by another road than `put`."""
        if received.is_new:
            self._begin(received)
        else:
            await self._take_up(received.receipt)

    async def begin_again(self, receipt_id: UUID) -> None:
        """Start afresh on an event whose turn was called off; that does not count as an attempt."""
        self._under_way.discard(receipt_id)
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is not None and not receipt.outcome.is_final:
            fresh = replace(receipt, turn_id=new_id(), attempts=receipt.attempts - 1)
            await self._ledger.save_receipts([fresh])
            await self._take_up(fresh)

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find how far a stream has been read; None where nothing has been kept of it."""
        return await self._ledger.cursor(platform, account, name)

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Find what the platform calls the last message that was kept of each room, where there is one.

        To be asked before anything new of these rooms is put: whatever came after it has been missed.
        """
        return await self._ledger.last_seen(room_ids)

    async def settled(self, receipt_id: UUID) -> Receipt:
        """Wait until an event has its outcome; it is named by its receipt's id or its message's.

        Where it is open and nobody works on it, it is taken up again. Raises LookupError for an
        unknown one, IntakeClosed where the process stops before, TryAgain where it could not be
        processed and stays open.
        """
        if receipt_id in self._under_way and not self._is_drained:
            return await asyncio.shield(self._future(receipt_id))
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            raise LookupError(f"there is no receipt {receipt_id}")
        future = self._future(receipt.id)
        receipt = await self._ledger.receipt(receipt.id) or receipt  # it may have got its outcome meanwhile
        if receipt.outcome.is_final:
            self.settle(receipt)
            return receipt
        if self._is_drained:
            self._give_up(receipt.id, _stopped())
        else:
            await self._take_up(receipt)
        return await asyncio.shield(future)

    def _future(self, receipt_id: UUID) -> asyncio.Future[Receipt]:
        return self._waiting.setdefault(receipt_id, asyncio.get_running_loop().create_future())

    async def resume(self) -> int:
        """Take up what an earlier process left open; gives back how many are processed again.

        To be called again when another platform is connected: what this process has under way already is
        left alone. What is older than fifteen minutes is not answered any more. After a long outage that
        may be thousands: fifty of them are processed at once, beside all that is new.
        """
        left = await self._ledger.receipts(is_open=True, limit=MOST_OPEN)
        ours = [receipt for receipt in reversed(left) if self._reaches(receipt.key.platform)]
        return sum([await self._take_up(receipt) for receipt in ours])

    async def relearn(self) -> int:
        """Have an earlier process's closed events learnt from, and count them; after `resume`."""
        left = [one for one in await self._ledger.unlearnt() if self._is_left(one)]
        for receipt in left:
            self._start(Received(receipt))
        return len(left)

    def _is_left(self, receipt: Receipt) -> bool:
        is_begun = receipt.id in self._begun  # and may be learnt from just now
        return not is_begun and self._holds(receipt.room_id) and self._reaches(receipt.key.platform)

    async def settle_others(self) -> None:
        """Tell those who wait for what another process has worked on."""
        for receipt_id in [one for one in self._waiting if one not in self._under_way]:
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None and receipt.outcome.is_final:
                self.settle(receipt)

    async def abandon(self) -> None:
        """Stop all that is under way: another process does it. Who waits for it waits on."""
        self._under_way.clear()
        self._begun = Remembered[UUID](MOST_BEGUN)
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LET_GO)

    def close(self) -> None:
        """Take nothing more in."""
        self._is_open = False

    async def drain(self, seconds: float) -> int:
        """Wait for what is being processed, then stop the rest; gives back how many were stopped.

        What is stopped stays open in the ledger, for the next start. What does not stop is left alone.
        """
        self.close()
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        await self._keeping.wait(min(seconds, LET_GO))
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=max(0.0, end - clock()))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=self._patience.left(LET_GO))
        self._postponed.stop()
        self._is_drained = True
        for receipt_id in list(self._waiting):
            self._give_up(receipt_id, _stopped())
        return len(late)

    def _kept(self, kept: asyncio.Task[list[Received]]) -> None:
        """Start on what was kept after whoever brought it had hung up."""
        if not kept.cancelled() and kept.exception() is None:
            for received in kept.result():
                if received.is_new:
                    self._begin(received)

    def _begin(self, received: Received) -> None:
        """Start on a new event, unless `resume` has done so between its commit and here."""
        receipt_id = received.receipt.id
        if received.receipt.outcome.is_final:  # it is kept, and too old to be answered
            self.settle(received.receipt)
            return
        is_ours = received.is_ours and self._holds(received.receipt.room_id)
        is_begun = receipt_id in self._under_way or receipt_id in self._begun
        if self._is_open and is_ours and not is_begun:
            self._start(received)

    async def _take_up(self, receipt: Receipt, *, spoiled: int = 0) -> bool:
        """Start on an event that may have been left open; tells whether it did.

        It is marked first and read again then: whoever worked on it before has written down the end.
        Tries that an outage has spoiled do not count.
        """
        is_ours = self._holds(receipt.room_id)
        if receipt.id in self._under_way or receipt.outcome.is_final or not is_ours:
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
            self.settle(receipt)
        elif self._is_open:
            self._start(Received(replace(receipt, attempts=receipt.attempts - spoiled)))
            return True
        self._under_way.discard(receipt.id)
        return False

    async def _come_back(self, receipt_id: UUID) -> None:
        """Take up again what an outage cut short; its last word may have been kept all the same."""
        receipt = await self._ledger.receipt(receipt_id)
        self._under_way.discard(receipt_id)
        if receipt is not None and receipt.outcome.is_final:
            self._start(Received(receipt))
        elif receipt is not None:
            await self._take_up(receipt, spoiled=1)

    async def _judged(self, receipt: Receipt) -> Receipt:
        """Close what is too old to be answered."""
        now = self._clock()
        if now - receipt.received_at <= TOO_OLD:
            return receipt
        reason = "it was left unanswered for too long"
        closed = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule="restart", closed_at=now)
        await self._ledger.save_receipts([closed])
        return closed

    def _start(self, received: Received) -> None:
        receipt_id = received.receipt.id
        self._under_way.add(receipt_id)
        self._begun.add(receipt_id)
        task = asyncio.get_running_loop().create_task(self._work(received))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, receipt_id))

    async def _work(self, received: Received) -> None:
        if received.is_new:
            await self._process(received, self.settle)
            return
        async with self._places:
            await self._process(received, self.settle)

    def _done(self, receipt_id: UUID, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if receipt_id not in self._under_way and (error is not None or task.cancelled()):
            return  # it was abandoned
        if isinstance(error, StoreUnavailable) and self._is_open:
            self._postponed.add(receipt_id)
            return
        if error is not None:
            logger.error("message %s could not be processed; it stays open", receipt_id, exc_info=error)
        if (error is not None or task.cancelled()) and self._is_open:
            self._under_way.discard(receipt_id)
            cause = TryAgain(f"message {receipt_id} could not be processed; the next start takes it up")
            self._give_up(receipt_id, cause)

    def settle(self, receipt: Receipt) -> None:
        """Tell whoever waits for an event that it has its outcome."""
        if not receipt.outcome.is_final:
            self._postponed.add(receipt.id)
            return
        self._begun.add(receipt.id)  # it may have been closed before `put` knew that it is kept
        self._under_way.discard(receipt.id)
        self._ended(receipt)
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


LATER = (IntakeClosed, TryAgain)  # it comes again, and must


async def put_surely(inbox: Inbox, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> None:
    """Keep a batch and how far the stream is read; what the store will never take is left out, with a word.

    Raises IntakeClosed and TryAgain as the inbox does.
    """
    try:
        await inbox.put_all(arrivals, cursor)
    except LATER:
        raise
    except Exception:  # one message that the store refuses must not stop all that follow
        logger.warning("%d messages could not be kept together; they are kept one by one", len(arrivals))
        for one in arrivals:
            await _put(inbox, one)
        if cursor is not None:
            await inbox.put_all([], cursor)


async def _put(inbox: Inbox, arrival: Arrival) -> None:
    try:
        await inbox.put(arrival)
    except LATER:
        raise
    except Exception as error:  # as above
        key = arrival.key
        logger.error("message %s of %s is lost: %s", key.message_id, arrival.room.external_id, error)
