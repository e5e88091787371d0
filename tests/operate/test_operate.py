"""What operators read of one agent."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot import derived_id
from bot.domain.ids import new_id
from bot.domain.ledger import Outcome
from bot.operate.activity import ActivityRange, AgentActivity
from bot.operate.conversations import ConversationReader
from bot.store import InMemoryStore
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import ManualClock, make_message, running_agent
from tests.store.test_store_activity import close_message


async def test_people_who_are_muted_at_the_same_time_are_all_muted(tmp_path: Path) -> None:
    path, agent_id = tmp_path / "greenroom.db", derived_id("agent", "Ada")
    async with OpenFiles().open_store(path, agent_id) as store, running_agent(store=store) as harness:
        people, ids = harness.agent_runtime.handle.people, [derived_id("Ann"), derived_id("Bo")]
        await asyncio.gather(*(people.mute(entity_id, is_muted=True, source="a test") for entity_id in ids))
        assert all(map(people.is_muted, ids))


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


SENT_AT = datetime(2026, 5, 4, 12, tzinfo=UTC)


async def test_unknown_ids_give_none_or_an_empty_result() -> None:
    records = ConversationReader(InMemoryStore())

    assert await records.rooms() == []
    assert await records.room(new_id()) is None
    assert await records.messages(new_id()) == []
    assert await records.message(new_id()) is None
    assert await records.authors([]) == {}
    assert await records.replies(new_id()) == []
    assert await records.receipt(new_id()) is None
    assert await records.receipts() == []
    assert await records.deliveries(new_id()) == []


async def test_a_message_is_returned_with_its_author_and_receipt() -> None:
    store = InMemoryStore()
    arrival = make_message("Hello", sent_at=SENT_AT)
    receipt = (await store.ledger.receive([arrival], SENT_AT))[0].receipt
    records = ConversationReader(store)

    assert await records.messages(arrival.room.id) == [arrival.message]
    assert await records.message(arrival.message.id) == arrival.message
    assert await records.authors([arrival.message]) == {arrival.author.id: arrival.author}
    assert await records.receipt(receipt.id) == await records.receipt(arrival.message.id) == receipt
    assert await records.receipts(room_id=arrival.room.id) == [receipt]
    assert await records.receipts(room_id=new_id()) == []
    assert [room.id for room in await records.rooms()] == [arrival.room.id]


async def test_the_replies_and_parts_of_a_turn_are_found_by_its_receipt() -> None:
    async with running_agent() as harness:
        receipt = await harness.send("Hello")
        records = harness.agent_runtime.handle.conversations

        assert receipt.turn_id is not None
        assert [memory.content.text for memory in await records.replies(receipt.turn_id)] == ["Hello."]
        assert [part.content.text for part in await records.deliveries(receipt.turn_id)] == ["Hello."]
