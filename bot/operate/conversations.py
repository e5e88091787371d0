"""`ConversationReader`: the rooms, messages, receipts and deliveries of one agent, for reading."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import CostDimension, CostEntry, Delivery, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.receipts import TRACE_KEY
from bot.store.activity import VoteSum
from bot.store.ledger import ListedReceipt, ReceiptCount, ReceiptQuery
from bot.store.protocols import LogKind, RecallScope, Store

MAX_SEARCHED_ROOMS = 200
MAX_RUN_LOGS = 1000  # newest log entries of a room that are searched


@dataclass(frozen=True, slots=True)
class ConversationReader:
    """Read-only view of the rooms, messages, receipts and deliveries of one agent.

    `flush_costs` and `flush_traces` store what the last moments cost and noted; None where the agent runs in another
    process.
    """

    _store: Store
    _flush_costs: Callable[[], Awaitable[None]] | None = None
    _flush_traces: Callable[[], Awaitable[None]] | None = None

    async def rooms(self) -> list[Room]:
        """List all rooms, the most recently active first."""
        return await self._store.worlds.rooms()

    async def find_rooms(self, text: str) -> list[Room]:
        """Return the rooms whose id, name or id on the platform is a text, exactly, or else in another case."""
        rooms, folded = await self._store.worlds.rooms(), text.casefold()
        exact = [room for room in rooms if text in _names_of(room)]
        return exact or [room for room in rooms if folded in map(str.casefold, _names_of(room))]

    async def room(self, room_id: UUID) -> Room | None:
        """Return a room; None where there is none."""
        return await self._store.worlds.room(room_id)

    async def room_of_message(self, world_id: UUID, message_id: str) -> Room | None:
        """Return the room of a world in which a message has this id on the platform; None where it is unknown."""
        rooms = {room.id: room for room in await self._store.worlds.rooms(world_id)}
        for receipt in await self._store.ledger.receipts_by_message_id(message_id):
            if receipt.room_id in rooms:
                return rooms[receipt.room_id]
        for room in rooms.values():
            deliveries = await self._store.ledger.deliveries(room_id=room.id)
            if any(delivery.external_id == message_id for delivery in deliveries):
                return room
        return None

    async def world(self, world_id: UUID) -> World | None:
        """Return a world; None where there is none."""
        return await self._store.worlds.world(world_id)

    async def messages(self, room_id: UUID, limit: int = 50) -> list[Memory]:
        """List the last messages of a room, oldest first."""
        return await self._store.memories.recent(room_id, limit)

    async def message(self, message_id: UUID) -> Memory | None:
        """Return a message; None where there is none."""
        return (await self._store.memories.memories([message_id])).get(message_id)

    async def proposal(self, turn_id: UUID) -> Proposal | None:
        """Return the draft of a turn, whatever became of it; None where there was none."""
        return next(iter(await self._store.ledger.proposals(turn_id=turn_id, limit=1)), None)

    async def search(self, text: str, limit: int = 20) -> list[Memory]:
        """Return the facts and messages that share the most words with a text, facts first, best first.

        Those of the rooms that were active last are searched.
        """
        rooms = await self._store.worlds.rooms()
        found = await self._search(MemoryKind.FACT, text, rooms, limit)
        return [*found, *await self._search(MemoryKind.MESSAGE, text, rooms, limit - len(found) or 1)][:limit]

    async def search_messages(self, text: str, rooms: Sequence[Room], limit: int = 20) -> list[Memory]:
        """Return the messages of these rooms that share the most words with a text, best first.

        Of many rooms only the first are searched.
        """
        return await self._search(MemoryKind.MESSAGE, text, rooms, limit)

    async def _search(self, kind: MemoryKind, text: str, rooms: Sequence[Room], limit: int) -> list[Memory]:
        if not rooms:
            return []
        searched = rooms[:MAX_SEARCHED_ROOMS]
        also = frozenset(audience for room in searched for audience in (room.id, room.world_id))
        scope = RecallScope(searched[0].id, searched[0].world_id, also)
        return await self._store.memories.search(text, scope, kind, limit)

    async def authors(self, messages: list[Memory]) -> dict[UUID, Entity]:
        """Return the authors of these messages by id."""
        return await self._store.entities.entities({message.entity_id for message in messages})

    async def receipt_author(self, receipt: Receipt) -> Entity | None:
        """Return the author of a message that may be deleted; None if nothing is known of them."""
        return (await self._store.entities.entities([receipt.author_id])).get(receipt.author_id)

    async def replies(self, turn_id: UUID, room_id: UUID | None = None) -> list[Memory]:
        """List what a turn has created, oldest first; with a room, only the messages that it has written there."""
        return await self._store.memories.by_turn(turn_id, room_id)

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        """Return the receipt of an event, by the receipt's id or the message's."""
        return await self._store.ledger.receipt(receipt_id)

    async def receipts(self, *, room_id: UUID | None = None, limit: int = 50) -> list[Receipt]:
        """List the receipts of the latest events, newest first."""
        return await self._store.ledger.receipts(room_id=room_id, limit=limit)

    async def search_receipts(
        self, query: ReceiptQuery, *, before: UUID | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[ListedReceipt]:
        """List the receipts of a query, newest first; only those older than the receipt `before`.

        With `after` instead, those newer than that receipt, oldest first.
        """
        return await self._store.ledger.search_receipts(query, before=before, after=after, limit=limit)

    async def count_receipts(self, query: ReceiptQuery) -> list[ReceiptCount]:
        """Count the receipts of a query by outcome and rule, the most frequent first."""
        return await self._store.ledger.count_receipts(query)

    async def trace(self, turn_id: UUID) -> Mapping[str, Any] | None:
        """Return what a turn has noted, for `read_steps` and `read_sections`; it is stored as long as its journal."""
        if self._flush_traces is not None:
            await self._flush_traces()
        step = (await self._store.ledger.steps(turn_id)).get(TRACE_KEY)
        return step.result if step else None

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        """Return memories by id; those that were deleted are missing."""
        return await self._store.memories.memories(ids)

    async def deliveries(self, turn_id: UUID) -> list[Delivery]:
        """List the deliveries of a turn."""
        return await self._store.ledger.deliveries(turn_id=turn_id)

    async def votes(self, turn_id: UUID) -> VoteSum | None:
        """Return the votes on the replies of a turn; None if there are none."""
        return await self._store.activity.votes_of(turn_id)

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """Return a delivery; None where the agent has made none with this id, or long ago."""
        return await self._store.ledger.delivery(delivery_id)

    async def room_deliveries(self, room_id: UUID, *, is_open: bool | None = None) -> list[Delivery]:
        """List the deliveries of a room, in sending order; sent ones are stored for as long as receipts."""
        return await self._store.ledger.deliveries(room_id=room_id, is_open=is_open)

    async def has_sent(self, room_id: UUID, message_id: str) -> bool:
        """Return whether the agent has sent the message with this id on the platform in a room."""
        return any(delivery.external_id == message_id for delivery in await self.room_deliveries(room_id))

    async def costs(
        self, first_day: date, last_day: date, by: Sequence[CostDimension] | None = None
    ) -> list[CostEntry]:
        """List the costs of model calls on these days (UTC), or their sums by these dimensions."""
        if self._flush_costs is not None:
            await self._flush_costs()
        if by is None:
            return await self._store.costs.costs_between(first_day, last_day)
        return await self._store.costs.sums_between(first_day, last_day, by)

    async def run_log(self, receipt: Receipt) -> Mapping[str, Any] | None:
        """Return the log entry of the work on a message; it is stored for less time than the receipt."""
        entries = await self._store.logs.logs(kind=LogKind.RUN, room_id=receipt.room_id, limit=MAX_RUN_LOGS)
        bodies = (entry["body"] for entry in entries)
        message_id = str(receipt.memory_id)
        return next((body for body in bodies if body.get("message_id") == message_id), None)


def _names_of(room: Room) -> tuple[str, ...]:
    return str(room.id), room.name, room.external_id, f"{room.platform}:{room.external_id}"
