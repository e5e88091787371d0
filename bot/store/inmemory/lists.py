"""Lists for operators in memory."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar
from uuid import UUID

from bot.domain.environment import ParticipantState, Room
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.store.inmemory.ledger import DONE_STATES, InMemoryLedger
from bot.store.inmemory.records import InMemoryMemories, InMemoryWorlds
from bot.store.lists import ListedMessage, MessageFilter, Page, PageKey, RoomFilter, RoomSummary

T = TypeVar("T")


def _build_page(items: Iterable[tuple[int, T]], before: PageKey | None, limit: int) -> Page[T]:
    """Return the first items whose number is below a key, of items with falling numbers."""
    wanted = (((number,), item) for number, item in items if before is None or number < before[0])
    page = list(islice(wanted, limit + 1))
    return Page(tuple(page[:limit]), page[limit - 1][0] if len(page) > limit else None)


def _numbered(items: Sequence[T]) -> list[tuple[int, T]]:
    """Return items, the newest first, with numbers that fall to 1."""
    return [(len(items) - index, item) for index, item in enumerate(items)]


class InMemoryLists:
    """Implements `ListStore`."""

    def __init__(self, worlds: InMemoryWorlds, memories: InMemoryMemories, ledger: InMemoryLedger) -> None:
        self._worlds, self._memories, self._ledger = worlds, memories, ledger

    async def rooms(
        self, wanted: RoomFilter, *, counted_since: datetime, before: PageKey | None = None, limit: int = 50
    ) -> Page[RoomSummary]:
        rooms = [
            (number, room)
            for number, room in _numbered(await self._worlds.rooms())
            if wanted.accepts(
                platform=room.platform, world_id=room.world_id, name=room.name, external_id=room.external_id
            )
        ]
        page = _build_page(rooms, before, limit)
        return Page(tuple([(key, await self._summarize(room, counted_since)) for key, room in page.items]), page.next)

    async def _summarize(self, room: Room, counted_since: datetime) -> RoomSummary:
        world = await self._worlds.world(room.world_id)
        receipts = [receipt for receipt in self._ledger.receipt_table if receipt.room_id == room.id]
        times = [receipt.received_at for receipt in receipts]
        if not times:
            times = [memory.created_at for memory in await self._memories.recent(room.id, 1)]
        return RoomSummary(
            room,
            world.name if world else "",
            self._worlds.participant_state_of(room.id) is ParticipantState.MUTED,
            times[-1] if times else None,
            sum(receipt.received_at >= counted_since for receipt in receipts),
        )

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        return {room.id: room for room in await self._worlds.rooms() if room.id in ids}

    async def messages(
        self, room_id: UUID, wanted: MessageFilter, *, before: PageKey | None = None, limit: int = 50
    ) -> Page[ListedMessage]:
        numbered = [
            (number, self._list(memory))
            for number, memory in reversed(self._memories.arrivals(room_id, MemoryKind.MESSAGE))
        ]
        matches = [(number, item) for number, item in numbered if _is_wanted(wanted, item)]
        return _build_page(matches, before, limit)

    async def messages_after(self, room_id: UUID, after: PageKey, limit: int = 50) -> Page[ListedMessage]:
        newer = [
            ((number,), self._list(memory))
            for number, memory in self._memories.arrivals(room_id, MemoryKind.MESSAGE)
            if number > after[0]
        ]
        return Page(tuple(newer[:limit]), newer[limit - 1][0] if len(newer) > limit else None)

    def _list(self, memory: Memory) -> ListedMessage:
        return ListedMessage(memory, self._ledger.receipt_table.find(memory.id))

    async def receipts_of(self, message_ids: Collection[UUID]) -> dict[UUID, Receipt]:
        receipts = (self._ledger.receipt_table.find(message_id) for message_id in message_ids)
        return {receipt.memory_id: receipt for receipt in receipts if receipt is not None}

    async def deliveries(
        self, states: Collection[DeliveryState], *, before: PageKey | None = None, limit: int = 50
    ) -> Page[Delivery]:
        newest_first = (await self._ledger.deliveries())[::-1]
        matches = [
            (number, delivery)
            for number, delivery in _numbered(newest_first)
            if delivery.state in states and delivery.state not in DONE_STATES
        ]
        return _build_page(matches, before, limit)

    async def count_deliveries(self, *, without_cause: str = "") -> Mapping[DeliveryState, int]:
        stored = await self._ledger.deliveries()
        deliveries = [delivery for delivery in stored if not without_cause or delivery.cause != without_cause]
        states = [state for state in DeliveryState if state not in DONE_STATES]
        return {state: sum(delivery.state is state for delivery in deliveries) for state in states}


def _is_wanted(wanted: MessageFilter, item: ListedMessage) -> bool:
    receipt = None if item.receipt is None else (item.receipt.outcome, item.receipt.rule)
    return wanted.accepts(item.memory.entity_id, item.memory.created_at, receipt)
