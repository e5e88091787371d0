"""`Inbox`: stores what comes in before the platform is told so, and waits for the outcome."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.crash_points import crash_point
from bot.concurrency.tasks import TaskSet
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import EventKey, Receipt
from bot.errors import InboxClosed, TemporaryError
from bot.inbound.forgotten_words import ForgottenWords
from bot.inbound.processing import CANCEL_GRACE_SECONDS, MAX_OPEN_EVENTS, MessageProcessor, OnOutcome, Process
from bot.inbound.sanitize import sanitize_message
from bot.inbound.unreadable import build_unreadable_event
from bot.outbound.send_queue import WorkOwnership
from bot.store.ledger import Ledger, StoreProblem
from bot.text import shorten

logger = logging.getLogger(__name__)

T = TypeVar("T")
RETRYABLE_ERRORS = (InboxClosed, TemporaryError)  # the platform delivers the message again


class Inbox:
    """Stores inbound messages of one agent, hands them to its `MessageProcessor`, and waits for outcomes.

    `process` is what the processor awaits for each event; `on_closed` receives every final receipt once. In a
    room that this process does not own, messages are stored and not processed. `secrets` are removed from
    the events that are recorded as unreadable, `forgotten_words` from messages.
    """

    def __init__(
        self,
        ledger: Ledger,
        process: Process,
        *,
        ownership: WorkOwnership | None = None,
        on_closed: OnOutcome = lambda receipt: None,
        clock: Clock = system_clock,
        shutdown_deadline: ShutdownDeadline | None = None,
        secrets: Collection[str] = (),
        forgotten_words: ForgottenWords | None = None,
    ) -> None:
        self._ledger = ledger
        self._secrets = secrets
        self._forgotten_words = forgotten_words
        self._clock = clock
        self._is_open = True
        self._is_drained = False
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._storing: dict[asyncio.Task[list[StoredEvent]], Sequence[InboundMessage]] = {}
        self._shielded = TaskSet("inbox", logs_failures=False)
        self.processor = MessageProcessor(
            ledger,
            process,
            ownership=ownership or WorkOwnership(),
            on_outcome=self._on_outcome,
            on_failure=self._fail_waiter,
            on_closed=on_closed,
            clock=clock,
            shutdown_deadline=shutdown_deadline,
        )

    @property
    def problem(self) -> StoreProblem | None:
        """Why nothing can be stored at the moment; None while the store works."""
        return self._ledger.health.problem

    async def submit(self, message: InboundMessage) -> Receipt:
        """Store a message and start on it; once this returns, the platform may acknowledge it.

        A message that was stored before keeps its receipt; if that is open and nothing works on it, it is
        resumed. Raises InboxClosed while stopping and StoreUnavailable while nothing can be stored: the
        platform must not acknowledge the message then.
        """
        [receipt] = await self.submit_all([message])
        return receipt

    async def submit_all(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> list[Receipt]:
        """Store a batch as `submit` does, all of it or nothing, together with the stream's read position."""
        self._check_open()
        now = self._clock()
        bounded = [sanitize_message(message, now) for message in messages]
        if self.processor.is_holding:
            bounded = [replace(message, is_held=True) for message in bounded]
        crash_point("ingress.pre_commit")
        storing = self._shielded.start(self._receive(bounded, now, cursor))
        self._storing[storing] = bounded
        try:
            events = await asyncio.shield(storing)
            crash_point("ingress.post_commit")
            for event in events:
                await self.processor.enqueue(event)
        except asyncio.CancelledError:
            storing.add_done_callback(self._on_stored)
            raise
        finally:
            if storing.done():
                del self._storing[storing]
        return [event.receipt for event in events]

    async def submit_tolerant(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> None:
        """Store a batch and the read position; a message that the store can never take is recorded as unreadable.

        Raises InboxClosed and TemporaryError as `submit` does.
        """
        try:
            await self.submit_all(messages, cursor)
        except RETRYABLE_ERRORS:
            raise
        except Exception:  # one message that the store refuses must not stop all that follow
            logger.warning("%d messages could not be stored together; storing them one by one", len(messages))
            for message in messages:
                await self._submit_or_record(message)
            if cursor is not None:
                await self.submit_all([], cursor)

    async def record_unreadable(self, platform: str, account: str, event_id: str, raw: object, error: object) -> None:
        """Record an event that cannot be read, once; then the stream's position may move past it.

        `raw` is what the platform sent, `error` why it could not be read. Raises as `submit` does.
        """
        self._check_open()
        event = build_unreadable_event(
            platform, account, event_id, raw, error, secrets=self._secrets, now=self._clock()
        )
        await self._ledger.record_unreadable([event])
        cause = shorten(event.cause, 80)
        logger.warning("%s: event %s could not be read (%s): see `bot inbox list`", platform, event.event_id, cause)

    async def run_shielded(self, operation: Coroutine[Any, Any, T]) -> T:
        """Await a change to its end, also where the caller is cancelled; raises as `submit` does."""
        with ExitStack() as on_failure:
            on_failure.callback(operation.close)
            self._check_open()
            task = self._shielded.start(operation)
            on_failure.pop_all()
        return await asyncio.shield(task)

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Return the stored read position of a stream; None where there is none."""
        return await self._ledger.cursor(platform, account, name)

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the platform's id of the last message stored of each room, where there is one.

        Call it before submitting anything new of these rooms: what came after that message was missed.
        """
        return await self._ledger.last_message_ids(room_ids)

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait for the final receipt of an event, named by its receipt's id or its message's.

        An event that is open and that nothing works on is resumed. Raises LookupError for an unknown one,
        InboxClosed where the process stops first, TemporaryError where processing failed and it stays open.
        """
        if self.processor.is_processing(receipt_id) and not self._is_drained:
            return await asyncio.shield(self._future(receipt_id))
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            raise LookupError(f"there is no receipt {receipt_id}")
        future = self._future(receipt.id)
        receipt = await self._ledger.receipt(receipt.id) or receipt  # it may have been closed meanwhile
        if receipt.outcome.is_final:
            self.processor.resolve(receipt)
            return receipt
        if self._is_drained:
            self._fail_waiter(receipt.id, _build_stopped_error())
        else:
            await self.processor.resume(receipt)
        return await asyncio.shield(future)

    async def wait_stored(self, room_id: UUID) -> None:
        """Wait until what is being stored of a room is stored or has failed."""
        storing = [task for task, batch in self._storing.items() if any(item.room.id == room_id for item in batch)]
        if storing:
            await asyncio.wait(storing)

    async def recover(self) -> None:
        """Find what was under way when an earlier process died; the processor's `resume_all` tries it again."""
        await self.processor.recover(self._is_being_stored)

    async def resolve_remote(self, closed: Collection[UUID] | None = None) -> None:
        """Resolve the events waited for here that another process has closed; None if it is unknown which."""
        remote = [key for key in self._waiting if not self.processor.is_processing(key)]
        if closed is None and len(remote) > 1:
            open_receipts = await self._ledger.receipts(is_open=True, limit=MAX_OPEN_EVENTS)
            open_ids = {receipt.id for receipt in open_receipts}
            remote = [key for key in remote if key not in open_ids]
        for receipt_id in remote if closed is None else set(closed).intersection(remote):
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None and receipt.outcome.is_final:
                self.processor.resolve(receipt)

    def close(self) -> None:
        """Accept nothing more."""
        self._is_open = False
        self.processor.close()

    async def drain(self, seconds: float) -> int:
        """Wait for what is stored and processed, then stop the rest; return how many events were stopped."""
        self.close()
        clock = asyncio.get_running_loop().time
        end_time = clock() + seconds
        await self._shielded.wait(min(seconds, CANCEL_GRACE_SECONDS))
        stopped = await self.processor.drain(max(0.0, end_time - clock()))
        self._is_drained = True
        for receipt_id in list(self._waiting):
            self._fail_waiter(receipt_id, _build_stopped_error())
        return stopped

    def _check_open(self) -> None:
        if not self._is_open:
            raise InboxClosed("the bot is stopping; nothing more is accepted")
        self._ledger.health.check_available()

    async def remove_forgotten_words(self, messages: Sequence[InboundMessage]) -> Sequence[InboundMessage]:
        """Return messages without the words of people who had their data deleted."""
        return messages if self._forgotten_words is None else await self._forgotten_words.remove_all(messages)

    async def _receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None
    ) -> list[StoredEvent]:
        return await self._ledger.receive(await self.remove_forgotten_words(messages), now, cursor)

    async def _submit_or_record(self, message: InboundMessage) -> None:
        try:
            await self.submit(message)
        except RETRYABLE_ERRORS:
            raise
        except Exception as error:  # as in `submit_tolerant`
            key, author = message.key, message.author.external_id
            raw = {"room": message.room.external_id, "author": author, "text": message.message.content.text}
            await self.record_unreadable(key.platform, key.account, f"message {key.message_id}", raw, error)

    def _on_stored(self, storing: asyncio.Task[list[StoredEvent]]) -> None:
        """Start on what was stored after the caller was cancelled."""
        self._storing.pop(storing, None)
        if not storing.cancelled() and storing.exception() is None:
            for event in storing.result():
                if event.is_new:
                    self.processor.start_new(event)

    def _is_being_stored(self, key: EventKey) -> bool:
        return any(message.key == key for batch in self._storing.values() for message in batch)

    def _future(self, receipt_id: UUID) -> asyncio.Future[Receipt]:
        return self._waiting.setdefault(receipt_id, asyncio.get_running_loop().create_future())

    def _on_outcome(self, receipt: Receipt) -> None:
        future = self._waiting.pop(receipt.id, None)
        if future is not None and not future.done():
            future.set_result(receipt)

    def _fail_waiter(self, receipt_id: UUID, error: Exception) -> None:
        future = self._waiting.pop(receipt_id, None)
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # mark it as retrieved: there may be no waiter


def _build_stopped_error() -> InboxClosed:
    return InboxClosed("the bot stopped before this message had its outcome")
