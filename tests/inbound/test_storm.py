"""Inbox and outbox under faults: a slow failing ledger, disconnects and restarts."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from bot.adapter.adapter import Adapter
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.errors import DeliveryUnknown, InboxClosed, NotSent, TemporaryError
from bot.event_bus import EventBus
from bot.inbound.inbox import Inbox
from bot.inbound.processing import OnOutcome
from bot.outbound import sender as attempt_module
from bot.outbound.outbox import Outbox, OutgoingReply
from bot.store import InMemoryStore
from bot.store.ledger import TurnCommit
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger
from bot.testing import make_message

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
AGENT, WORLD = derived_id("agent"), derived_id("world")
ROOMS, REPLIES = 3, 8
SEEDS = [*range(15), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(15, 60))]


class RoughLedger(SqlLedger):
    """A ledger that takes its time, before and after, and sometimes fails."""

    def __init__(self, store: InMemoryStore, chance: random.Random) -> None:
        super().__init__(store.database, ALL_AGENTS)
        self.chance = chance

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        await self._delay()
        found = await super().receive(messages, now, cursor)
        await self._delay()
        return found

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        found = await super().receipt(receipt_id)
        await self._delay()
        return found

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        placed = await super().commit(turn_commit)
        await self._delay()
        return placed

    async def save_delivery(self, delivery: Delivery) -> None:
        await self._delay()
        if self.chance.random() < 0.1:
            raise OSError("locked")
        await super().save_delivery(delivery)
        await self._delay()

    async def _delay(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)


class RoughPlatform(Adapter):
    """A platform that breaks off before or after a message has arrived, and can be asked about it."""

    platform = "test"

    def __init__(self, chance: random.Random) -> None:
        self.arrived: list[Delivery] = []
        self.chance = chance

    async def deliver(self, delivery: Delivery) -> str:
        await asyncio.sleep(0)
        weather = self.chance.random()
        if weather < 0.15:
            raise NotSent("busy", retry_after=0)
        if weather < 0.25:
            raise DeliveryUnknown("broke off before")
        self.arrived.append(delivery)
        await asyncio.sleep(0)
        if weather < 0.35:
            raise DeliveryUnknown("broke off after")
        if weather < 0.4:
            raise ValueError("no JSON")
        if weather < 0.45:
            raise asyncio.CancelledError
        return delivery.id

    async def reconcile(self, delivery: Delivery) -> str:
        await asyncio.sleep(0)
        if self.chance.random() < 0.1:
            raise DeliveryUnknown("no history")
        if any(part.id == delivery.id for part in self.arrived):
            return delivery.id
        raise NotSent("not there", retry_after=0)


class RoughProcessing:
    """Works on messages for a while, and sometimes fails before or dies after it has closed them."""

    def __init__(self, ledger: RoughLedger, chance: random.Random) -> None:
        self.settled: Counter[UUID] = Counter()
        self._under_way: set[UUID] = set()
        self._ledger, self._chance = ledger, chance

    async def __call__(self, received: StoredEvent, settle: OnOutcome) -> None:
        receipt = received.receipt
        assert receipt.id not in self._under_way, "a message was processed twice at a time"
        self._under_way.add(receipt.id)
        try:
            for _ in range(self._chance.randrange(8)):
                await asyncio.sleep(0)
            if self._chance.random() < 0.1:
                raise OSError("locked")
            closed = replace(receipt, outcome=Outcome.ANSWERED)
            await self._ledger.save_receipts([closed])
            self.settled[receipt.id] += 1
            settle(closed)
            await asyncio.sleep(0)
        finally:
            self._under_way.discard(receipt.id)


def outgoing(room: int, number: int) -> OutgoingReply:
    turn = derived_id("turn", str(room), str(number))
    place = Room(derived_id("room", str(room)), WORLD, ChannelType.GROUP, "test", str(room))
    content = Content(text=f"{room}:{number}")
    memory = Memory(derived_id(turn), MemoryKind.MESSAGE, AGENT, place.id, WORLD, content, NOW, turn_id=turn)
    return OutgoingReply(memory, place)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_reply_is_lost_doubled_or_out_of_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "FIRST_DELAY_SECONDS", 0)
    monkeypatch.setattr(attempt_module, "MAX_FAST_RETRIES", 1_000_000)
    chance = random.Random(seed)
    ledger, platform = RoughLedger(InMemoryStore(), chance), RoughPlatform(chance)
    replies = [outgoing(room, number) for number in range(REPLIES) for room in range(ROOMS)]

    async def start() -> Outbox:
        outbox = Outbox(ledger, EventBus(), AGENT, clock=lambda: NOW)
        outbox.connect(platform)
        await outbox.resume()
        return outbox

    outbox = await start()
    commits: list[asyncio.Task[list[Memory]]] = []
    for reply in replies:
        commits.append(asyncio.ensure_future(outbox.commit([reply])))
        if chance.random() < 0.2:
            commits.append(asyncio.ensure_future(outbox.commit([chance.choice(replies[: replies.index(reply) + 1])])))
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            await asyncio.gather(*commits)
            await outbox.close(0)
            outbox = await start()
    await asyncio.gather(*commits)
    while await outbox.drain(60):
        await outbox.resume()

    arrived = [delivery.id for delivery in platform.arrived]
    assert len(arrived) == len(set(arrived)), "a reply was doubled"
    book = {delivery.id: delivery for delivery in await ledger.deliveries()}
    assert len(book) == len(replies)
    for delivery in book.values():
        assert delivery.state in (DeliveryState.SENT, DeliveryState.UNKNOWN)
        assert delivery.state is DeliveryState.UNKNOWN or delivery.id in arrived, "a reply was lost"
    seqs = defaultdict(list)
    for delivery in platform.arrived:
        seqs[delivery.room_id].append(delivery.seq)
    assert all(found == sorted(found) for found in seqs.values()), "replies changed places"
    assert outbox._queue._queues == {}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_message_is_lost_or_closed_twice_and_all_waiters_return(seed: int) -> None:
    chance = random.Random(seed)
    ledger = RoughLedger(InMemoryStore(), chance)
    process = RoughProcessing(ledger, chance)

    async def put(inbox: Inbox, arrival: InboundMessage) -> None:
        try:
            receipt = await inbox.submit(arrival)
            assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        except (InboxClosed, TemporaryError):
            return

    arrivals = [make_message(str(number), sent_at=NOW) for number in range(20)]
    inbox = Inbox(ledger, process, clock=lambda: NOW)
    waiters: list[asyncio.Task[None]] = []
    for arrival in arrivals:
        for delivered in [arrival, *chance.choices(arrivals[: arrivals.index(arrival) + 1], k=chance.randrange(3))]:
            waiters.append(asyncio.ensure_future(put(inbox, delivered)))
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            await inbox.drain(0)
            inbox = Inbox(ledger, process, clock=lambda: NOW)
            waiters.append(asyncio.ensure_future(put(inbox, arrival)))
            await inbox.processor.resume_all()
    for arrival in arrivals:  # the platform delivers again what was not acknowledged
        await put(inbox, arrival)
    while await ledger.receipts(is_open=True):
        await inbox.processor.resume_all()
        await asyncio.sleep(0)
    await asyncio.gather(*waiters)
    await inbox.drain(60)

    assert len(await ledger.receipts(limit=1000)) == len(arrivals)
    assert set(process.settled.values()) == {1}
    assert len(process.settled) == len(arrivals)
    assert inbox._waiting == {}
    assert inbox.processor._states == {}
