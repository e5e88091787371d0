"""What a front end may read of the books, without touching the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from bot.domain.costs import Spending
from bot.domain.environment import Entity, Room
from bot.domain.ledger import Delivery, Receipt
from bot.domain.memory import Memory
from bot.store.protocols import RUN_LOG, Store

MOST_RUNS = 1000  # as many of a room's runs are looked through


@dataclass(frozen=True, slots=True)
class Records:
    """Rooms, messages, receipts and deliveries of one agent, to be shown."""

    store: Store

    async def rooms(self) -> list[Room]:
        """List all rooms, the most recently active first."""
        return await self.store.worlds.rooms()

    async def room(self, room_id: UUID) -> Room | None:
        """Find a room."""
        return await self.store.worlds.room(room_id)

    async def messages(self, room_id: UUID, limit: int = 50) -> list[Memory]:
        """List the last messages of a room, oldest first."""
        return await self.store.memories.recent(room_id, limit)

    async def message(self, message_id: UUID) -> Memory | None:
        """Find a message."""
        return (await self.store.memories.memories([message_id])).get(message_id)

    async def authors(self, messages: list[Memory]) -> dict[UUID, Entity]:
        """Find who wrote these messages."""
        return await self.store.entities.entities({message.entity_id for message in messages})

    async def replies(self, turn_id: UUID) -> list[Memory]:
        """List what a turn has said, oldest first."""
        return await self.store.memories.by_turn(turn_id)

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        """Find what became of an event, by the receipt's id or the message's."""
        return await self.store.ledger.receipt(receipt_id)

    async def receipts(self, *, room_id: UUID | None = None, limit: int = 50) -> list[Receipt]:
        """List what became of the latest events, newest first."""
        return await self.store.ledger.receipts(room_id=room_id, limit=limit)

    async def deliveries(self, turn_id: UUID) -> list[Delivery]:
        """List the outgoing parts of a turn."""
        return await self.store.ledger.deliveries(turn_id=turn_id)

    async def spent(self, first: date, last: date) -> list[Spending]:
        """List what model calls have come to on these days (in UTC), the last ten seconds perhaps not."""
        return await self.store.spending.spent(first, last)

    async def run(self, receipt: Receipt) -> Mapping[str, Any] | None:
        """Find what the log says of the work on a message; it is kept for less time than the receipt."""
        entries = await self.store.logs.logs(kind=RUN_LOG, room_id=receipt.room_id, limit=MOST_RUNS)
        bodies = (entry["body"] for entry in entries)
        wanted = str(receipt.memory_id)
        return next((body for body in bodies if body.get("message_id") == wanted), None)
