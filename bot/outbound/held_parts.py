"""`HeldParts`: deliveries of unknown outcome that wait for an operator, and the notices about them."""

import logging
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.events import MessageHeld
from bot.domain.ledger import Delivery, DeliveryState
from bot.event_bus import EventBus
from bot.outbound.drafts import is_draft
from bot.outbound.send_queue import WorkOwnership
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)
MAX_REOPEN_AGE = timedelta(days=1)
MAX_LISTED = 1000


class HeldParts:
    """Counts the held parts of one agent and reports each: in the log, and as an event for plugins."""

    def __init__(
        self, ledger: Ledger, events: EventBus, agent_id: UUID, ownership: WorkOwnership, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._ownership = ownership
        self._clock = clock
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many parts wait for a decision."""
        return len(self._ids)

    def add(self, part: Delivery) -> None:
        """Report a part that is held now."""
        logger.error(
            "part %s of a reply is held (%s): look whether %s has it, then `bot outbox send %s` or `… drop %s`",
            part.id,
            part.cause,
            part.platform,
            part.id,
            part.id,
        )
        self._ids.add(part.id)
        self._events.emit(MessageHeld(self._agent_id, part.memory_id, part.room_id, part.id, part.cause))

    def remove(self, delivery_id: str) -> None:
        """Record that a part was decided about."""
        self._ids.discard(delivery_id)

    async def reopen(self) -> None:
        """Open the parts again that an earlier process has held, where that was within a day; count the others.

        A part without an attempt of this database, such as one of a restored backup, stays held.
        """
        known_count = self.count
        for part in await self._ledger.undelivered(MAX_LISTED):
            is_held = part.state is DeliveryState.UNKNOWN and not is_draft(part)
            if not is_held or part.id in self._ids or not self._ownership.sends_room(part.room_id):
                continue
            if part.first_attempt_at is None or self._clock() - part.first_attempt_at > MAX_REOPEN_AGE:
                self._ids.add(part.id)
            else:
                await self._ledger.save_delivery(replace(part, state=DeliveryState.ATTEMPTING))
        if self.count > known_count:
            logger.warning("%d parts of replies are held: `bot outbox list` shows them", self.count)
