"""Rules of counting who wrote: in memory, stored in batches, without edits and without the erased."""

from datetime import datetime

import pytest

from bot.domain.environment import PersonActivity
from bot.domain.events import EntityErased
from bot.domain.ids import derived_id
from bot.domain.ledger import EventKey, Outcome, Receipt, Rule
from bot.errors import StoreUnavailable
from bot.event_bus import EventBus
from bot.operate.people import PersonActivityRecorder
from bot.store import InMemoryStore
from tests.clocks import ManualClock

ANN, ROOM = derived_id("ann"), derived_id("room")


def receipt(at: datetime, *, outcome: Outcome = Outcome.IGNORED, revision: int = 0, rule: str = "") -> Receipt:
    key = EventKey("test", "a", "e", ROOM, "m", revision)
    return Receipt(derived_id("receipt"), key, ROOM, ANN, derived_id("m"), at, outcome, rule=rule)


async def test_many_messages_are_a_single_write(store: InMemoryStore, events: EventBus, clock: ManualClock) -> None:
    recorder = PersonActivityRecorder(store.entities, events)
    start = clock()
    passed_on: list[Receipt] = []
    record = recorder.then(passed_on.append)
    record(receipt(start, outcome=Outcome.ANSWERED))
    record(receipt(clock.advance(minutes=1)))
    record(receipt(clock(), outcome=Outcome.ANSWERED, revision=1))
    record(receipt(clock.advance(hours=1), rule=Rule.ERASED))
    assert len(passed_on) == 4
    assert await store.entities.activity(ANN) is None
    await recorder.flush()
    activity = await store.entities.activity(ANN)
    assert activity is not None
    assert (activity.messages, activity.answered, activity.first_at) == (2, 1, start)
    assert activity.last_at < clock()
    await recorder.flush()
    assert await store.entities.activity(ANN) == activity


async def test_the_end_of_the_context_stores_the_rest(
    store: InMemoryStore, events: EventBus, clock: ManualClock
) -> None:
    async with PersonActivityRecorder(store.entities, events) as recorder:
        recorder.record(receipt(clock()))
    assert await store.entities.activity(ANN) == PersonActivity(ANN, clock(), clock(), 1)


async def test_counts_are_kept_while_nothing_can_be_stored(
    store: InMemoryStore, events: EventBus, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = PersonActivityRecorder(store.entities, events)
    recorder.record(receipt(clock()))

    async def fail(activities: object) -> None:
        recorder.record(receipt(clock()))
        raise StoreUnavailable("the disk is full", cause="disk_full")

    with monkeypatch.context() as patched:
        patched.setattr(store.entities, "add_activity", fail)
        with pytest.raises(StoreUnavailable):
            await recorder.flush()
    await recorder.flush()
    assert await store.entities.activity(ANN) == PersonActivity(ANN, clock(), clock(), 2)


async def test_nothing_is_stored_of_a_person_who_was_erased(
    store: InMemoryStore, events: EventBus, clock: ManualClock
) -> None:
    async with events:
        recorder = PersonActivityRecorder(store.entities, events)
        recorder.record(receipt(clock()))
        events.emit(EntityErased(derived_id("agent"), ANN))
        await recorder.flush()
    assert await store.entities.activity(ANN) is None
