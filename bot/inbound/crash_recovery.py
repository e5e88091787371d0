"""What a crash or an outage of the store leaves open, and how it is tried again.

The suspects of a crash are the messages that were under way when the process died: the open ones that are
claimed. After the first crash they are all tried again at once. After a further one they are tried in two halves,
each with nothing else under way, so that the next crash leaves half as many. Only a message that was alone under
way counts a death.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from bot.domain.ledger import DEATH_NOTE, Outcome, Receipt
from bot.errors import StoreUnavailable
from bot.store.ledger import StoreHealth

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
        released = [replace(alone, notes=(*alone.notes, f"{DEATH_NOTE} ({alone.deaths + 1})"))]
    is_first_crash = all(receipt.attempts <= 1 for receipt in interrupted)
    return CrashRecovery(tuple(released), 0 if is_first_crash else (len(released) + 1) // 2)


class SuspectTrials:
    """Tries suspects again, group by group; everything else is held meanwhile.

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
