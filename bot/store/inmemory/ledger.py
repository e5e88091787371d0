"""The books in memory."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.arrival import Arrival
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState, EventKey, Receipt, Step
from bot.store.inmemory.memories import InMemoryMemories
from bot.store.inmemory.people import InMemoryEntities
from bot.store.inmemory.worlds import InMemoryWorlds
from bot.store.protocols import Commitment

OPEN_DELIVERIES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


class InMemoryLedger:
    """Keeps receipts, steps and deliveries; see `Ledger`. Nothing in it waits, so each call is atomic."""

    def __init__(
        self, worlds: InMemoryWorlds, entities: InMemoryEntities, memories: InMemoryMemories
    ) -> None:
        self._worlds, self._entities, self._memories = worlds, entities, memories
        self._receipts: dict[UUID, Receipt] = {}
        self._by_memory: dict[UUID, UUID] = {}
        self._by_event: dict[tuple[str, str, str], UUID] = {}
        self._by_message: dict[tuple[UUID, str, int], UUID] = {}
        self._steps: defaultdict[UUID, dict[str, Step]] = defaultdict(dict)
        self._deliveries: dict[str, Delivery] = {}
        self._last_seq: defaultdict[UUID, int] = defaultdict(int)

    async def receive(self, arrivals: Sequence[Arrival], at: datetime) -> list[tuple[Receipt, bool]]:
        return [self._receive(arrival, at) for arrival in arrivals]

    def _receive(self, arrival: Arrival, at: datetime) -> tuple[Receipt, bool]:
        key = arrival.key
        known = self._by_event.get(_event(key)) or self._by_message.get(_message(key))
        if known is not None:
            return self._receipts[known], False
        self._worlds.put(arrival.world, [arrival.room])
        self._entities.put(arrival.author, arrival.room.id)
        self._memories.put(arrival.message)
        receipt = Receipt(
            new_id(), key, arrival.room.id, arrival.author.id, arrival.message.id, received_at=at
        )
        self._receipts[receipt.id] = receipt
        self._by_memory[arrival.message.id] = receipt.id
        self._by_event[_event(key)] = receipt.id
        self._by_message[_message(key)] = receipt.id
        return receipt, True

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        self._save(receipts)

    def _save(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            known = self._receipts.get(receipt.id)
            if known is not None and not known.outcome.is_final:
                self._receipts[receipt.id] = receipt

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return self._receipts.get(self._by_memory.get(receipt_id, receipt_id))

    async def arrival(self, receipt: Receipt) -> Arrival | None:
        room = await self._worlds.room(receipt.room_id)
        world = await self._worlds.world(room.world_id) if room else None
        author = (await self._entities.entities([receipt.author_id])).get(receipt.author_id)
        message = (await self._memories.memories([receipt.memory_id])).get(receipt.memory_id)
        if room is None or world is None or author is None or message is None:
            return None
        return Arrival(receipt.key, world, room, author, message)

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        found = (
            receipt
            for receipt in reversed(self._receipts.values())
            if room_id in (None, receipt.room_id) and is_open in (None, not receipt.outcome.is_final)
        )
        return [receipt for receipt, _ in zip(found, range(limit), strict=False)]

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        for memory in commitment.replies:
            self._memories.put(memory)
        placed = [self._place(delivery) for delivery in commitment.deliveries]
        self._save(commitment.receipts)
        return placed

    def _place(self, delivery: Delivery) -> Delivery:
        if delivery.id not in self._deliveries:
            self._last_seq[delivery.room_id] += 1
            self._deliveries[delivery.id] = replace(delivery, seq=self._last_seq[delivery.room_id])
        return self._deliveries[delivery.id]

    async def save_step(self, step: Step) -> None:
        self._steps[step.turn_id][step.key] = step

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        return dict(self._steps.get(turn_id, {}))

    async def save_delivery(self, delivery: Delivery) -> None:
        self._deliveries[delivery.id] = delivery

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return [
            delivery
            for delivery in self._deliveries.values()
            if is_open in (None, delivery.state in OPEN_DELIVERIES)
            and room_id in (None, delivery.room_id)
            and turn_id in (None, delivery.turn_id)
        ]


def _event(key: EventKey) -> tuple[str, str, str]:
    return (key.platform, key.account, key.event_id)


def _message(key: EventKey) -> tuple[UUID, str, int]:
    return (key.room_id, key.message_id, key.revision)
