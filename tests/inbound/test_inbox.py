"""The inbox stores messages before it acknowledges them and processes each once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from bot.domain.ids import new_id
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import Outcome, Receipt
from bot.errors import InboxClosed, TemporaryError
from bot.inbound import inbox as inbox_module
from bot.inbound.inbox import Inbox
from bot.inbound.processing import OnOutcome
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger
from bot.testing import make_message


class Processing:
    """Processes messages when the test says so, and records their ids."""

    def __init__(self, store: InMemoryStore) -> None:
        self.started: list[Receipt] = []
        self.go = asyncio.Event()
        self.error: BaseException | None = None
        self._store = store

    async def __call__(self, received: StoredEvent, settle: OnOutcome) -> None:
        receipt = received.receipt
        self.started.append(receipt)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        closed = replace(receipt, outcome=Outcome.ANSWERED)
        await self._store.ledger.save_receipts([closed])
        settle(closed)

    @property
    def ids(self) -> list[UUID]:
        return [receipt.id for receipt in self.started]


class HeldLedger(SqlLedger):
    """A ledger whose answers a test can hold back after the work is done, as a slow disk would."""

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store.database, ALL_AGENTS)
        self.hold_receive = self.hold_lookup = False
        self.held = asyncio.Event()
        self.go = asyncio.Event()

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        found = await super().receive(messages, now, cursor)
        await self._wait(self.hold_receive)
        return found

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        found = await super().receipt(receipt_id)
        await self._wait(self.hold_lookup)
        return found

    async def _wait(self, is_held: bool) -> None:
        if is_held:
            self.held.set()
            await self.go.wait()


@pytest.fixture
def processing(store: InMemoryStore) -> Processing:
    return Processing(store)


@pytest.fixture
def inbox(store: InMemoryStore, processing: Processing, clock: Any) -> Inbox:
    return Inbox(store.ledger, processing, clock=clock)


async def turns(count: int = 5) -> None:
    """Run all tasks that are ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def waiting(inbox: Inbox) -> int:
    return len(inbox._waiting)


async def test_a_message_is_stored_before_it_is_acknowledged_and_then_processed(
    inbox: Inbox, store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))

    assert await store.ledger.receipt(receipt.id) == receipt
    assert (receipt.outcome, receipt.attempts) == (Outcome.CLAIMED, 1)
    assert processing.started == []
    processing.go.set()
    assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
    assert processing.started == [receipt]


@pytest.mark.parametrize("same", ["event_id", "message_id"])
async def test_a_message_delivered_twice_is_processed_once(
    inbox: Inbox, processing: Processing, clock: Any, same: str
) -> None:
    first, second = make_message("Hello", sent_at=clock()), make_message("Hello", sent_at=clock())
    second = replace(second, key=replace(second.key, **{same: getattr(first.key, same)}))
    receipts = await asyncio.gather(inbox.submit(first), inbox.submit(second), inbox.submit(first))
    processing.go.set()
    await inbox.wait_outcome(receipts[0].id)
    clock.advance(days=29)
    again = await inbox.submit(second)

    assert len({receipt.id for receipt in (*receipts, again)}) == 1
    assert again.outcome is Outcome.ANSWERED
    assert len(processing.started) == 1


async def test_an_inbound_message_is_sanitized(inbox: Inbox, store: InMemoryStore, clock: Any) -> None:
    arrival = make_message("a\0b", sent_at=clock().replace(year=2099))
    receipt = await inbox.submit(arrival)
    kept = await store.ledger.inbound_message(receipt)

    assert kept is not None
    assert kept.message.content.text == "ab"
    assert kept.message.created_at.year == clock().year


async def test_all_waiters_receive_the_outcome(inbox: Inbox, processing: Processing, clock: Any) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiters = [asyncio.ensure_future(inbox.wait_outcome(receipt.id)) for _ in range(3)]
    given_up = asyncio.ensure_future(inbox.wait_outcome(receipt.id))
    await turns()
    given_up.cancel()
    await turns()
    processing.go.set()

    assert {found.outcome for found in await asyncio.gather(*waiters)} == {Outcome.ANSWERED}
    assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
    assert waiting(inbox) == 0


async def test_an_outcome_can_be_awaited_by_message_id(inbox: Inbox, processing: Processing, clock: Any) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(receipt.memory_id))
    await turns()
    processing.go.set()

    assert (await waiter).id == receipt.id


async def test_waiting_for_an_unknown_receipt_does_not_block(inbox: Inbox) -> None:
    with pytest.raises(LookupError):
        await inbox.wait_outcome(new_id())
    assert waiting(inbox) == 0


async def test_an_outcome_stored_while_it_is_requested_is_not_missed(store: InMemoryStore, clock: Any) -> None:
    ledger = HeldLedger(store)
    settles: list[Callable[[], None]] = []

    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        receipt = received.receipt
        closed = replace(receipt, outcome=Outcome.ANSWERED)
        await ledger.save_receipts([closed])
        settles.append(lambda: settle(closed))

    inbox = Inbox(ledger, process, clock=clock)
    ledger.hold_lookup = True
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(receipt.id))  # reads before, is answered after
    await turns()
    settles[0]()
    ledger.go.set()

    assert (await waiter).outcome is Outcome.ANSWERED
    assert waiting(inbox) == 0


async def test_failed_processing_leaves_the_message_open_and_notifies_waiters(
    inbox: Inbox, store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    processing.error = RuntimeError("the disk is full")
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(receipt.id))
    await turns()
    processing.go.set()
    with pytest.raises(TemporaryError, match=str(receipt.id)):
        await waiter

    assert await store.ledger.receipts(is_open=True) == [receipt]
    processing.error = None
    assert await inbox.processor.resume_all() == 1
    assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("how", ["delivered again", "asked for"])
async def test_a_message_whose_processing_failed_is_processed_when_it_is_delivered_again(
    inbox: Inbox, processing: Processing, clock: Any, how: str
) -> None:
    processing.error = OSError("locked")
    processing.go.set()
    arrival = make_message("Hello", sent_at=clock())
    receipt = await inbox.submit(arrival)
    await turns()
    processing.error = None
    if how == "delivered again":
        assert await inbox.submit(arrival) == receipt

    assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
    assert processing.ids == [receipt.id] * 2


async def test_a_message_closed_during_its_redelivery_is_not_processed_twice(
    store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    ledger = HeldLedger(store)
    inbox = Inbox(ledger, processing, clock=clock)
    arrival = make_message("Hello", sent_at=clock())
    receipt = await inbox.submit(arrival)
    ledger.hold_receive = True
    again = asyncio.ensure_future(inbox.submit(arrival))
    await ledger.held.wait()  # it has read that the message is open, and gets the answer only after its end
    processing.go.set()
    await ledger.save_receipts([replace(receipt, outcome=Outcome.ANSWERED)])
    await inbox.wait_outcome(receipt.id)
    await turns()
    ledger.go.set()
    await again
    await turns()

    assert processing.ids == [receipt.id]


async def test_processing_that_cancels_itself_notifies_waiters(
    inbox: Inbox, processing: Processing, clock: Any
) -> None:
    processing.error = asyncio.CancelledError()
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(receipt.id))
    await turns()
    processing.go.set()

    with pytest.raises(TemporaryError):
        await waiter


async def test_a_newer_message_may_close_an_older_message(store: InMemoryStore, clock: Any) -> None:
    older: list[tuple[Receipt, OnOutcome]] = []

    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        receipt = received.receipt
        if not older:
            older.append((receipt, settle))
            return
        receipts = [replace(older[0][0], outcome=Outcome.SUPERSEDED), replace(receipt, outcome=Outcome.ANSWERED)]
        await store.ledger.save_receipts(receipts)
        older[0][1](receipts[0])
        settle(receipts[1])

    inbox = Inbox(store.ledger, process, clock=clock)
    first = await inbox.submit(make_message("first", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(first.id))
    await turns()
    assert await inbox.processor.resume_all() == 0
    await inbox.submit(make_message("second", sent_at=clock()))

    assert (await waiter).outcome is Outcome.SUPERSEDED
    assert await inbox.processor.resume_all() == 0


async def test_messages_left_open_by_an_earlier_process_are_resumed_in_order(
    inbox: Inbox, store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    arrivals = [make_message(str(number), sent_at=clock()) for number in range(4)]
    left = [stored_event.receipt for stored_event in await store.ledger.receive(arrivals, clock())]
    await store.ledger.save_receipts([replace(left[2], outcome=Outcome.ANSWERED)])
    await store.ledger.save_receipts([replace(left[3], outcome=Outcome.CLAIMED, attempts=2)])

    assert await inbox.processor.resume_all() == 3
    await turns()
    assert processing.ids == [left[0].id, left[1].id, left[3].id]
    assert processing.started[2].attempts == 2


async def test_an_expired_message_is_closed(
    inbox: Inbox, store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    arrivals = [make_message(str(number), sent_at=clock()) for number in range(2)]
    old = (await store.ledger.receive(arrivals[:1], clock()))[0].receipt
    clock.advance(seconds=0.001)
    edge = (await store.ledger.receive(arrivals[1:], clock()))[0].receipt
    clock.advance(minutes=15)
    expired = asyncio.ensure_future(inbox.wait_outcome(old.id))
    await turns()

    assert await inbox.processor.resume_all() == 1
    await turns()
    assert processing.ids == [edge.id]
    assert (await expired).outcome is Outcome.EXPIRED


async def test_a_message_received_before_resuming_is_not_processed_twice(
    inbox: Inbox, processing: Processing, clock: Any
) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))

    assert await inbox.processor.resume_all() == 0
    await turns()
    assert processing.ids == [receipt.id]


async def test_a_message_received_while_resuming_is_not_processed_twice(
    store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    ledger = HeldLedger(store)
    ledger.hold_receive = True
    inbox = Inbox(ledger, processing, clock=clock)
    put = asyncio.ensure_future(inbox.submit(make_message("Hello", sent_at=clock())))
    await ledger.held.wait()  # kept, but not yet started

    assert await inbox.processor.resume_all() == 1
    ledger.go.set()
    receipt = await put
    await turns()
    assert processing.ids == [receipt.id]


async def test_a_closed_inbox_accepts_nothing(inbox: Inbox, store: InMemoryStore, clock: Any) -> None:
    inbox.close()
    with pytest.raises(InboxClosed):
        await inbox.submit(make_message("Hello", sent_at=clock()))

    assert await store.ledger.receipts() == []


async def test_a_message_stored_while_the_inbox_closes_waits_for_the_next_start(
    store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    ledger = HeldLedger(store)
    ledger.hold_receive = True
    inbox = Inbox(ledger, processing, clock=clock)
    put = asyncio.ensure_future(inbox.submit(make_message("Hello", sent_at=clock())))
    await ledger.held.wait()
    assert await inbox.drain(0) == 0
    ledger.go.set()
    receipt = await put
    await turns()

    assert processing.started == []
    assert await ledger.receipts(is_open=True) == [receipt]
    with pytest.raises(InboxClosed):
        await inbox.wait_outcome(receipt.id)


async def test_a_stored_message_is_processed_even_if_its_submitter_was_cancelled(
    store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    ledger = HeldLedger(store)
    ledger.hold_receive = True
    inbox = Inbox(ledger, processing, clock=clock)
    put = asyncio.ensure_future(inbox.submit(make_message("Hello", sent_at=clock())))
    await ledger.held.wait()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    ledger.go.set()
    await turns()

    assert len(processing.started) == 1


async def test_draining_waits_for_running_processing(inbox: Inbox, processing: Processing, clock: Any) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    drain = asyncio.ensure_future(inbox.drain(60))
    await turns()
    assert not drain.done()
    processing.go.set()

    assert await drain == 0
    assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED


async def test_draining_cancels_late_processing_and_leaves_it_for_the_next_start(
    inbox: Inbox, store: InMemoryStore, processing: Processing, clock: Any
) -> None:
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiter = asyncio.ensure_future(inbox.wait_outcome(receipt.id))
    await turns()

    assert await inbox.drain(0) == 1
    with pytest.raises(InboxClosed):
        await waiter
    with pytest.raises(InboxClosed):
        await inbox.wait_outcome(receipt.id)
    assert await store.ledger.receipts(is_open=True) == [receipt]
    assert waiting(inbox) == 0

    again = Inbox(store.ledger, processing, clock=clock)
    processing.go.set()
    assert await again.processor.resume_all() == 1
    assert (await again.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED


@pytest.mark.long
async def test_draining_does_not_wait_forever_for_processing_that_does_not_stop(
    store: InMemoryStore, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "CANCEL_GRACE_SECONDS", 0)
    go = asyncio.Event()
    ended = asyncio.Event()

    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    inbox = Inbox(store.ledger, process, clock=clock)
    await inbox.submit(make_message("Hello", sent_at=clock()))
    await turns()

    assert await inbox.drain(0) == 1
    go.set()
    await ended.wait()


async def test_an_outcome_without_waiters_is_no_error(
    store: InMemoryStore, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        raise RuntimeError("broken")

    started: Coroutine[Any, Any, Receipt] = Inbox(store.ledger, process, clock=clock).submit(
        make_message("Hello", sent_at=clock())
    )
    await started
    await turns()

    assert [record.message for record in caplog.records if "could not be processed" in record.message]
