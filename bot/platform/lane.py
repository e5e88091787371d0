"""One room's way out: which parts wait, in which order, and which is being sent."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from bot.domain.ledger import Delivery


@dataclass(slots=True, eq=False)
class Lane:
    """One room's parts: those that wait, in order, and the one that is being sent.

    While commits are under way nothing is begun: one of them may bring what comes before it. Nothing could
    leave before `open_from`, where that is known: since then at the earliest a part is late.
    """

    waiting: deque[Delivery] = field(default_factory=deque)
    sending: Delivery | None = None
    sender: asyncio.Task[None] | None = None
    commits: int = 0
    open_from: datetime | None = None

    def is_open(self, at: datetime) -> bool:
        """Tell whether the platform has asked for no wait beyond that moment."""
        return self.open_from is None or self.open_from <= at

    def put(self, delivery: Delivery) -> None:
        """Queue a part at its place in the room's order; one that is queued already stays as it is."""
        known = (*self.waiting, self.sending) if self.sending else self.waiting
        if any(one.id == delivery.id for one in known):
            return
        after = sum(one.seq <= delivery.seq for one in self.waiting)
        self.waiting.insert(after, delivery)

    def remove(self, delivery_id: str) -> bool:
        """Take a part out; tells whether others of its message still wait."""
        left = [one for one in self.waiting if one.id != delivery_id]
        gone = [one for one in self.waiting if one.id == delivery_id]
        self.waiting = deque(left)
        return any(one.memory_id == out.memory_id for out in gone for one in left)
