"""Sharing the work with other processes: staying alive, and taking up what they leave."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.isolation import contained
from bot.domain.ids import new_id
from bot.domain.inbound import TOO_OLD, Received
from bot.domain.ledger import Outcome, Receipt
from bot.errors import StoreUnavailable
from bot.inbound.inbox import MOST_OPEN, Inbox
from bot.outbound.outbox import Outbox
from bot.store.ledger import Sharing
from bot.store.protocols import Store

logger = logging.getLogger(__name__)
BEAT, LOOK = 0.5, 0.5
DEADLINE, LONGEST_LOOK = 5.0, 60.0


class SharedWork:
    """Shares one agent's work as long as it is entered; where the store shares nothing, nothing is done."""

    def __init__(self, store: Store, inbox: Inbox, outbox: Outbox, clock: Clock = system_clock) -> None:
        self._store = store
        self._sharing = store.sharing
        self._clock = clock
        self._inbox = inbox
        self._outbox = outbox
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._sharing is not None:
            await self._sharing.join()
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._stay_alive(self._sharing)),
                loop.create_task(self._look(self._sharing)),
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
            await contained(self._sharing.leave(), what="giving rooms back", deadline=DEADLINE)

    async def _stay_alive(self, sharing: Sharing) -> None:
        while True:
            await contained(self._beat(sharing), what="staying alive", deadline=DEADLINE)
            await asyncio.sleep(BEAT)

    async def _beat(self, sharing: Sharing) -> None:
        with suppress(StoreUnavailable):  # whoever writes meets it too, and tells
            if not await sharing.keep_alive():
                await self._begin_anew(sharing)

    async def _begin_anew(self, sharing: Sharing) -> None:
        """Drop everything: others have taken this process for dead, and work on what was its own."""
        logger.warning("this process was silent for so long that others have taken its rooms over")
        await asyncio.gather(self._inbox.abandon(), self._outbox.abandon())
        await sharing.join()

    async def _look(self, sharing: Sharing) -> None:
        while True:
            await contained(self._take_up(sharing), what="looking what is open", deadline=LONGEST_LOOK)
            await sharing.wait(LOOK)

    async def _take_up(self, sharing: Sharing) -> None:
        with suppress(StoreUnavailable):
            work = await sharing.open_work()
            if any(not self._outbox.is_busy(room_id) for room_id in work.parts):
                await self._outbox.resume()
            if work.messages:
                await self._begin_new(sharing)
                await self._inbox.resume()
            await self._inbox.settle_others()

    async def _begin_new(self, sharing: Sharing) -> None:
        """Start on what others have received in our rooms, one after another: in their order."""
        left = await self._store.ledger.receipts(is_open=True, limit=MOST_OPEN)
        for receipt in reversed(left):
            if receipt.outcome is Outcome.RECEIVED and sharing.holds(receipt.room_id):
                await self._begin(receipt)

    async def _begin(self, receipt: Receipt) -> None:
        arrival = await self._store.ledger.arrival(receipt)
        attendance = await self._store.worlds.attendance(receipt.room_id)
        now = self._clock()
        if arrival is None or now - receipt.received_at > TOO_OLD:
            return  # the inbox closes it
        claimed = replace(receipt, outcome=Outcome.CLAIMED, turn_id=new_id(), attempts=1, claimed_at=now)
        await self._store.ledger.save_receipts([claimed])
        await self._inbox.begin(Received(claimed, arrival, attendance, is_new=True))
