"""Receipts, steps and deliveries in memory."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from bot.concurrency.tasks import BoundedDict
from bot.domain.environment import ANYBODY, Entity, Room, World
from bot.domain.inbound import (
    MAX_UNREADABLE_EVENTS,
    ErasedWords,
    InboundMessage,
    StoredEvent,
    StreamCursor,
    UnreadableEvent,
    new_receipt,
    redact_delivery,
    redact_receipt,
)
from bot.domain.ledger import Delivery, DeliveryState, EventKey, EventOrigin, ModelCall, Receipt, Step
from bot.store.inmemory.records import InMemoryEntities, InMemoryMemories, InMemoryWorlds
from bot.store.ledger import ListedReceipt, ReceiptCount, ReceiptQuery, StoreHealth, TurnCommit

OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
MAX_TURNS = MAX_FINISHED = 10_000
MAX_TRACES = 300  # each holds the prompts of its turn
DONE_STATES = (DeliveryState.SENT, DeliveryState.CANCELLED)
FINAL_STATES = (*DONE_STATES, DeliveryState.FAILED)
K = TypeVar("K")
MAX_CLOSED_RECEIPTS = 10_000


class InMemoryUnreadableEvents:
    """Implements `UnreadableEventStore`."""

    def __init__(self) -> None:
        self._unreadable: dict[tuple[str, str, str], UnreadableEvent] = {}

    async def record_unreadable(self, events: Sequence[UnreadableEvent]) -> None:
        for event in events:
            self._unreadable.setdefault((event.platform, event.account, event.event_id), event)
        for key in list(self._unreadable)[:-MAX_UNREADABLE_EVENTS]:
            del self._unreadable[key]

    async def unreadable_events(self, limit: int = 100) -> list[UnreadableEvent]:
        return list(self._unreadable.values())[::-1][:limit]

    def erase_unreadable(self, entity: Entity) -> None:
        """Delete the unreadable events that name a person by their id on the platform."""
        for key, event in list(self._unreadable.items()):
            if event.platform == entity.platform and entity.external_id and entity.external_id in event.raw:
                del self._unreadable[key]


class InMemoryTraces(InMemoryUnreadableEvents):
    """Stores what the latest turns have noted."""

    def __init__(self) -> None:
        super().__init__()
        self._traces = BoundedDict[UUID, Step](MAX_TRACES)

    async def save_traces(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._traces[step.turn_id] = step

    def erase_traces(self, marks: Collection[UUID]) -> None:
        """Delete what turns have noted that read words of one of these people, or in one of these rooms."""
        for turn_id, step in list(self._traces.items()):
            if step.subject_ids.intersection(marks):
                del self._traces[turn_id]


class InMemoryReceiptLists(InMemoryTraces):
    """Lists and counts receipts; see `LookupStore`."""

    def __init__(self, worlds: InMemoryWorlds, entities: InMemoryEntities, memories: InMemoryMemories) -> None:
        super().__init__()
        self._worlds, self._entities, self._memories = worlds, entities, memories
        self.receipt_table = ReceiptTable()

    async def search_receipts(
        self, query: ReceiptQuery, *, before: UUID | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[ListedReceipt]:
        ordered = sorted(self.receipt_table, key=lambda receipt: receipt.received_at)
        if before is not None or after is None:
            ordered.reverse()
        if (place := before or after) is not None:
            ids = [receipt.id for receipt in ordered]
            ordered = ordered[ids.index(place) + 1 :] if place in ids else []
        receipts = [receipt for receipt in ordered if query.matches(receipt)][:limit]
        messages = await self._memories.memories({receipt.memory_id for receipt in receipts})
        authors = await self._entities.entities({receipt.author_id for receipt in receipts})
        listed = []
        for receipt in receipts:
            room = await self._worlds.room(receipt.room_id)
            world = await self._worlds.world(room.world_id) if room else None
            message, author = messages.get(receipt.memory_id), authors.get(receipt.author_id)
            listed.append(ListedReceipt(receipt, message, author, room, world))
        return listed

    async def count_receipts(self, query: ReceiptQuery) -> list[ReceiptCount]:
        receipts = sorted(filter(query.matches, self.receipt_table), key=lambda receipt: receipt.received_at)
        latest = {(receipt.outcome, receipt.rule): receipt for receipt in receipts}
        counts = Counter((receipt.outcome, receipt.rule) for receipt in receipts)
        return [ReceiptCount(*key, count, latest[key]) for key, count in counts.most_common()]


class InMemoryLedger(InMemoryReceiptLists):
    """Implements `Ledger`. Nothing in a method waits, so each call is atomic.

    Open items are always stored; of closed receipts, steps and finished deliveries only the latest.
    """

    def __init__(self, worlds: InMemoryWorlds, entities: InMemoryEntities, memories: InMemoryMemories) -> None:
        super().__init__(worlds, entities, memories)
        self.health = StoreHealth()
        self._steps = BoundedDict[UUID, dict[str, Step]](MAX_TURNS, dict)
        self._deliveries: dict[str, Delivery] = {}
        self._finished: dict[str, None] = {}
        self._last_seq: defaultdict[UUID, int] = defaultdict(int)
        self._cursors: dict[tuple[str, str, str], str] = {}

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        if cursor is not None:
            self._cursors[cursor.platform, cursor.account, cursor.name] = cursor.value
        return [self._receive_message(message, now) for message in messages]

    async def receive_command(self, receipt: Receipt, world: World, room: Room, author: Entity) -> Receipt:
        existing = self.receipt_table.find_by_key(receipt.key)
        if existing is not None:
            return existing
        if await self._worlds.room(room.id) is None:
            self._worlds.upsert(world, [room])
        if not await self._entities.entities([author.id]):
            self._entities.upsert(author, room.id)
        self.receipt_table.insert(receipt)
        return receipt

    async def close_command(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> list[Delivery]:
        is_closed = self.receipt_table.save([receipt])
        if is_closed and response is not None:
            self._steps[response.turn_id][response.key] = response
        return [self._place_delivery(delivery) for delivery in deliveries]

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        return self._cursors.get((platform, account, name))

    async def last_message_ids(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        originals = (
            receipt
            for receipt in self.receipt_table
            if not receipt.key.revision and receipt.room_id in room_ids and receipt.origin is EventOrigin.PLATFORM
        )
        return {receipt.room_id: receipt.key.message_id for receipt in originals}

    def _receive_message(self, inbound: InboundMessage, now: datetime) -> StoredEvent:
        existing = self.receipt_table.find_by_key(inbound.key)
        if existing is not None:
            return StoredEvent(existing)
        world, [room] = self._worlds.upsert(inbound.world, [inbound.room])
        author = self._entities.upsert(inbound.author, room.id)
        self._memories.upsert(inbound.message)
        receipt = new_receipt(inbound, now)
        self.receipt_table.insert(receipt)
        is_same = world is inbound.world and room is inbound.room and author is inbound.author
        stored = inbound if is_same else replace(inbound, world=world, room=room, author=author)
        return StoredEvent(receipt, stored, self._worlds.participant_state_of(room.id), is_new=True)

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        self.receipt_table.save(receipts)

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return self.receipt_table.find(receipt_id)

    async def inbound_message(self, receipt: Receipt) -> InboundMessage | None:
        message = (await self._memories.memories([receipt.memory_id])).get(receipt.memory_id)
        room = await self._worlds.room(message.room_id) if message else None
        world = await self._worlds.world(room.world_id) if room else None
        author = (await self._entities.entities([receipt.author_id])).get(receipt.author_id)
        if room is None or world is None or author is None or message is None:
            return None
        return InboundMessage(receipt.key, world, room, author, message)

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        matches = (
            receipt
            for receipt in reversed(self.receipt_table)
            if room_id in (None, receipt.room_id) and is_open in (None, not receipt.outcome.is_final)
        )
        return [receipt for receipt, _ in zip(matches, range(limit), strict=False)]

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        matches = (receipt for receipt in self.receipt_table if not receipt.is_evaluated)
        return [receipt for receipt, _ in zip(matches, range(limit), strict=False)]

    async def mark_evaluated(self, receipt_ids: Sequence[UUID]) -> None:
        self.receipt_table.mark_evaluated(receipt_ids)

    async def add_model_calls(self, receipt_id: UUID, calls: Sequence[ModelCall]) -> bool:
        receipt = self.receipt_table.find(receipt_id)
        if receipt is None or not receipt.outcome.is_final:
            return False
        self.receipt_table.overwrite([replace(receipt, model_calls=(*receipt.model_calls, *calls))])
        return True

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        if turn_commit.receipts and not self.receipt_table.save(turn_commit.receipts):
            stored = (self._deliveries.get(delivery.id) for delivery in turn_commit.deliveries)
            return [delivery for delivery in stored if delivery is not None]
        for memory in turn_commit.replies:
            self._memories.upsert(memory)
        return [self._place_delivery(delivery) for delivery in turn_commit.deliveries]

    def _place_delivery(self, delivery: Delivery) -> Delivery:
        return self._deliveries.get(delivery.id) or self.append_delivery(delivery)

    def redact_author(self, author_id: UUID, now: datetime) -> list[Receipt]:
        """Remove the text from a person's receipts, and from the steps and deliveries of their turns.

        Returns the receipts as they were before.
        """
        receipts = [receipt for receipt in self.receipt_table if receipt.author_id == author_id]
        self.receipt_table.overwrite([redact_receipt(receipt, now) for receipt in receipts])
        turn_ids = {receipt.turn_id for receipt in receipts if receipt.turn_id is not None}
        self.erase_traces({author_id, ANYBODY})
        for turn_id in turn_ids & self._traces.keys():
            del self._traces[turn_id]
        for turn_id in turn_ids & self._steps.keys():
            del self._steps[turn_id]
        for delivery in [item for item in self._deliveries.values() if item.turn_id in turn_ids]:
            if delivery.state in FINAL_STATES:
                self._store_delivery(redact_delivery(delivery))
        return receipts

    async def remove_words(self, turn_id: UUID, words: ErasedWords) -> None:
        """Remove an erased person's words from what was sent of a turn, and delete its steps."""
        for delivery in await self.deliveries(turn_id=turn_id):
            content = replace(delivery.content, text=words.remove_from(delivery.content.text))
            if content != delivery.content:
                is_final = delivery.state in FINAL_STATES
                self._store_delivery(redact_delivery(delivery) if is_final else replace(delivery, content=content))
        self._steps.pop(turn_id, None)
        self._traces.pop(turn_id, None)

    def append_delivery(self, delivery: Delivery) -> Delivery:
        """Store a delivery with the next position in its room."""
        self._last_seq[delivery.room_id] += 1
        numbered = replace(delivery, seq=self._last_seq[delivery.room_id])
        self._store_delivery(numbered)
        return numbered

    def _store_delivery(self, delivery: Delivery) -> None:
        self._deliveries[delivery.id] = delivery
        self._finished.pop(delivery.id, None)
        if delivery.state not in OPEN_STATES:
            self._finished[delivery.id] = None
        if len(self._finished) > MAX_FINISHED:
            oldest_id = next(iter(self._finished))
            del self._finished[oldest_id], self._deliveries[oldest_id]

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        await self.save_receipts(receipts)
        self._steps[step.turn_id][step.key] = step

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        trace = self._traces.get(turn_id)
        return {**self._steps.get(turn_id, {}), **({trace.key: trace} if trace else {})}

    async def save_delivery(self, delivery: Delivery) -> None:
        self._store_delivery(delivery)

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return [
            delivery
            for delivery in self._deliveries.values()
            if is_open in (None, delivery.state in OPEN_STATES)
            and room_id in (None, delivery.room_id)
            and turn_id in (None, delivery.turn_id)
        ]

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        receipts = reversed(self.receipt_table)
        return [receipt for receipt in receipts if receipt.key.message_id == message_id]

    async def delivery(self, delivery_id: str) -> Delivery | None:
        return self._deliveries.get(delivery_id)

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        matches = [delivery for delivery in self._deliveries.values() if delivery.state not in DONE_STATES]
        return matches[-limit:]


class ReceiptTable:
    """Receipts in order of creation, with their indexes; of closed ones those that were closed last."""

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
        """Return a receipt by its id, or the latest by the id of its message."""
        return self._receipts.get(self._by_memory.get(receipt_id, receipt_id))

    def find_by_key(self, key: EventKey) -> Receipt | None:
        """Return the receipt of an event by either of its keys."""
        receipt_id = self._by_event.get(_event_key(key)) or self._by_message.get(_message_key(key))
        return self._receipts[receipt_id] if receipt_id else None

    def find_by_messages(self, room_id: UUID, message_ids: Collection[str]) -> list[Receipt]:
        """Return the receipts of messages, all revisions of them."""
        receipts = self._receipts.values()
        return [
            receipt for receipt in receipts if receipt.key.room_id == room_id and receipt.key.message_id in message_ids
        ]

    def insert(self, receipt: Receipt) -> None:
        """Insert a receipt."""
        self._store(receipt)
        self._by_memory[receipt.memory_id] = receipt.id
        self._by_event[_event_key(receipt.key)] = receipt.id
        self._by_message[_message_key(receipt.key)] = receipt.id

    def save(self, receipts: Sequence[Receipt]) -> int:
        """Store the new state of those receipts that are open; return their number."""
        stored = [self._receipts.get(receipt.id) for receipt in receipts]
        pairs = zip(receipts, stored, strict=True)
        still_open = [new_state for new_state, previous in pairs if previous and not previous.outcome.is_final]
        for receipt in still_open:
            self._store(receipt)
        return len(still_open)

    def overwrite(self, receipts: Sequence[Receipt]) -> None:
        """Replace receipts, closed ones too."""
        for receipt in receipts:
            was_open = not self._receipts[receipt.id].outcome.is_final
            if was_open:
                self._store(receipt)
            else:
                self._receipts[receipt.id] = receipt

    def mark_evaluated(self, receipt_ids: Collection[UUID]) -> None:
        """Record that the evaluators have run for these receipts."""
        for receipt_id in receipt_ids:
            if (receipt := self._receipts.get(receipt_id)) is not None:
                self._receipts[receipt_id] = replace(receipt, is_evaluated=True)

    def _store(self, receipt: Receipt) -> None:
        self._receipts[receipt.id] = receipt
        if receipt.outcome.is_final:
            self._closed.append(receipt.id)
        if len(self._closed) > MAX_CLOSED_RECEIPTS:
            self._remove(self._closed.popleft())

    def _remove(self, receipt_id: UUID) -> None:
        receipt = self._receipts.pop(receipt_id)
        _drop_index(self._by_memory, receipt.memory_id, receipt_id)
        _drop_index(self._by_event, _event_key(receipt.key), receipt_id)
        _drop_index(self._by_message, _message_key(receipt.key), receipt_id)


def _drop_index(index: dict[K, UUID], key: K, receipt_id: UUID) -> None:
    if index.get(key) == receipt_id:  # a later receipt of the same message may be there
        del index[key]


def _event_key(key: EventKey) -> tuple[str, str, str]:
    return (key.platform, key.account, key.event_id)


def _message_key(key: EventKey) -> tuple[UUID, str, int]:
    return (key.room_id, key.message_id, key.revision)
