"""Receipts, steps, deliveries."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from bot.domain.content import Content
from bot.domain.edits import blotted
from bot.domain.inbound import Arrival, Cursor, Received, first_claim
from bot.domain.ledger import Delivery, DeliveryState, EventKey, Receipt, Step
from bot.store.inmemory.environment import InMemoryEntities, InMemoryWorlds
from bot.store.inmemory.memories import InMemoryMemories
from bot.store.ledger import Commitment, Health

OPEN_DELIVERIES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
MOST_TURNS = MOST_FINISHED = 10_000
DONE_DELIVERIES = (DeliveryState.SENT, DeliveryState.CANCELLED)
SETTLED_DELIVERIES = (*DONE_DELIVERIES, DeliveryState.FAILED)


class InMemoryLedger:
    """Keeps receipts, steps and deliveries; see `Ledger`. Nothing in it waits, so each call is atomic.

    What is open is kept; of closed receipts, of turns' steps and of finished deliveries the latest are.
    """

    def __init__(
        self, worlds: InMemoryWorlds, entities: InMemoryEntities, memories: InMemoryMemories
    ) -> None:
        self.health = Health()
        self._worlds, self._entities, self._memories = worlds, entities, memories
        self.book = ReceiptBook()
        self._steps: OrderedDict[UUID, dict[str, Step]] = OrderedDict()
        self._deliveries: dict[str, Delivery] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._last_seq: defaultdict[UUID, int] = defaultdict(int)
        self._cursors: dict[tuple[str, str, str], str] = {}

    async def receive(
        self, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None = None
    ) -> list[Received]:
        if cursor is not None:
            self._cursors[cursor.platform, cursor.account, cursor.name] = cursor.value
        return [self._receive(arrival, at) for arrival in arrivals]

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        return self._cursors.get((platform, account, name))

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        originals = (one for one in self.book if not one.key.revision and one.room_id in room_ids)
        return {one.room_id: one.key.message_id for one in originals}

    def _receive(self, arrival: Arrival, at: datetime) -> Received:
        known = self.book.known(arrival.key)
        if known is not None:
            return Received(known)
        world, [room] = self._worlds.put(arrival.world, [arrival.room])
        author = self._entities.put(arrival.author, room.id)
        self._memories.put(arrival.message)
        receipt = first_claim(arrival, at)
        self.book.insert(receipt)
        kept = replace(arrival, world=world, room=room, author=author)
        return Received(receipt, kept, self._worlds.attendance_of(room.id), is_new=True)

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        self.book.save(receipts)

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return self.book.find(receipt_id)

    async def arrival(self, receipt: Receipt) -> Arrival | None:
        message = (await self._memories.memories([receipt.memory_id])).get(receipt.memory_id)
        room = await self._worlds.room(message.room_id) if message else None
        world = await self._worlds.world(room.world_id) if room else None
        author = (await self._entities.entities([receipt.author_id])).get(receipt.author_id)
        if room is None or world is None or author is None or message is None:
            return None
        return Arrival(receipt.key, world, room, author, message)

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        found = (
            receipt
            for receipt in reversed(self.book)
            if room_id in (None, receipt.room_id) and is_open in (None, not receipt.outcome.is_final)
        )
        return [receipt for receipt, _ in zip(found, range(limit), strict=False)]

    async def unlearnt(self, limit: int = 1000) -> list[Receipt]:
        found = (receipt for receipt in self.book if not receipt.is_learnt)
        return [receipt for receipt, _ in zip(found, range(limit), strict=False)]

    async def mark_learnt(self, receipt_ids: Sequence[UUID]) -> None:
        self.book.mark_learnt(receipt_ids)

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        if commitment.receipts and not self.book.save(commitment.receipts):
            known = (self._deliveries.get(delivery.id) for delivery in commitment.deliveries)
            return [delivery for delivery in known if delivery is not None]
        for memory in commitment.replies:
            self._memories.put(memory)
        return [self._place(delivery) for delivery in commitment.deliveries]

    def _place(self, delivery: Delivery) -> Delivery:
        return self._deliveries.get(delivery.id) or self.put_last(delivery)

    def forget(self, author_id: UUID, at: datetime) -> list[Receipt]:
        """Take the words out of somebody's receipts, and out of what was done and sent for them.

        Gives them as they were.
        """
        before = [receipt for receipt in self.book if receipt.author_id == author_id]
        self.book.rewrite([blotted(receipt, at) for receipt in before])
        turns = {receipt.turn_id for receipt in before if receipt.turn_id is not None}
        for turn_id in turns & self._steps.keys():
            del self._steps[turn_id]
        for part in [one for one in self._deliveries.values() if one.turn_id in turns]:
            if part.state in SETTLED_DELIVERIES:
                self._put(replace(part, content=Content()))
        return before

    def put_last(self, delivery: Delivery) -> Delivery:
        """Give a part the next place in its room."""
        self._last_seq[delivery.room_id] += 1
        placed = replace(delivery, seq=self._last_seq[delivery.room_id])
        self._put(placed)
        return placed

    def _put(self, delivery: Delivery) -> None:
        self._deliveries[delivery.id] = delivery
        self._finished.pop(delivery.id, None)
        if delivery.state not in OPEN_DELIVERIES:
            self._finished[delivery.id] = None
        if len(self._finished) > MOST_FINISHED:
            del self._deliveries[self._finished.popitem(last=False)[0]]

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        await self.save_receipts(receipts)
        self._steps.setdefault(step.turn_id, {})[step.key] = step
        if len(self._steps) > MOST_TURNS:
            self._steps.popitem(last=False)

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        return dict(self._steps.get(turn_id, {}))

    async def save_delivery(self, delivery: Delivery) -> None:
        self._put(delivery)

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

    async def called(self, message_id: str) -> list[Receipt]:
        found = reversed(self.book)
        return [receipt for receipt in found if receipt.key.message_id == message_id]

    async def delivery(self, delivery_id: str) -> Delivery | None:
        return self._deliveries.get(delivery_id)

    async def unsent(self, limit: int = 100) -> list[Delivery]:
        found = [one for one in self._deliveries.values() if one.state not in DONE_DELIVERIES]
        return found[-limit:]


K = TypeVar("K")
MOST_CLOSED = 10_000


class ReceiptBook:
    """Receipts in the order in which they were made; of the closed ones those that were closed last."""

    def __init__(self) -> None:
        self._receipts: dict[UUID, Receipt] = {}
        self._by_memory: dict[UUID, UUID] = {}
        self._by_event: dict[tuple[str, str, str], UUID] = {}
        self._by_message: dict[tuple[UUID, str, int], UUID] = {}
        self._closed: deque[UUID] = deque()

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self._receipts.values())

    def __reversed__(self) -> Iterator[Receipt]:
        return reversed(self._receipts.values())

    def find(self, receipt_id: UUID) -> Receipt | None:
        """Find a receipt by its id, or the latest by the id of its message."""
        return self._receipts.get(self._by_memory.get(receipt_id, receipt_id))

    def known(self, key: EventKey) -> Receipt | None:
        """Find the receipt of an event by either of its keys."""
        found = self._by_event.get(_event(key)) or self._by_message.get(_message(key))
        return self._receipts[found] if found else None

    def of_messages(self, room_id: UUID, message_ids: Collection[str]) -> list[Receipt]:
        """List the receipts of messages, all revisions of them."""
        found = self._receipts.values()
        return [one for one in found if one.key.room_id == room_id and one.key.message_id in message_ids]

    def insert(self, receipt: Receipt) -> None:
        """Insert a receipt."""
        self._put(receipt)
        self._by_memory[receipt.memory_id] = receipt.id
        self._by_event[_event(receipt.key)] = receipt.id
        self._by_message[_message(receipt.key)] = receipt.id

    def save(self, receipts: Sequence[Receipt]) -> int:
        """Write the new state of receipts that are open, and count them."""
        known = [self._receipts.get(receipt.id) for receipt in receipts]
        pairs = zip(receipts, known, strict=True)
        still_open = [one for one, before in pairs if before and not before.outcome.is_final]
        for receipt in still_open:
            self._put(receipt)
        return len(still_open)

    def rewrite(self, receipts: Sequence[Receipt]) -> None:
        """Write receipts anew, closed ones too."""
        for receipt in receipts:
            was_open = not self._receipts[receipt.id].outcome.is_final
            if was_open:
                self._put(receipt)
            else:
                self._receipts[receipt.id] = receipt

    def mark_learnt(self, receipt_ids: Collection[UUID]) -> None:
        """Note that all has been learnt from these."""
        for receipt_id in receipt_ids:
            if (known := self._receipts.get(receipt_id)) is not None:
                self._receipts[receipt_id] = replace(known, is_learnt=True)

    def _put(self, receipt: Receipt) -> None:
        self._receipts[receipt.id] = receipt
        if receipt.outcome.is_final:
            self._closed.append(receipt.id)
        if len(self._closed) > MOST_CLOSED:
            self._forget(self._closed.popleft())

    def _forget(self, receipt_id: UUID) -> None:
        receipt = self._receipts.pop(receipt_id)
        _drop(self._by_memory, receipt.memory_id, receipt_id)
        _drop(self._by_event, _event(receipt.key), receipt_id)
        _drop(self._by_message, _message(receipt.key), receipt_id)


def _drop(index: dict[K, UUID], key: K, receipt_id: UUID) -> None:
    if index.get(key) == receipt_id:  # a later one of the same message may stand there
        del index[key]


def _event(key: EventKey) -> tuple[str, str, str]:
    return (key.platform, key.account, key.event_id)


def _message(key: EventKey) -> tuple[UUID, str, int]:
    return (key.room_id, key.message_id, key.revision)
