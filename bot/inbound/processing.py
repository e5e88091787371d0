"""`MessageProcessor`: runs the processing of stored events and knows the state of each.

What a crash or an outage of the store leaves open, and how it is tried again.

The suspects of a crash are the messages that were under way when the process died: the open ones that are
claimed. After the first crash they are all tried again at once. After a further one they are tried in two halves,
each with nothing else under way, so that the next crash leaves half as many. Only a message that was alone under
way counts a death.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.tasks import BoundedSet, TaskSet, TaskSlots
from bot.domain.ids import new_id
from bot.domain.inbound import MAX_BACKFILL_AGE, StoredEvent
from bot.domain.ledger import EventKey, Outcome, Receipt, Rule
from bot.errors import StoreUnavailable, TemporaryError
from bot.outbound.sender import WorkOwnership
from bot.store.ledger import Ledger, StoreHealth

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CrashRecovery:
    """`released` are the receipts of the suspects as they are to be stored, in the order of their arrival.

    They are tried again in groups of `group_size`, with nothing else under way; 0: like everything else.
    """

    released: tuple[Receipt, ...]
    group_size: int = 0


def plan_recovery(interrupted: Sequence[Receipt]) -> CrashRecovery:
    """Return how to try again what was under way when the process died."""
    released = [replace(receipt, outcome=Outcome.RECEIVED) for receipt in interrupted]
    if len(released) == 1:
        [alone] = released
        crash_count = alone.crash_count + 1
        note = f"the process died while only this message was under way ({crash_count})"
        released = [replace(alone, crash_count=crash_count, notes=(*alone.notes, note))]
    is_first_crash = all(receipt.attempts <= 1 for receipt in interrupted)
    return CrashRecovery(tuple(released), 0 if is_first_crash else (len(released) + 1) // 2)


class SuspectTrials:
    """Tries suspects of a crash again, group by group; while it `is_holding`, everything else waits.

    `start` starts a held message and returns its task, None where there is nothing to do; `wait_idle` waits
    until no message is under way.
    """

    def __init__(
        self,
        start: Callable[[UUID], Coroutine[Any, Any, asyncio.Task[None] | None]],
        wait_idle: Callable[[], Coroutine[Any, Any, object]],
    ) -> None:
        self._start = start
        self._wait_idle = wait_idle
        self._suspects: dict[UUID, None] = {}  # in the order of their arrival
        self._held: dict[UUID, None] = {}
        self._group_size = 0
        self._task: asyncio.Task[None] | None = None
        self.is_holding = False

    def add(self, recovery: CrashRecovery) -> None:
        """Hold everything from now on, until these suspects have been tried."""
        if recovery.group_size:
            self._suspects |= dict.fromkeys(receipt.id for receipt in recovery.released)
            self._group_size = recovery.group_size
            self.is_holding = True

    def hold_for(self, receipt_ids: Collection[UUID]) -> None:
        """Hold everything from now on if there are suspects among these messages."""
        self.is_holding |= not self._suspects.keys().isdisjoint(receipt_ids)

    def hold(self, receipt_id: UUID) -> None:
        """Hold a message until it is tried, or all suspects have been."""
        self._held[receipt_id] = None

    def begin(self) -> None:
        """Try the suspects that are held, then start everything else that is."""
        if self.is_holding and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Try nothing more, and forget what is held."""
        self._suspects.clear()
        self._held.clear()
        self.is_holding = False
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._wait_idle()
        while group := [suspect for suspect in self._suspects if suspect in self._held][: self._group_size]:
            logger.warning(
                "%d messages are tried again with nothing else under way: the process died during them", len(group)
            )
            for receipt_id in group:
                del self._suspects[receipt_id], self._held[receipt_id]
            tasks = [task for receipt_id in group if (task := await self._start(receipt_id)) is not None]
            if tasks:
                await asyncio.wait(tasks)
        self.is_holding = False
        while self._held and not self.is_holding:
            receipt_id = next(iter(self._held))
            del self._held[receipt_id]
            await self._start(receipt_id)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%d messages stay open until the next start", len(self._held), exc_info=error)
            self.cancel()
        self.begin()  # other suspects may have come at the last moment


class DeferredRetries:
    """Receipts to retry when the store is back; where `retry` meets the next outage, they keep waiting."""

    def __init__(self, health: StoreHealth, retry: Callable[[UUID], Coroutine[Any, Any, None]]) -> None:
        self._health = health
        self._retry = retry
        self._ids: dict[UUID, None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, receipt_id: UUID) -> None:
        """Add a receipt."""
        self._ids[receipt_id] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_done)

    def stop(self) -> None:
        """Stop retrying: what is left stays open for the next start."""
        self._ids.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._ids:
            await asyncio.sleep(POLL_SECONDS)
            while self._ids and self._health.problem is None:
                receipt_id = next(iter(self._ids))
                try:
                    await self._retry(receipt_id)
                except StoreUnavailable:
                    break
                self._ids.pop(receipt_id, None)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%d messages stay open until the next start", len(self._ids), exc_info=error)
            self._ids.clear()


OnOutcome = Callable[[Receipt], None]
Process = Callable[[StoredEvent, OnOutcome], Coroutine[None, None, None]]

MAX_OPEN_EVENTS = 10_000
MAX_CLOSED_IDS = 1000
MAX_CONCURRENT_RESUMED = 50
CANCEL_GRACE_SECONDS = 1.0


class EventState(StrEnum):
    """What this process is doing about an event; one without a state is not this process's work."""

    WAITING = "waiting"  # suspects of a crash are tried first
    QUEUED = "queued"  # its receipt is being read again, before its task starts
    RUNNING = "running"  # its task runs, or has left its outcome to the turn of a newer event
    DEFERRED = "deferred"  # a store outage interrupted it; it is retried when the store is back
    CLOSED = "closed"  # it has its final receipt, or failed and waits in the ledger for the next start


class MessageProcessor:
    """Processes each stored event of one agent once, and again after a restart or an outage of the store.

    `process` is awaited once per event and calls `resolve` when the receipt is final; it may leave that to
    the processing of a newer event. Where it raises, the event stays open in the ledger. `on_outcome`
    receives every final receipt, `on_failure` the error of an event that this process gives up. `on_resumed`
    receives the receipt of a resumed event and the time before it waits for its slot: later ones of its room wait
    for it. Who waits for a room leaves its slot of `resume_slots` meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        process: Process,
        *,
        ownership: WorkOwnership,
        on_outcome: OnOutcome,
        on_failure: Callable[[UUID, Exception], None],
        on_closed: OnOutcome = lambda receipt: None,
        clock: Clock = system_clock,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._ledger = ledger
        self._process = process
        self._ownership = ownership
        self._on_outcome = on_outcome
        self._on_failure = on_failure
        self._on_closed = on_closed
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self.on_resumed: Callable[[Receipt, float], object] = lambda receipt, now: None
        self.resume_slots = TaskSlots(MAX_CONCURRENT_RESUMED)
        self._is_open = True
        self._states: dict[UUID, EventState] = {}  # of every event that is not closed
        self._closed = BoundedSet[UUID](MAX_CLOSED_IDS)  # `submit` may store an event that `resume` has closed
        self._claiming_rooms: set[UUID] = set()
        self._behind_earlier: dict[UUID, StoredEvent] = {}  # new events that wait for earlier ones of their rooms
        self._tasks = TaskSet("message processing", logs_failures=False)
        self._deferred = DeferredRetries(ledger.health, self._retry)
        self.trials = SuspectTrials(self._start_held, self._tasks.wait)

    def state_of(self, receipt_id: UUID) -> EventState | None:
        """Return what this process does about an event; None where it is not known here."""
        if receipt_id in self._states:
            return self._states[receipt_id]
        return EventState.CLOSED if receipt_id in self._closed else None

    def is_processing(self, receipt_id: UUID) -> bool:
        """Return whether this process will close an event."""
        return receipt_id in self._states

    @contextmanager
    def running_command(self, receipt_id: UUID) -> Iterator[None]:
        """Count a command as under way in this process, so that its receipt is not taken for one left open."""
        self._transition(receipt_id, EventState.RUNNING)
        try:
            yield
        finally:
            self._transition(receipt_id, EventState.CLOSED)

    async def enqueue(self, event: StoredEvent) -> None:
        """Start on a stored event; one that was stored before is resumed, if nothing works on it."""
        if not event.is_new:
            await self.resume(event.receipt)
        else:
            self.start_new(event)

    def start_new(self, event: StoredEvent, *, is_next: bool = False) -> None:
        """Start on a new event, unless `resume_all` has done so since it was stored.

        While earlier events of its room may have to be started first it waits, unless it `is_next`.
        """
        receipt = event.receipt
        if receipt.outcome.is_final:  # it is too old to be answered
            self.resolve(receipt)
            return
        is_owned = event.is_room_owned and self._ownership.owns_room(receipt.room_id)
        is_settled = self._ownership.is_settled(receipt.room_id) and receipt.room_id not in self._claiming_rooms
        if not (self._is_open and is_owned and self.state_of(receipt.id) is None):
            return
        if self.trials.is_holding:
            self._hold(receipt.id)
        elif not (is_next or is_settled):
            self._transition(receipt.id, EventState.WAITING)
            self._behind_earlier[receipt.id] = event
        else:
            self._start(StoredEvent(receipt) if receipt.outcome is Outcome.RECEIVED else event)

    async def claim(self, room_id: UUID, events: Sequence[StoredEvent]) -> None:
        """Store the claims of events that other processes have received in a room, and start on them in their order.

        What this process receives there meanwhile came later and starts behind them; if this fails, it does so after
        the next `start_waiting`.
        """
        self._claiming_rooms.add(room_id)
        await self._ledger.save_receipts([event.receipt for event in events])
        self._claiming_rooms.discard(room_id)
        for event in events:
            self.start_new(event, is_next=True)
        self._start_waiting()

    def start_waiting(self) -> None:
        """Start on new events that waited for earlier ones of their rooms: these have been resumed."""
        self._claiming_rooms.clear()
        self._start_waiting()

    def _start_waiting(self) -> None:
        waiting, self._behind_earlier = self._behind_earlier, {}
        for event in waiting.values():
            self._transition(event.receipt.id, None)
            self.start_new(event)

    async def resume(self, receipt: Receipt, *, interrupted_attempts: int = 0) -> bool:
        """Start on an event that may have been left open; return whether it was started.

        The event is queued before its receipt is read again, so that an earlier owner has stored its outcome.
        Attempts that an outage of the store interrupted are not counted.
        """
        is_owned = self._ownership.owns_room(receipt.room_id)
        if self.is_processing(receipt.id) or receipt.outcome.is_final or not is_owned:
            return False
        if self.trials.is_holding and not self._is_expired(receipt):
            self._hold(receipt.id)
            return True
        return await self._resume(receipt, interrupted_attempts=interrupted_attempts) is not None

    async def _resume(
        self, receipt: Receipt, *, interrupted_attempts: int = 0, was_held: bool = False
    ) -> asyncio.Task[None] | None:
        """Start on an open event unless it is too old, and return its task; one that was held is not."""
        self._transition(receipt.id, EventState.QUEUED)
        with ExitStack() as on_failure:
            on_failure.callback(self._transition, receipt.id, None)
            receipt = await self._ledger.receipt(receipt.id) or receipt
            if not receipt.outcome.is_final and self._is_open and not was_held:
                receipt = await self._close_expired(receipt)
            on_failure.pop_all()
        if receipt.outcome.is_final:
            self.resolve(receipt)
            return None
        if not self._is_open:
            self._transition(receipt.id, None)
            return None
        return self._start(StoredEvent(replace(receipt, attempts=receipt.attempts - interrupted_attempts)))

    def _hold(self, receipt_id: UUID) -> None:
        self._transition(receipt_id, EventState.WAITING)
        self.trials.hold(receipt_id)

    async def _start_held(self, receipt_id: UUID) -> asyncio.Task[None] | None:
        try:
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is None or not self._is_open:
                self._transition(receipt_id, None)
                return None
            if receipt.outcome.is_final and not receipt.is_evaluated:
                return self._start(StoredEvent(receipt))
            return await self._resume(receipt, was_held=True)
        except StoreUnavailable:
            self._defer(receipt_id)
            return None

    async def recover(self, is_being_stored: Callable[[EventKey], bool] = lambda key: False) -> None:
        """Find what was under way when an earlier process died; `resume_all` tries it again.

        Claims of this process are left alone: of messages that it processes, or is storing.
        """
        open_receipts = await self._ledger.receipts(is_open=True, limit=MAX_OPEN_EVENTS)
        ownerless = [
            receipt
            for receipt in reversed(open_receipts)
            if self._ownership.owns_room(receipt.room_id)
            and self.state_of(receipt.id) is None
            and not is_being_stored(receipt.key)
        ]
        recovery = plan_recovery([receipt for receipt in ownerless if receipt.outcome is Outcome.CLAIMED])
        if not recovery.released:
            return
        logger.info("%d messages were under way when the process died", len(recovery.released))
        waiting = [receipt for receipt in ownerless if receipt.outcome is Outcome.RECEIVED]
        now = self._clock()
        await self._ledger.save_receipts(
            [
                receipt if self._is_expired(receipt) else replace(receipt, claimed_at=now)
                for receipt in (*recovery.released, *waiting)
            ]
        )
        self.trials.add(recovery)

    async def resume_all(self) -> int:
        """Resume the open events of connected platforms, and return how many are processed again.

        What this process works on already is left alone. After a long outage there may be thousands: at most
        50 of them are processed at once, beside all that is new.
        """
        open_receipts = await self._ledger.receipts(is_open=True, limit=MAX_OPEN_EVENTS)
        resumable = [
            receipt for receipt in reversed(open_receipts) if self._ownership.is_connected(receipt.key.platform)
        ]
        self.trials.hold_for([receipt.id for receipt in resumable])
        count = 0
        for receipt in resumable:
            if event := self._behind_earlier.pop(receipt.id, None):
                self._transition(receipt.id, None)
                self.start_new(event, is_next=True)
                continue
            try:
                count += await self.resume(receipt)
            except StoreUnavailable:  # an expired one could not be closed
                self._defer(receipt.id)
        self.trials.begin()
        return count

    async def find_unevaluated(self) -> list[Receipt]:
        """Return the closed events that an earlier process did not evaluate.

        Call it before `resume_all`: a resumed turn closes the events that it had superseded once more, and
        then they look like events that this process evaluates itself.
        """
        unevaluated = await self._ledger.unevaluated_receipts()
        return [receipt for receipt in unevaluated if self._needs_evaluation(receipt)]

    def reevaluate(self, unevaluated: Collection[Receipt]) -> None:
        """Evaluate closed events, which `find_unevaluated` has returned."""
        for receipt in unevaluated:
            if self.trials.is_holding:
                self._hold(receipt.id)
            else:
                self._start(StoredEvent(receipt))

    async def reopen(self, receipt_id: UUID) -> None:
        """Start on an event again whose turn goes on after its receipt was final."""
        self._closed.discard(receipt_id)
        try:
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None:
                await self.resume(receipt)
        except StoreUnavailable:
            self._defer(receipt_id)

    async def restart(self, receipt_id: UUID) -> None:
        """Process an event whose turn was cancelled from the beginning; this counts as no further attempt."""
        self._transition(receipt_id, None)
        try:
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None and not receipt.outcome.is_final:
                restarted = replace(receipt, turn_id=new_id(), attempts=receipt.attempts - 1)
                await self._ledger.save_receipts([restarted])
                await self.resume(restarted)
        except StoreUnavailable:
            self._defer(receipt_id)

    def resolve(self, receipt: Receipt) -> None:
        """Close an event whose receipt is final; one that is not is retried when the store is back.

        It may be called again for the same event: that it is closed is reported once.
        """
        if not receipt.outcome.is_final:
            self._defer(receipt.id)
            return
        is_known = receipt.id in self._closed
        self._transition(receipt.id, EventState.CLOSED)
        if not is_known:
            self._on_closed(receipt)
        self._on_outcome(receipt)

    def close(self) -> None:
        """Start on nothing more."""
        self._is_open = False

    async def release(self) -> None:
        """Stop all processing: another process does it now."""
        self.trials.cancel()
        self._behind_earlier.clear()
        self._states.clear()
        self._closed = BoundedSet[UUID](MAX_CLOSED_IDS)
        await self._tasks.cancel(CANCEL_GRACE_SECONDS)

    async def drain(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for what is running, then stop the rest, and return how many that is.

        Their events stay open in the ledger, for the next start. A task that does not stop is left alone.
        """
        self.close()
        self.trials.cancel()
        unfinished = await self._tasks.wait(timeout)
        await self._tasks.cancel(self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        self._deferred.stop()
        return unfinished

    def _transition(self, receipt_id: UUID, state: EventState | None) -> None:
        """Set the state of an event; None forgets it, so that it may be started here again."""
        self._states.pop(receipt_id, None)
        if state is EventState.CLOSED:
            self._closed.add(receipt_id)
        elif state is not None:
            self._states[receipt_id] = state

    def _needs_evaluation(self, receipt: Receipt) -> bool:
        is_known = self.state_of(receipt.id) is not None  # it may be evaluated just now
        is_owned = self._ownership.owns_room(receipt.room_id) and receipt.outcome.is_final
        return not is_known and is_owned and self._ownership.is_connected(receipt.key.platform)

    async def _close_expired(self, receipt: Receipt) -> Receipt:
        """Return the receipt, closed and saved where its message is too old to be answered."""
        if not self._is_expired(receipt):
            return receipt
        reason = "it was left unanswered for too long"
        closed = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule=Rule.RESTART, closed_at=self._clock())
        await self._ledger.save_receipts([closed])
        return closed

    def _is_expired(self, receipt: Receipt) -> bool:
        """Whether nothing was done about a message for too long; waiting for the trials is not nothing."""
        return self._clock() - max(receipt.received_at, receipt.claimed_at or receipt.received_at) > MAX_BACKFILL_AGE

    def _start(self, event: StoredEvent) -> asyncio.Task[None]:
        receipt_id = event.receipt.id
        self._transition(receipt_id, EventState.RUNNING)
        # An event counts against the limit of resumed ones unless it is new, or closed and unevaluated.
        takes_slot = not (event.is_new or event.receipt.outcome.is_final)
        if takes_slot:
            self.on_resumed(event.receipt, time.monotonic())
        task = self._tasks.start(self._run_in_slot(event) if takes_slot else self._process(event, self.resolve))
        task.add_done_callback(partial(self._on_done, receipt_id))
        return task

    async def _run_in_slot(self, event: StoredEvent) -> None:
        async with self.resume_slots.hold():
            await self._process(event, self.resolve)

    def _on_done(self, receipt_id: UUID, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        if not self.is_processing(receipt_id):
            return  # it was released, or closed before
        if isinstance(error, StoreUnavailable) and self._is_open:
            self._defer(receipt_id)
            return
        if error is not None:
            logger.error("message %s could not be processed and stays open", receipt_id, exc_info=error)
        if self._is_open:
            self._transition(receipt_id, EventState.CLOSED)
            message = f"message {receipt_id} could not be processed; the next start resumes it"
            self._on_failure(receipt_id, TemporaryError(message))

    def _defer(self, receipt_id: UUID) -> None:
        self._transition(receipt_id, EventState.DEFERRED)
        self._deferred.add(receipt_id)

    async def _retry(self, receipt_id: UUID) -> None:
        """Resume an event that an outage interrupted; its final receipt may have been stored all the same."""
        receipt = await self._ledger.receipt(receipt_id)
        if self._states.get(receipt_id) in (EventState.QUEUED, EventState.RUNNING):
            return
        self._transition(receipt_id, None)
        if receipt is not None and receipt.outcome.is_final:
            self._start(StoredEvent(receipt))
        elif receipt is not None:
            try:
                await self.resume(receipt, interrupted_attempts=1)
            except StoreUnavailable:
                self._transition(receipt_id, EventState.DEFERRED)
                raise
