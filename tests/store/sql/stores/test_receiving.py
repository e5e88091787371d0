"""Lists are received with few queries, whatever their length and content."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot import Entity, Outcome, derived_id, new_id
from bot.platform import StreamCursor
from bot.store import StoredEvent
from bot.store.sql.sqlite import connection
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.long
async def test_a_batch_of_events_makes_no_query_per_event(store: SqlStore) -> None:
    arrivals = [
        make_message(
            f"message {number}",
            sent_at=NOW + timedelta(seconds=number),
            room=f"room {number % 7}",
            message_id=str(number),
        )
        for number in range(200)
    ]
    asked: list[str] = []
    await store.ledger.receive(arrivals[:50], NOW)
    await store.ledger._database.write(lambda db: connection.driver_of(db).set_trace_callback(asked.append))
    kept = await store.ledger.receive([*arrivals, arrivals[199]], NOW)
    await store.ledger._database.write(lambda db: connection.driver_of(db).set_trace_callback(None))

    assert [stored_event.is_new for stored_event in kept] == [False] * 50 + [True] * 150 + [False]
    assert kept[199].receipt == kept[200].receipt
    assert len([text for text in asked if text.startswith("SELECT")]) < 10
    assert len(await store.memories.recent(arrivals[0].room.id, 500)) == 29
    assert (await store.worlds.rooms())[0].name == "room 3"


async def test_long_lists_of_ids_are_split(store: SqlStore) -> None:
    people = [Entity(new_id(), "test", str(number), (f"person {number}",)) for number in range(700)]
    await store.entities.save_entities(people, derived_id("room"))

    assert await store.entities.entities([person.id for person in people]) == {person.id: person for person in people}
    assert await store.entities.participants(derived_id("room"), 3) == people[:-4:-1]
    assert await store.memories.memories([person.id for person in people]) == {}
    assert await store.memories.remove([person.id for person in people]) == 0


async def test_invalid_characters_are_removed_from_text(store: SqlStore) -> None:
    arrival = make_message("half \ud83d and \0 nothing", sent_at=NOW, author="Ali\0ce \udc00")
    receipt = (await store.ledger.receive([arrival], NOW))[0].receipt
    closed = replace(receipt, outcome=Outcome.IGNORED, reason="it said \ud83d\0", closed_at=NOW)
    await store.ledger.save_receipts([closed])
    found = await store.ledger.receipt(receipt.id)
    [message] = await store.memories.recent(arrival.room.id)

    assert found is not None
    assert found.reason == "it said ?"
    assert message == arrival.message
    assert await store.ledger.receive([arrival], NOW) == [StoredEvent(found)]


async def test_unusual_metadata_of_a_plugin_does_not_fail_a_commit(store: SqlStore) -> None:
    arrival = make_message("Hello", sent_at=NOW)
    odd = replace(arrival.message, metadata={"when": NOW, "who": {arrival.author.id}})
    await store.ledger.receive([replace(arrival, message=odd)], NOW)
    [message] = await store.memories.recent(arrival.room.id)

    assert message.metadata == {"when": "2026-05-04T12:00:00Z", "who": [str(arrival.author.id)]}


async def test_a_message_of_a_known_room_is_stored_with_its_cursor_by_few_queries(open_store: OpenStore) -> None:
    first, second = (make_message(text, sent_at=NOW, message_id=text) for text in ("first", "second"))
    asked: list[str] = []
    async with open_store() as store:
        await store.ledger.receive([first], NOW)
        await store.ledger._database.write(lambda db: connection.driver_of(db).set_trace_callback(asked.append))
        events = [
            await store.ledger.receive([second], NOW, StreamCursor("test", "account", "offset", position))
            for position in ("1", "2")
        ]
        await store.ledger._database.write(lambda db: connection.driver_of(db).set_trace_callback(None))

        assert [event.is_new for [event] in events] == [True, False]
        assert await store.ledger.cursor("test", "account", "offset") == "2"
    assert len([text for text in asked if text.startswith("SELECT")]) < 10
