"""Heartbeat, room leases and take-over between processes that share a store."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import run_isolated
from bot.domain.ids import new_id
from bot.domain.inbound import MAX_BACKFILL_AGE, InboundMessage, StoredEvent
from bot.domain.ledger import Outcome, Receipt
from bot.errors import LeaseLost, StoreUnavailable, UnreadableRow
from bot.inbound.inbox import Inbox
from bot.inbound.processing import EventState
from bot.operate.people import refresh_muted_people
from bot.outbound.outbox import Outbox
from bot.store.ledger import NewWork, WorkSharing
from bot.store.protocols import Store

logger = logging.getLogger(__name__)
HEARTBEAT_SECONDS, POLL_SECONDS = 0.5, 0.5
FREQUENTLY_POLLED_AGENTS = 20  # with more of them, each looks less often what it was not told of
BLOCKED_POLL_SECONDS, MAX_FREQUENTLY_POLLED = 0.05, 100
HEARTBEAT_TIMEOUT, POLL_TIMEOUT, DRAIN_SECONDS = 5.0, 60.0, 3.0


class WorkSharingLoop:
    """Shares one agent's work with other processes while it is entered, if its store is shared.

    `muted_people`, the marks of people and the take-overs are brought up to date at the regular checks.
    """

    def __init__(
        self, store: Store, inbox: Inbox, outbox: Outbox, muted_people: set[UUID], clock: Clock = system_clock
    ) -> None:
        self._store = store
        self._sharing = store.sharing
        self._clock = clock
        self._muted_people = muted_people
        self._inbox = inbox
        self._outbox = outbox
        self._is_drained = False
        self._is_blocked = False  # messages wait until earlier ones of their rooms have been resumed
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._sharing is not None:
            await self._sharing.join()
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._run_heartbeat(self._sharing)),
                loop.create_task(self._poll(self._sharing)),
            ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._sharing is not None:
            await run_isolated(self._sharing.leave(), label="giving rooms back", timeout=HEARTBEAT_TIMEOUT)

    async def _run_heartbeat(self, sharing: WorkSharing) -> None:
        while True:
            await run_isolated(self._send_heartbeat(sharing), label="staying alive", timeout=HEARTBEAT_TIMEOUT)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _send_heartbeat(self, sharing: WorkSharing) -> None:
        with suppress(StoreUnavailable):  # the next write reports it
            if not await sharing.heartbeat():
                await self._rejoin(sharing)
            elif sharing.is_draining:
                await self._drain(sharing)

    async def _rejoin(self, sharing: WorkSharing) -> None:
        """Release everything: other processes took this one for dead and own its rooms now."""
        logger.warning("this process sent no heartbeat for so long that other processes own its rooms now")
        await asyncio.gather(self._inbox.processor.release(), self._outbox.release())
        await sharing.join()

    async def _drain(self, sharing: WorkSharing) -> None:
        """Release what can be released, as an operator has asked for."""
        if not self._is_drained:
            self._is_drained = True
            logger.warning("this process was told to release its rooms and accounts, and takes no others")
            if not sharing.role.answers:  # what is being sent is finished before another process goes on
                await self._outbox.drain(DRAIN_SECONDS)
                await self._outbox.release()
        await sharing.release_idle()

    async def _poll(self, sharing: WorkSharing) -> None:
        new_work = NewWork()
        while True:
            self._is_blocked = False
            look = self._resume_open_work(sharing, new_work)
            await run_isolated(look, label="looking what is open", timeout=POLL_TIMEOUT)
            interval = POLL_SECONDS * max(1.0, sharing.agent_count / FREQUENTLY_POLLED_AGENTS)
            new_work = await sharing.wait_for_work(BLOCKED_POLL_SECONDS if self._is_blocked else interval)

    async def _resume_open_work(self, sharing: WorkSharing, new_work: NewWork) -> None:
        with suppress(StoreUnavailable):
            if new_work.closed is None:
                await refresh_muted_people(self._store, self._muted_people)
                await self._store.marks.refresh()
                await self._store.take_overs.refresh()
            if new_work.closed is None or new_work.closed:
                await self._inbox.resolve_remote(new_work.closed)
            if not new_work.has_open_work:
                return
            is_complete, taken_over = new_work.closed is None, frozenset(sharing.unsettled_rooms)
            if sharing.role.answers and not is_complete:
                await self._claim_received(sharing)
                return
            work = await sharing.open_work(self._outbox.ownership.shared_platforms())
            is_new = not sharing.role.answers and bool(work.delivery_rooms)
            if is_new or any(not self._outbox.is_busy(room_id) for room_id in work.delivery_rooms):
                await self._outbox.resume()
            if work.message_rooms:
                await self._inbox.recover()
                await self._claim_received(sharing)
                await self._inbox.processor.resume_all()
            if is_complete:
                sharing.settle(taken_over)
                self._inbox.processor.start_waiting()

    async def _claim_received(self, sharing: WorkSharing) -> None:
        """Claim what other processes have received in this process's rooms, in order.

        Behind a message that an earlier process has left it waits for the regular check, which begins with that one.
        """
        processor = self._inbox.processor
        if processor.trials.is_holding:
            return
        receipts = await sharing.receipts_to_claim()
        is_storing = [r.room_id for r in receipts if r.turn_id is not None and processor.state_of(r.id) is None]
        await asyncio.gather(*map(self._inbox.wait_stored, set(is_storing)))
        unclaimed: dict[UUID, list[Receipt]] = {}
        blocked: dict[UUID, bool] = {}  # and whether what is first there is being resumed
        for receipt in receipts:
            room_id, state = receipt.room_id, processor.state_of(receipt.id)
            if room_id in blocked:
                self._is_blocked |= blocked[room_id] and len(receipts) <= MAX_FREQUENTLY_POLLED
            elif state is EventState.WAITING or room_id in sharing.unsettled_rooms:
                blocked[room_id] = False
            elif receipt.outcome is Outcome.RECEIVED and receipt.turn_id is None and state is None:
                unclaimed.setdefault(room_id, []).append(receipt)
            elif receipt.outcome is Outcome.RECEIVED or state is None:  # it is resumed first
                blocked[room_id] = state is not None
        await asyncio.gather(*(self._claim(room_id, receipts) for room_id, receipts in unclaimed.items()))

    async def _claim(self, room_id: UUID, receipts: Sequence[Receipt]) -> None:
        """Claim messages of a room; one that is too old, deleted or unreadable is closed by the regular check."""
        now = self._clock()
        receipts = [receipt for receipt in receipts if now - receipt.received_at <= MAX_BACKFILL_AGE]
        messages = await asyncio.gather(*map(self._find_message, receipts))
        participant_state = await self._store.worlds.participant_state(room_id)
        events = [
            StoredEvent(
                replace(receipt, outcome=Outcome.CLAIMED, turn_id=new_id(), attempts=1, claimed_at=now),
                message,
                participant_state,
                is_new=True,
            )
            for receipt, message in zip(receipts, messages, strict=True)
            if message is not None
        ]
        with suppress(LeaseLost):  # its new owner claims them
            await self._inbox.processor.claim(room_id, events)

    async def _find_message(self, receipt: Receipt) -> InboundMessage | None:
        try:
            return await self._store.ledger.inbound_message(receipt)
        except UnreadableRow:
            return None
