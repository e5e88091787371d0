"""`Inbox`: persist, acknowledge, wait for the outcome."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from bot.concurrency.bounded import BoundedSet
from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.crash_points import crash_point
from bot.concurrency.tasks import TaskSet
from bot.domain.ids import new_id
from bot.domain.inbound import MAX_BACKFILL_AGE, InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.errors import InboxClosed, StoreUnavailable, TemporaryError
from bot.inbound.processing import DeferredRetries
from bot.inbound.sanitize import sanitize_message
from bot.store.ledger import Ledger, StoreProblem

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnOutcome = Callable[[Receipt], None]
Process = Callable[[StoredEvent, OnOutcome], Coroutine[None, None, None]]

MAX_OPEN_EVENTS = 10_000
MAX_STARTED_IDS = 1000
MAX_CONCURRENT_RESUMED = 50
CANCEL_GRACE_SECONDS = 1.0


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
        owns_room: Callable[[UUID], bool] = lambda room_id: True,
        is_connected: Callable[[str], bool] = lambda platform: True,
        on_closed: OnOutcome = lambda receipt: None,
        clock: Clock = system_clock,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._ledger = ledger
        self._process = process
        self._owns_room = owns_room
        self._is_connected = is_connected
        self._on_closed = on_closed
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._is_open = True
        self._is_drained = False
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_progress: set[UUID] = set()  # receipts: taken up by this process and not settled yet
        self._started = BoundedSet[UUID](MAX_STARTED_IDS)  # `put` may not know yet what `resume` began
        self._shielded = TaskSet("event storage", logs_failures=False)
        self._resume_slots = asyncio.Semaphore(MAX_CONCURRENT_RESUMED)
        self._deferred = DeferredRetries(ledger.health, self._retry_deferred)

    @property
    def problem(self) -> StoreProblem | None:
        """What keeps everything from being taken in just now."""
        return self._ledger.health.problem

    async def submit(self, message: InboundMessage) -> Receipt:
        """Keep a message and start on it; once this returns the platform may be told.

        A message that is known already gets the receipt it has; where that is open and nobody works
        on it, it is taken up again. Raises IntakeClosed while stopping, StoreUnavailable while nothing
        can be kept: the platform must then not be told.
        """
        [receipt] = await self.submit_all([message])
        return receipt

    async def submit_all(
        self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None
    ) -> list[Receipt]:
        """Keep a batch as `put` does one, all of it or nothing, and with it how far the stream is read."""
        if not self._is_open:
            raise InboxClosed("the bot is stopping; nothing more is taken in")
        self._ledger.health.check_available()
        now = self._clock()
        bounded = [sanitize_message(message, now) for message in messages]
        crash_point("ingress.pre_commit")
        storing = self._shielded.start(self._ledger.receive(bounded, now, cursor))
        try:
            events = await asyncio.shield(storing)
        except asyncio.CancelledError:
            storing.add_done_callback(self._on_stored)
            raise
        crash_point("ingress.post_commit")
        for event in events:
            if event.is_new:
                self._start_new(event)
            else:
                await self._resume(event.receipt)
        return [event.receipt for event in events]

    async def run_shielded(self, operation: Coroutine[Any, Any, T]) -> T:
        """Have a change kept, to its end also where whoever brought it hangs up; raises as `put` does."""
        try:
            if not self._is_open:
                raise InboxClosed("the bot is stopping; nothing more is taken in")
            self._ledger.health.check_available()
            task = self._shielded.start(operation)
        except BaseException:
            operation.close()
            raise
        return await asyncio.shield(task)

    async def enqueue(self, event: StoredEvent) -> None:
        """Start on an event that was kept by another road than `put`."""
        if event.is_new:
            self._start_new(event)
        else:
            await self._resume(event.receipt)

    async def restart(self, receipt_id: UUID) -> None:
        """Start afresh on an event whose turn was called off; that does not count as an attempt."""
        self._in_progress.discard(receipt_id)
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is not None and not receipt.outcome.is_final:
            restarted = replace(receipt, turn_id=new_id(), attempts=receipt.attempts - 1)
            await self._ledger.save_receipts([restarted])
            await self._resume(restarted)

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find how far a stream has been read; None where nothing has been kept of it."""
        return await self._ledger.cursor(platform, account, name)

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Find what the platform calls the last message that was kept of each room, where there is one.

        To be asked before anything new of these rooms is put: whatever came after it has been missed.
        """
        return await self._ledger.last_message_ids(room_ids)

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait until an event has its outcome; it is named by its receipt's id or its message's.

        Where it is open and nobody works on it, it is taken up again. Raises LookupError for an
        unknown one, IntakeClosed where the process stops before, TryAgain where it could not be
        processed and stays open.
        """
        if receipt_id in self._in_progress and not self._is_drained:
            return await asyncio.shield(self._future(receipt_id))
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            raise LookupError(f"there is no receipt {receipt_id}")
        future = self._future(receipt.id)
        receipt = await self._ledger.receipt(receipt.id) or receipt  # it may have got its outcome meanwhile
        if receipt.outcome.is_final:
            self.resolve(receipt)
            return receipt
        if self._is_drained:
            self._fail_waiter(receipt.id, _build_stopped_error())
        else:
            await self._resume(receipt)
        return await asyncio.shield(future)

    def _future(self, receipt_id: UUID) -> asyncio.Future[Receipt]:
        return self._waiting.setdefault(receipt_id, asyncio.get_running_loop().create_future())

    async def resume(self) -> int:
        """Take up what an earlier process left open; gives back how many are processed again.

        To be called again when another platform is connected: what this process has under way already is
        left alone. What is older than fifteen minutes is not answered any more. After a long outage that
        may be thousands: fifty of them are processed at once, beside all that is new.
        """
        open_receipts = await self._ledger.receipts(is_open=True, limit=MAX_OPEN_EVENTS)
        resumable = [
            receipt for receipt in reversed(open_receipts) if self._is_connected(receipt.key.platform)
        ]
        return sum([await self._resume(receipt) for receipt in resumable])

    async def reevaluate(self) -> int:
        """Have an earlier process's closed events learnt from, and count them; after `resume`."""
        unevaluated = [
            receipt
            for receipt in await self._ledger.unevaluated_receipts()
            if self._needs_evaluation(receipt)
        ]
        for receipt in unevaluated:
            self._start(StoredEvent(receipt))
        return len(unevaluated)

    def _needs_evaluation(self, receipt: Receipt) -> bool:
        is_started = receipt.id in self._started  # and may be learnt from just now
        return (
            not is_started and self._owns_room(receipt.room_id) and self._is_connected(receipt.key.platform)
        )

    async def resolve_remote(self) -> None:
        """Tell those who wait for what another process has worked on."""
        for receipt_id in [waiting_id for waiting_id in self._waiting if waiting_id not in self._in_progress]:
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None and receipt.outcome.is_final:
                self.resolve(receipt)

    async def release(self) -> None:
        """Stop all that is under way: another process does it. Who waits for it waits on."""
        self._in_progress.clear()
        self._started = BoundedSet[UUID](MAX_STARTED_IDS)
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)

    def close(self) -> None:
        """Take nothing more in."""
        self._is_open = False

    async def drain(self, seconds: float) -> int:
        """Wait for what is being processed, then stop the rest; gives back how many were stopped.

        What is stopped stays open in the ledger, for the next start. What does not stop is left alone.
        """
        self.close()
        clock = asyncio.get_running_loop().time
        end_time = clock() + seconds
        await self._shielded.wait(min(seconds, CANCEL_GRACE_SECONDS))
        unfinished: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, unfinished = await asyncio.wait(set(self._tasks), timeout=max(0.0, end_time - clock()))
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        self._deferred.stop()
        self._is_drained = True
        for receipt_id in list(self._waiting):
            self._fail_waiter(receipt_id, _build_stopped_error())
        return len(unfinished)

    def _on_stored(self, storing: asyncio.Task[list[StoredEvent]]) -> None:
        """Start on what was kept after whoever brought it had hung up."""
        if not storing.cancelled() and storing.exception() is None:
            for event in storing.result():
                if event.is_new:
                    self._start_new(event)

    def _start_new(self, event: StoredEvent) -> None:
        """Start on a new event, unless `resume` has done so between its commit and here."""
        receipt_id = event.receipt.id
        if event.receipt.outcome.is_final:  # it is kept, and too old to be answered
            self.resolve(event.receipt)
            return
        is_owned = event.is_room_owned and self._owns_room(event.receipt.room_id)
        is_started = receipt_id in self._in_progress or receipt_id in self._started
        if self._is_open and is_owned and not is_started:
            self._start(event)

    async def _resume(self, receipt: Receipt, *, interrupted_attempts: int = 0) -> bool:
        """Start on an event that may have been left open; tells whether it did.

        It is marked first and read again then: whoever worked on it before has written down the end.
        Tries that an outage has spoiled do not count.
        """
        is_owned = self._owns_room(receipt.room_id)
        if receipt.id in self._in_progress or receipt.outcome.is_final or not is_owned:
            return False
        self._in_progress.add(receipt.id)
        try:
            receipt = await self._ledger.receipt(receipt.id) or receipt
            if not receipt.outcome.is_final and self._is_open:
                receipt = await self._close_expired(receipt)
        except BaseException:
            self._in_progress.discard(receipt.id)
            raise
        if receipt.outcome.is_final:
            self.resolve(receipt)
        elif self._is_open:
            self._start(StoredEvent(replace(receipt, attempts=receipt.attempts - interrupted_attempts)))
            return True
        self._in_progress.discard(receipt.id)
        return False

    async def _retry_deferred(self, receipt_id: UUID) -> None:
        """Take up again what an outage cut short; its last word may have been kept all the same."""
        receipt = await self._ledger.receipt(receipt_id)
        self._in_progress.discard(receipt_id)
        if receipt is not None and receipt.outcome.is_final:
            self._start(StoredEvent(receipt))
        elif receipt is not None:
            await self._resume(receipt, interrupted_attempts=1)

    async def _close_expired(self, receipt: Receipt) -> Receipt:
        """Close what is too old to be answered."""
        now = self._clock()
        if now - receipt.received_at <= MAX_BACKFILL_AGE:
            return receipt
        reason = "it was left unanswered for too long"
        closed = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule=Rule.RESTART, closed_at=now)
        await self._ledger.save_receipts([closed])
        return closed

    def _start(self, event: StoredEvent) -> None:
        receipt_id = event.receipt.id
        self._in_progress.add(receipt_id)
        self._started.add(receipt_id)
        task = asyncio.get_running_loop().create_task(self._process_event(event))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_processed, receipt_id))

    async def _process_event(self, event: StoredEvent) -> None:
        if event.is_new:
            await self._process(event, self.resolve)
            return
        async with self._resume_slots:
            await self._process(event, self.resolve)

    def _on_processed(self, receipt_id: UUID, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if receipt_id not in self._in_progress and (error is not None or task.cancelled()):
            return  # it was abandoned
        if isinstance(error, StoreUnavailable) and self._is_open:
            self._deferred.add(receipt_id)
            return
        if error is not None:
            logger.error("message %s could not be processed; it stays open", receipt_id, exc_info=error)
        if (error is not None or task.cancelled()) and self._is_open:
            self._in_progress.discard(receipt_id)
            cause = TemporaryError(f"message {receipt_id} could not be processed; the next start takes it up")
            self._fail_waiter(receipt_id, cause)

    def resolve(self, receipt: Receipt) -> None:
        """Tell whoever waits for an event that it has its outcome."""
        if not receipt.outcome.is_final:
            self._deferred.add(receipt.id)
            return
        self._started.add(receipt.id)  # it may have been closed before `put` knew that it is kept
        self._in_progress.discard(receipt.id)
        self._on_closed(receipt)
        future = self._waiting.pop(receipt.id, None)
        if future is not None and not future.done():
            future.set_result(receipt)

    def _fail_waiter(self, receipt_id: UUID, error: Exception) -> None:
        future = self._waiting.pop(receipt_id, None)
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # whoever waits has it; where nobody does, it is no error


def _build_stopped_error() -> InboxClosed:
    return InboxClosed("the bot stopped before this message had its outcome")


RETRYABLE_ERRORS = (InboxClosed, TemporaryError)  # it comes again, and must


async def submit_tolerant(
    inbox: Inbox, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None
) -> None:
    """Keep a batch and how far the stream is read; what the store will never take is left out, with a word.

    Raises IntakeClosed and TryAgain as the inbox does.
    """
    try:
        await inbox.submit_all(messages, cursor)
    except RETRYABLE_ERRORS:
        raise
    except Exception:  # one message that the store refuses must not stop all that follow
        logger.warning("%d messages could not be kept together; they are kept one by one", len(messages))
        for message in messages:
            await _submit_one_tolerant(inbox, message)
        if cursor is not None:
            await inbox.submit_all([], cursor)


async def _submit_one_tolerant(inbox: Inbox, message: InboundMessage) -> None:
    try:
        await inbox.submit(message)
    except RETRYABLE_ERRORS:
        raise
    except Exception as error:  # as above
        key = message.key
        logger.error("message %s of %s is lost: %s", key.message_id, message.room.external_id, error)
