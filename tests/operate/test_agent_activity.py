"""Figures of an agent: what is over is read from the store once, also across restarts."""

from datetime import UTC, datetime, timedelta

from bot.domain.ledger import Outcome
from bot.operate.activity import ActivityRange, AgentActivity
from bot.store import InMemoryStore
from bot.testing import ManualClock
from tests.store.test_store_activity import close_message

NOW = datetime(2026, 5, 20, 12, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def build_activity(store: InMemoryStore) -> AgentActivity:
    return AgentActivity(store, list, cost_limit=lambda: 0.0, recent_costs=dict, clock=ManualClock(NOW).now)


async def test_what_was_read_is_known_after_a_restart() -> None:
    store = InMemoryStore()
    for number, age in enumerate([HOUR, 7 * HOUR, 2 * DAY, 9 * DAY]):
        await close_message(store, number, NOW - age, Outcome.ANSWERED, 2.0)
    before = build_activity(store)
    await before.refresh()
    month, arrivals = await before.buckets(ActivityRange.MONTH), await before.arrivals()
    assert sum(bucket.received for bucket in month) == 4
    without_messages = InMemoryStore()
    without_messages.cache = store.cache

    after = build_activity(without_messages)

    assert await after.buckets(ActivityRange.MONTH) == month
    assert await after.arrivals() == arrivals
    assert await after.buckets(ActivityRange.MONTH, "test") == month


async def test_a_span_with_an_open_message_is_read_again_and_no_other_is() -> None:
    store = InMemoryStore()
    await close_message(store, 1, NOW - 3 * DAY, Outcome.CLAIMED)
    await close_message(store, 2, NOW - 2 * DAY, Outcome.ANSWERED)
    activity = build_activity(store)
    await activity.refresh()
    for number, age in enumerate([3 * DAY, 2 * DAY], 10):
        await close_message(store, number, NOW - age, Outcome.ANSWERED)
    await activity.refresh()
    month = await activity.buckets(ActivityRange.MONTH)
    assert {bucket.start.day: bucket.received for bucket in month if bucket.received} == {17: 2, 18: 1}
