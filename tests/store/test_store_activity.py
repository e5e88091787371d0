"""Contract of every store: sums for operators."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot import Task, TaskTag
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import DROPPED_CAUSE, DeliveryState, Outcome
from bot.store.activity import Backlog, PlatformHour
from bot.store.ledger import TurnCommit
from bot.store.protocols import Store
from bot.testing import make_message
from tests.store.test_store_ledger import build_deliveries, build_reply

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


async def close_message(
    store: Store,
    number: int,
    at: datetime,
    outcome: Outcome,
    seconds: float = 0.0,
    rule: str = "",
    platform: str = "test",
) -> None:
    """Store a message that came in at a time and was finished after some seconds."""
    message = make_message(f"message {number}", message_id=str(number), sent_at=at)
    message = replace(message, key=replace(message.key, platform=platform, event_id=str(number)))
    [event] = await store.ledger.receive([message], at)
    closed_at = at + timedelta(seconds=seconds) if outcome.is_final else None
    await store.ledger.save_receipts([replace(event.receipt, outcome=outcome, rule=rule, closed_at=closed_at)])


async def test_messages_are_counted_by_the_span_in_which_they_came_in(store: Store) -> None:
    outcomes = [
        (-MINUTE, Outcome.ANSWERED, ""),
        (0 * MINUTE, Outcome.ANSWERED, ""),
        (MINUTE / 2, Outcome.FAILED, "ModelUnavailable"),
        (MINUTE / 2, Outcome.FAILED, "ModelUnavailable"),
        (MINUTE / 2, Outcome.FAILED, "RESPONSE_TIMEOUT"),
        (MINUTE, Outcome.IGNORED, "MUTED"),
        (MINUTE, Outcome.CLAIMED, ""),
        (3 * MINUTE, Outcome.ANSWERED, ""),
    ]
    for number, (offset, outcome, rule) in enumerate(outcomes):
        await close_message(store, number, NOW + offset, outcome, 1.0, rule)
    first, second, third = await store.activity.buckets(NOW, MINUTE, 3)
    assert (first.start, first.received, first.answered, first.open) == (NOW, 4, 1, 0)
    assert first.failures == {"ModelUnavailable": 2, "RESPONSE_TIMEOUT": 1}
    assert (second.received, second.answered, second.open, second.failures) == (2, 0, 1, {})
    assert (third.start, third.received, third.p50_ms) == (NOW + 2 * MINUTE, 0, None)


async def test_times_to_the_reply_are_percentiles_of_the_answered_messages(store: Store) -> None:
    for number in range(1, 21):
        await close_message(store, number, NOW, Outcome.ANSWERED, number)
    await close_message(store, 99, NOW, Outcome.IGNORED, 500)
    [bucket] = await store.activity.buckets(NOW, MINUTE, 1)
    assert (bucket.p50_ms, bucket.p95_ms) == (10_000, 19_000)


async def test_the_figures_of_a_platform_leave_the_others_out(store: Store) -> None:
    await close_message(store, 1, NOW, Outcome.ANSWERED, 2.0, platform="telegram")
    await close_message(store, 2, NOW, Outcome.ANSWERED, 4.0, platform="discord")
    [bucket] = await store.activity.buckets(NOW, MINUTE, 1, "telegram")
    assert (bucket.received, bucket.p50_ms) == (1, 2000)
    assert (await store.activity.buckets(NOW, MINUTE, 1, "x"))[0].received == 0


async def test_the_messages_of_a_platform_are_counted_by_the_hour(store: Store) -> None:
    assert await store.activity.platform_hours(NOW, 24) == []
    for number, offset in enumerate([-MINUTE, 5 * MINUTE, 10 * MINUTE, HOUR, 3 * HOUR]):
        await close_message(store, number, NOW + offset, Outcome.IGNORED)
    assert sorted(await store.activity.platform_hours(NOW, 2), key=lambda hour: hour.start) == [
        PlatformHour("test", NOW, 2, NOW + 10 * MINUTE),
        PlatformHour("test", NOW + HOUR, 1, NOW + HOUR),
    ]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("count", [1, 2, 7, 40])
async def test_a_span_of_time_is_found_wherever_it_begins(store: Store, count: int) -> None:
    for number in range(count):
        await close_message(store, number, NOW + number * MINUTE, Outcome.IGNORED)
    for number in range(count):
        [bucket] = await store.activity.buckets(NOW + number * MINUTE, (count - number) * MINUTE, 1)
        assert bucket.received == count - number
    assert (await store.activity.buckets(NOW + count * MINUTE, MINUTE, 1))[0].received == 0


async def test_open_messages_and_parts_are_counted_with_the_oldest(store: Store) -> None:
    await close_message(store, 1, NOW, Outcome.CLAIMED)
    await close_message(store, 2, NOW + MINUTE, Outcome.RECEIVED)
    await close_message(store, 3, NOW - MINUTE, Outcome.ANSWERED)
    [receipt, *_] = await store.ledger.receipts()
    turn_id = new_id()
    reply = build_reply(receipt, "Hello", turn_id)
    parts = build_deliveries(reply, "abcdefg")
    parts = await store.ledger.commit(TurnCommit((reply,), tuple(parts)))  # type: ignore[assignment]
    states = [*DeliveryState, DeliveryState.FAILED]
    for part, state, cause in zip(parts, states, [""] * 6 + [DROPPED_CAUSE], strict=True):
        sent_at = NOW + HOUR if state is DeliveryState.SENT else None
        await store.ledger.save_delivery(replace(part, state=state, cause=cause, first_attempt_at=sent_at))
    items = await store.activity.open_items()
    assert items.turns == Backlog(2, NOW)
    assert items.waiting == Backlog(2, NOW)
    assert (items.held, items.failed) == (Backlog(1, NOW), Backlog(1, NOW))
    assert await store.activity.last_sent() == {"test": NOW + HOUR}


async def test_parked_messages_are_counted_with_the_oldest(store: Store) -> None:
    assert (await store.activity.open_items()).parked == Backlog()
    for number, offset in enumerate([MINUTE, 0 * MINUTE]):
        await close_message(store, number, NOW + offset, Outcome.PARKED, rule="restore")
    await close_message(store, 9, NOW - MINUTE, Outcome.IGNORED)
    assert (await store.activity.open_items()).parked == Backlog(2, NOW)


async def test_tasks_are_late_that_were_due_before_and_still_wait(store: Store) -> None:
    assert (await store.activity.task_backlog(NOW)).next_at is None
    late = Task(derived_id("late"), "REMIND", next_run=NOW - HOUR, tags=frozenset({TaskTag.QUEUE}))
    soon = replace(late, id=derived_id("soon"), next_run=NOW + HOUR)
    parked = replace(late, id=derived_id("parked"), next_run=NOW - 2 * HOUR, is_parked=True)
    manual = replace(late, id=derived_id("manual"), next_run=NOW - 2 * HOUR, tags=frozenset())
    for task in (soon, parked, manual):
        await store.tasks.save_task(task)
    backlog = await store.activity.task_backlog(NOW)
    assert (backlog.late, backlog.next_at) == (Backlog(), NOW + HOUR)
    await store.tasks.save_task(late)
    assert (await store.activity.task_backlog(NOW)).late == Backlog(1, NOW - HOUR)
