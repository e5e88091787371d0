"""Queries that a front end may make."""

from datetime import UTC, datetime

from bot.domain.ids import new_id
from bot.operate.conversations import ConversationReader
from bot.store import InMemoryStore
from bot.testing import make_message, running_agent

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


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
    arrival = make_message("Hello", sent_at=NOW)
    receipt = (await store.ledger.receive([arrival], NOW))[0].receipt
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
