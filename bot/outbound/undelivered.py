"""`UndeliveredParts`: list, retry or drop deliveries that have not arrived."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryState
from bot.outbound.delivery_attempt import OPEN_STATES
from bot.outbound.drafts import is_draft
from bot.outbound.outbox import Outbox
from bot.store.ledger import Ledger

MAX_OVERDUE_READ = 500
HELD_STATES = (DeliveryState.UNKNOWN, DeliveryState.FAILED)


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """A delivery after a decision, whether it is now as requested, and a note about it."""

    part: Delivery
    is_done: bool
    note: str


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """Why a part has not arrived, in one sentence, and when it is tried again, where that is known."""

    why: str
    next_attempt_at: datetime | None = None


def is_dropped(part: Delivery) -> bool:
    """Return whether an operator has given a part up; it is sent again only by name."""
    return part.state is DeliveryState.FAILED and part.cause == DROPPED_CAUSE


class UndeliveredParts:
    """Lists what has not arrived, sends a part again, or gives it up.

    Without an `outbox` nothing is being sent: what is retried then is sent at the next start.
    """

    def __init__(self, ledger: Ledger, outbox: Outbox | None = None) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._lock = asyncio.Lock()  # a part put back twice at once would leave twice

    @property
    def held_count(self) -> int:
        """How many parts wait for an operator's decision, as far as this process knows."""
        return self._outbox.held_parts.count if self._outbox is not None else 0

    async def parts(self, limit: int = 100) -> list[Delivery]:
        """List the latest parts that wait, are held or have failed, in the order of sending."""
        return await self._ledger.undelivered(limit)

    def explain(self, part: Delivery) -> DeliveryStatus:
        """Return why a part has not arrived, and when it is tried again."""
        cause = part.cause.rstrip(".")
        if part.state is DeliveryState.UNKNOWN:
            return DeliveryStatus(f"{cause or 'The connection broke off'}: it is unknown whether it arrived")
        if part.state not in OPEN_STATES:
            return DeliveryStatus(cause or "It was refused")
        if self._outbox is None:
            return DeliveryStatus("The bot is not running: it is sent at the next start")
        wait = self._outbox.wait_of(part)
        if wait is None and not self._outbox.ownership.sends_room(part.room_id):
            return DeliveryStatus("Another process sends it")
        if self._outbox.adapter(part.platform) is None:
            return DeliveryStatus(f"{part.platform} is not connected: it is sent once it is")
        if wait is not None and wait.is_behind:
            return DeliveryStatus("Behind another part of the same room")
        if wait is not None and wait.until is not None:
            return DeliveryStatus(cause or "It is tried again after a pause", wait.until)
        return DeliveryStatus("It is being sent")

    async def find_overdue(self, connected: Mapping[str, datetime], before: datetime) -> datetime | None:
        """Return since when the oldest part has waited that was to be sent before a time; None without any.

        `connected` says since when each platform is connected; parts of others wait for that. What waits for a pause
        that the platform has asked for, behind another part, or elsewhere, is not overdue.
        """
        overdue = []
        for part in await self._ledger.undelivered(MAX_OVERDUE_READ):
            wait = self._outbox.wait_of(part) if self._outbox is not None and part.state in OPEN_STATES else None
            if wait is not None and not wait.is_behind and part.platform in connected:
                since = max(part.created_at, connected[part.platform])
                overdue.append(max(since, wait.not_before or since))
        return min((since for since in overdue if since <= before), default=None)

    async def retry(self, delivery_id: str) -> DeliveryDecision | None:
        """Queue a held or failed part again; return None where there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is None:
                return None
            if part.state in OPEN_STATES:
                return DeliveryDecision(part, True, "it is on its way already")
            if part.state not in HELD_STATES:
                return _build_final_decision(part)
            if is_draft(part):
                return DeliveryDecision(part, False, "it is only what was seen of a reply while that was written")
            part = replace(part, state=DeliveryState.PENDING, cause="")
            await self._ledger.save_delivery(part)
            if self._outbox is None:
                return DeliveryDecision(part, True, "it leaves at the next start")
            await self._outbox.requeue(part)
            return DeliveryDecision(part, True, "it leaves as soon as its platform takes it")

    async def drop(self, delivery_id: str) -> DeliveryDecision | None:
        """Cancel the delivery of a part; return None if there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is not None and part.state in OPEN_STATES and self._outbox is not None:
                if not await self._outbox.cancel_delivery(part):
                    return DeliveryDecision(part, False, "it is being sent just now: try again in a moment")
                part = await self._ledger.delivery(delivery_id)  # again, now that it is not being sent
            if part is None:
                return None
            if part.state not in (*OPEN_STATES, *HELD_STATES):
                return _build_final_decision(part)
            part = replace(part, state=DeliveryState.FAILED, cause=DROPPED_CAUSE)
            await self._ledger.save_delivery(part)
            if self._outbox is not None:
                self._outbox.held_parts.remove(part.id)
            return DeliveryDecision(part, True, "it is given up for good")


def _build_final_decision(part: Delivery) -> DeliveryDecision:
    return DeliveryDecision(part, False, f"nothing is left to decide: it is {part.state} already")
