"""The ledger in memory is bounded."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.domain.content import Content
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt, Step, StepState
from bot.store.inmemory import InMemoryStore, ledger
from bot.store.inmemory import ledger as receipts
from bot.testing import make_message

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
MAX_CLOSED = 3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> InMemoryStore:
    """Return a store with small limits."""
    monkeypatch.setattr(receipts, "MAX_CLOSED_RECEIPTS", MAX_CLOSED)
    monkeypatch.setattr(ledger, "MAX_TURNS", MAX_CLOSED)
    monkeypatch.setattr(ledger, "MAX_FINISHED", MAX_CLOSED)
    return InMemoryStore()


async def receive_receipts(store: InMemoryStore, number: int) -> Receipt:
    message = make_message("Hello", sent_at=NOW, message_id=f"message {number}")
    [receipts] = await store.ledger.receive([message], NOW)
    return receipts.receipt


def build_delivery(number: int) -> Delivery:
    ids = {"turn_id": new_id(), "room_id": new_id(), "memory_id": new_id()}
    details = {"platform": "test", "account": "account", "target": "lobby"}
    return Delivery(f"part {number}", **ids, **details, part=0, content=Content(text="Hi."), created_at=NOW)


async def test_the_latest_closed_receipts_are_kept_by_all_their_keys(store: InMemoryStore) -> None:
    made = [await receive_receipts(store, number) for number in range(10)]
    await store.ledger.save_receipts([replace(receipt, outcome=Outcome.ANSWERED) for receipt in made])

    assert [receipt.id for receipt in await store.ledger.receipts()] == [
        receipt.id for receipt in reversed(made[-MAX_CLOSED:])
    ]
    assert await store.ledger.receipt(made[0].memory_id) is None
    assert await receive_receipts(store, 9) == replace(made[9], outcome=Outcome.ANSWERED)
    assert (await receive_receipts(store, 0)).id != made[0].id
    assert await store.ledger.receipt(made[8].memory_id) == replace(made[8], outcome=Outcome.ANSWERED)


async def test_open_items_are_never_dropped(store: InMemoryStore) -> None:
    made = [await receive_receipts(store, number) for number in range(10)]
    parts = [build_delivery(number) for number in range(10)]
    for delivery in parts:
        await store.ledger.save_delivery(delivery)

    assert len(await store.ledger.receipts(is_open=True)) == len(made)
    assert await store.ledger.deliveries(is_open=True) == parts


async def test_the_latest_finished_parts_are_kept(store: InMemoryStore) -> None:
    parts = [replace(build_delivery(number), state=DeliveryState.SENT) for number in range(10)]
    held = replace(build_delivery(10), state=DeliveryState.UNKNOWN)
    for delivery in (held, *parts[:2], replace(held, state=DeliveryState.PENDING), *parts[2:]):
        await store.ledger.save_delivery(delivery)

    assert await store.ledger.deliveries(is_open=False) == parts[-MAX_CLOSED:]
    assert await store.ledger.deliveries(is_open=True) == [replace(held, state=DeliveryState.PENDING)]


async def test_the_latest_turns_steps_are_kept(store: InMemoryStore) -> None:
    turns = [new_id() for _ in range(10)]
    for turn_id in turns:
        await store.ledger.save_step(Step(turn_id, "answer:1", "answer", StepState.DONE))

    assert [len(await store.ledger.steps(turn_id)) for turn_id in turns] == [0] * 7 + [1] * MAX_CLOSED
