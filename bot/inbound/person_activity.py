"""`PersonActivityRecorder`: counts who wrote when, in memory, and stores the counts every few seconds."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import UUID

from bot.concurrency.clock import ShutdownDeadline, every
from bot.concurrency.isolation import run_isolated
from bot.concurrency.tasks import TaskSet
from bot.domain.environment import PersonActivity
from bot.domain.events import EntityErased
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.errors import StoreUnavailable
from bot.event_bus import EventBus
from bot.store.environment import EntityStore

FLUSH_INTERVAL_SECONDS = 10.0
FLUSH_TIMEOUT = 5.0
FLUSH_LABEL = "storing who wrote"
UNCOUNTED_RULES = (Rule.ERASED, Rule.OWN_MESSAGE)


class PersonActivityRecorder:
    """Adds up the final receipts of one agent by their authors, and stores the sums every ten seconds and at the end.

    So a message causes no statement. Entered and left by the agent's runtime.
    """

    def __init__(
        self,
        entities: EntityStore,
        events: EventBus,
        *,
        shutdown_deadline: ShutdownDeadline | None = None,
        interval: float = FLUSH_INTERVAL_SECONDS,
    ) -> None:
        self._entities = entities
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._interval = interval
        self._unwritten: dict[UUID, PersonActivity] = {}
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushes = TaskSet(FLUSH_LABEL, logs_failures=False)
        events.subscribe(EntityErased, self._discard, name=FLUSH_LABEL, at_once=True)

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()  # not cancelled: what is being written would be counted twice
        if self._task is not None:
            await run_isolated(self._task, label=FLUSH_LABEL, timeout=self._shutdown_deadline.remaining(FLUSH_TIMEOUT))

    def record(self, receipt: Receipt) -> None:
        """Count a final receipt for its author; an edit counts as no further message."""
        if receipt.rule in UNCOUNTED_RULES:
            return
        count, at = int(not receipt.key.revision), receipt.received_at
        self._add(PersonActivity(receipt.author_id, at, at, count, int(receipt.outcome is Outcome.ANSWERED and count)))

    def then(self, on_closed: Callable[[Receipt], None]) -> Callable[[Receipt], None]:
        """Return a function that records a final receipt and passes it on."""

        def record(receipt: Receipt) -> None:
            self.record(receipt)
            on_closed(receipt)

        return record

    async def flush(self) -> None:
        """Store what is not stored yet, also if the caller is cancelled.

        Raises StoreUnavailable; the counts then stay for the next flush.
        """
        await asyncio.shield(self._flushes.start(self._flush()))

    async def _flush(self) -> None:
        unwritten, self._unwritten = self._unwritten, {}
        if not unwritten:
            return
        try:
            await self._entities.add_activity(list(unwritten.values()))
        except Exception:
            for activity in unwritten.values():
                self._add(activity)
            raise

    def _discard(self, event: EntityErased) -> None:
        self._unwritten.pop(event.entity_id, None)

    def _add(self, activity: PersonActivity) -> None:
        stored = self._unwritten.get(activity.entity_id)
        self._unwritten[activity.entity_id] = activity if stored is None else stored.plus(activity)

    async def _run(self) -> None:
        async for _ in every(self._interval, until=self._closing):
            await run_isolated(self._flush_quietly(), label=FLUSH_LABEL, timeout=FLUSH_TIMEOUT)

    async def _flush_quietly(self) -> None:
        with suppress(StoreUnavailable):  # other writers report the outage
            await self.flush()
