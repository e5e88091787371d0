"""Processing during store outages: nothing new is accepted, and interrupted events are retried."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Outcome, Receipt
from bot.errors import StoreUnavailable
from bot.inbound import processing
from bot.inbound.inbox import Inbox
from bot.inbound.processing import EventState, OnOutcome
from bot.store import InMemoryStore
from bot.testing import make_message

GONE = StoreUnavailable("the database x is locked", cause="db_locked")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "POLL_SECONDS", 0.001)


async def test_while_the_store_is_unavailable_nothing_is_accepted(store: InMemoryStore, clock: Any) -> None:
    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        raise AssertionError("nothing came in")

    inbox = Inbox(store.ledger, process, clock=clock)
    store.ledger.health.fail(GONE)
    with pytest.raises(StoreUnavailable, match="x is locked"):
        await inbox.submit(make_message("Hello", sent_at=clock()))

    assert inbox.problem is not None
    assert inbox.problem.cause == "db_locked"
    assert await store.ledger.receipts() == []


@pytest.mark.parametrize("way", ["it raises", "it hands everything back"])
async def test_processing_interrupted_by_an_outage_is_retried_and_not_counted_as_an_attempt(
    store: InMemoryStore, clock: Any, way: str
) -> None:
    tries: list[Receipt] = []
    held: list[tuple[Receipt, OnOutcome]] = []
    is_cut = asyncio.Event()

    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        receipt = received.receipt
        tries.append(receipt)
        if store.ledger.health.problem is None and len(tries) > 2:
            closed = replace(receipt, outcome=Outcome.ANSWERED)
            await store.ledger.save_receipts([closed])
            settle(closed)
            return
        held.append((receipt, settle))
        if len(tries) < 2:
            return  # as a turn that a newer one has taken over
        store.ledger.health.fail(GONE)
        is_cut.set()
        if way == "it raises":
            held[0][1](held[0][0])
            raise GONE
        for held_receipt, settle_receipt in held:
            settle_receipt(held_receipt)

    inbox = Inbox(store.ledger, process, clock=clock)
    receipts = [await inbox.submit(make_message(text, sent_at=clock())) for text in ("Hello", "Still there?")]
    waiting = [asyncio.ensure_future(inbox.wait_outcome(held_receipt.id)) for held_receipt in receipts]
    await is_cut.wait()
    assert not any(held_receipt.done() for held_receipt in waiting)
    store.ledger.health.recover()
    settled = await asyncio.wait_for(asyncio.gather(*waiting), 10)

    assert [held_receipt.outcome for held_receipt in settled] == [Outcome.ANSWERED, Outcome.ANSWERED]
    assert sorted(held_receipt.id for held_receipt in tries) == sorted(
        [held_receipt.id for held_receipt in receipts] * 2
    )
    assert all(
        held_receipt.attempts == first.attempts - 1 for held_receipt, first in zip(tries[2:], tries, strict=False)
    )


async def test_deferred_events_remain_for_the_next_start(store: InMemoryStore, clock: Any) -> None:
    async def process(received: StoredEvent, settle: OnOutcome) -> None:
        store.ledger.health.fail(GONE)
        raise GONE

    inbox = Inbox(store.ledger, process, clock=clock)
    await inbox.submit(make_message("Hello", sent_at=clock()))
    for _ in range(3):
        await asyncio.sleep(0)
    await inbox.drain(1)

    assert len(await store.ledger.receipts(is_open=True)) == 1


async def test_an_event_is_queued_running_deferred_and_closed_in_turn(store: InMemoryStore, clock: Any) -> None:
    states: list[EventState | None] = []
    is_free = asyncio.Event()

    async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
        states.append(inbox.processor.state_of(event.receipt.id))
        if len(states) == 1:
            raise GONE
        await is_free.wait()
        on_outcome(replace(event.receipt, outcome=Outcome.ANSWERED))

    inbox = Inbox(store.ledger, process, clock=clock)
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    waiting = asyncio.ensure_future(inbox.wait_outcome(receipt.id))
    await until(lambda: bool(states))
    await asyncio.sleep(0)
    states.append(inbox.processor.state_of(receipt.id))
    await until(lambda: len(states) > 2)
    is_free.set()
    await waiting
    states.append(inbox.processor.state_of(receipt.id))

    assert states == [EventState.RUNNING, EventState.DEFERRED, EventState.RUNNING, EventState.CLOSED]


async def test_a_retry_during_another_outage_starts_nothing_twice(store: InMemoryStore, clock: Any) -> None:
    started: list[UUID] = []

    async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
        started.append(event.receipt.id)
        if len(started) == 1:
            raise GONE
        await asyncio.Event().wait()

    ledger = FailingLedger(store.ledger)
    inbox = Inbox(ledger, process, clock=clock)  # type: ignore[arg-type]  # a ledger in all but its class
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    await until(lambda: bool(started))
    ledger.failures = 1  # the second read of the first retry fails
    await until(lambda: not ledger.failures)
    assert inbox.processor.state_of(receipt.id) is EventState.DEFERRED
    await inbox.processor.resume_all()
    await until(lambda: len(started) > 1)
    await inbox.processor.resume_all()
    await asyncio.sleep(0.01)

    assert started == [receipt.id] * 2
    await inbox.drain(0)


async def until(is_reached: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if is_reached():
            return
        await asyncio.sleep(0)
    raise AssertionError("it was never reached")


async def test_an_outage_while_an_old_message_is_closed_leaves_no_other_behind(
    store: InMemoryStore, clock: Any
) -> None:
    old = make_message("Hello", sent_at=clock(), room="one")
    await store.ledger.receive([old], clock())
    clock.advance(minutes=20)
    new = make_message("Hi", sent_at=clock(), room="two")
    [event] = await store.ledger.receive([new], clock())

    async def process(received: StoredEvent, on_outcome: OnOutcome) -> None:
        closed = replace(received.receipt, outcome=Outcome.ANSWERED)
        await store.ledger.save_receipts([closed])
        on_outcome(closed)

    ledger = FailingLedger(store.ledger)
    inbox = Inbox(ledger, process, clock=clock)  # type: ignore[arg-type]
    ledger.save_failures = 1
    await inbox.processor.resume_all()
    assert (await inbox.wait_outcome(event.receipt.id)).outcome is Outcome.ANSWERED
    while open_receipts := await store.ledger.receipts(is_open=True):
        await inbox.wait_outcome(open_receipts[0].id)
    assert {receipt.outcome for receipt in await store.ledger.receipts()} == {Outcome.ANSWERED, Outcome.EXPIRED}


async def test_a_message_that_is_restarted_during_an_outage_is_processed_after_it(
    store: InMemoryStore, clock: Any
) -> None:
    started: list[UUID] = []

    async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
        started.append(event.receipt.id)
        await asyncio.Event().wait()

    ledger = FailingLedger(store.ledger)
    inbox = Inbox(ledger, process, clock=clock)  # type: ignore[arg-type]
    receipt = await inbox.submit(make_message("Hello", sent_at=clock()))
    await until(lambda: bool(started))
    ledger.save_failures = 1
    await inbox.processor.restart(receipt.id)
    assert inbox.processor.state_of(receipt.id) is EventState.DEFERRED
    await until(lambda: len(started) > 1)

    assert started == [receipt.id] * 2
    await inbox.drain(0)


class FailingLedger:
    """A ledger whose every second read of a receipt fails, `failures` times, and saving `save_failures` times."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.failures = self.save_failures = 0
        self._is_second = False

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        if self.save_failures:
            self.save_failures -= 1
            raise GONE
        await self._ledger.save_receipts(receipts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        if self.failures and self._is_second:
            self.failures -= 1
            raise GONE
        self._is_second = not self._is_second
        return await self._ledger.receipt(receipt_id)


async def test_an_event_that_a_resumed_turn_closes_again_is_still_evaluated(store: InMemoryStore, clock: Any) -> None:
    """A turn that superseded it closes it once more; only its own evaluation marks it."""
    older, newer = [make_message(text, sent_at=clock()) for text in ("Hello", "Still there?")]
    [first, second] = [event.receipt for event in await store.ledger.receive([older, newer], clock())]
    superseded = replace(first, outcome=Outcome.SUPERSEDED, closed_at=clock(), is_evaluated=False)
    await store.ledger.save_receipts([superseded])
    evaluated: list[UUID] = []

    async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
        on_outcome(superseded)
        if event.receipt.outcome.is_final:
            evaluated.append(event.receipt.id)

    processor = Inbox(store.ledger, process, clock=clock).processor
    unevaluated = await processor.find_unevaluated()
    assert unevaluated == [superseded]
    assert await processor.resume_all() == 1
    await until(lambda: processor.state_of(first.id) is EventState.CLOSED)
    processor.reevaluate(unevaluated)
    await until(lambda: bool(evaluated))

    assert evaluated == [first.id]
    assert second.id != first.id
