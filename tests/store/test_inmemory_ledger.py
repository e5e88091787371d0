"""The books in memory do not grow without end."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.domain.content import Content
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt, Step, StepState
from bot.store.inmemory import InMemoryStore, ledger
from bot.store.inmemory import ledger as receipts
from bot.testing import make_arrival

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
MOST = 3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> InMemoryStore:
    """Give a store with little room."""
    monkeypatch.setattr(receipts, "MOST_CLOSED", MOST)
    monkeypatch.setattr(ledger, "MOST_TURNS", MOST)
    monkeypatch.setattr(ledger, "MOST_FINISHED", MOST)
    return InMemoryStore()


async def received(store: InMemoryStore, number: int) -> Receipt:
    arrival = make_arrival("Hello", at=NOW, message_id=f"message {number}")
    [kept] = await store.ledger.receive([arrival], NOW)
    return kept.receipt


def part(number: int) -> Delivery:
    ids = {"turn_id": new_id(), "room_id": new_id(), "memory_id": new_id()}
    where = {"platform": "test", "account": "account", "target": "lobby"}
    return Delivery(f"part {number}", **ids, **where, part=0, content=Content(text="Hi."), created_at=NOW)


async def test_the_latest_closed_receipts_are_kept_by_all_their_keys(store: InMemoryStore) -> None:
    made = [await received(store, number) for number in range(10)]
    await store.ledger.save_receipts([replace(one, outcome=Outcome.ANSWERED) for one in made])

    assert [one.id for one in await store.ledger.receipts()] == [one.id for one in reversed(made[-MOST:])]
    assert await store.ledger.receipt(made[0].memory_id) is None
    assert await received(store, 9) == replace(made[9], outcome=Outcome.ANSWERED)
    assert (await received(store, 0)).id != made[0].id
    assert await store.ledger.receipt(made[8].memory_id) == replace(made[8], outcome=Outcome.ANSWERED)


async def test_what_is_open_is_kept_however_much_there_is(store: InMemoryStore) -> None:
    made = [await received(store, number) for number in range(10)]
    parts = [part(number) for number in range(10)]
    for one in parts:
        await store.ledger.save_delivery(one)

    assert len(await store.ledger.receipts(is_open=True)) == len(made)
    assert await store.ledger.deliveries(is_open=True) == parts


async def test_the_latest_finished_parts_are_kept(store: InMemoryStore) -> None:
    parts = [replace(part(number), state=DeliveryState.SENT) for number in range(10)]
    held = replace(part(10), state=DeliveryState.UNKNOWN)
    for one in (held, *parts[:2], replace(held, state=DeliveryState.PENDING), *parts[2:]):
        await store.ledger.save_delivery(one)

    assert await store.ledger.deliveries(is_open=False) == parts[-MOST:]
    assert await store.ledger.deliveries(is_open=True) == [replace(held, state=DeliveryState.PENDING)]


async def test_the_latest_turns_steps_are_kept(store: InMemoryStore) -> None:
    turns = [new_id() for _ in range(10)]
    for turn_id in turns:
        await store.ledger.save_step(Step(turn_id, "answer:1", "answer", StepState.DONE))

    assert [len(await store.ledger.steps(turn_id)) for turn_id in turns] == [0] * 7 + [1] * MOST
