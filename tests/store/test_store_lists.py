"""Contract of every store: lists for operators."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, ParticipantState, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage, MembershipUpdate
from bot.domain.ledger import Delivery, DeliveryState, Outcome
from bot.domain.memory import Memory, MemoryKind
from bot.store.lists import MessageFilter, Page, RoomFilter
from bot.store.protocols import Store
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
MIDNIGHT = NOON.replace(hour=0)


async def receive(
    store: Store, text: str, *, room: str = "lobby", at: datetime = NOON, **details: Any
) -> InboundMessage:
    message = make_message(text, room=room, sent_at=at, **details)
    await store.ledger.receive([message], at)
    return message


async def names(store: Store, wanted: RoomFilter | None = None, **details: Any) -> tuple[list[str], Page[Any]]:
    page = await store.lists.rooms(wanted or RoomFilter(), counted_since=MIDNIGHT, **details)
    return [summary.room.name or summary.room.external_id for _, summary in page.items], page


async def test_rooms_are_listed_page_by_page_the_most_recently_active_first(store: Store) -> None:
    for number in range(5):
        await receive(store, "Hello", room=f"room {number}")
    await receive(store, "Again", room="room 1")
    first, page = await names(store, limit=3)
    assert (first, page.next is None) == (["room 1", "room 4", "room 3"], False)
    second, page = await names(store, limit=3, before=page.next)
    assert (second, page.next) == (["room 2", "room 0"], None)


async def test_rooms_that_were_never_active_are_listed_once_each(store: Store) -> None:
    message = make_message("Hello", sent_at=NOON)
    rooms = [replace(message.room, id=derived_id(str(number)), external_id=str(number), name="") for number in range(7)]
    await store.edits.apply_membership(MembershipUpdate(message.world, tuple(rooms)), NOON)
    listed: list[str] = []
    found, page = await names(store, limit=3)
    listed += found
    while page.next is not None:
        found, page = await names(store, limit=3, before=page.next)
        listed += found
    assert sorted(listed) == sorted(room.external_id for room in rooms)


async def test_rooms_are_filtered_by_platform_world_and_text(store: Store) -> None:
    await receive(store, "Hello", room="Ämter")
    await receive(store, "Hello", room="porch")
    other = World(derived_id("other"), "pigeon", "other", "Other")
    room = Room(derived_id("loft"), other.id, ChannelType.GROUP, "pigeon", "loft", "account", "Loft")
    await store.worlds.save_world(other, [room])
    for wanted, expected in (
        (RoomFilter(platform="pigeon"), ["Loft"]),
        (RoomFilter(world_id=other.id), ["Loft"]),
        (RoomFilter(text="ämt"), ["Ämter"]),
        (RoomFilter(text="LOF"), ["Loft"]),
        (RoomFilter(text="por", platform="pigeon"), []),
    ):
        found, page = await names(store, wanted)
        assert (found, page.next) == (expected, None)
    found, page = await names(store, RoomFilter(platform="test"), limit=1)
    assert (await names(store, RoomFilter(platform="test"), limit=1, before=page.next))[0] + found == ["Ämter", "porch"]


async def test_a_room_is_listed_with_its_world_its_last_event_the_messages_of_today_and_whether_it_is_muted(
    store: Store,
) -> None:
    for hours in (30, 20, 3, 2):
        message = await receive(store, "Hello", at=NOON - timedelta(hours=hours))
    await receive(store, "Hello", room="old", at=NOON - timedelta(hours=1))
    await store.worlds.set_participant_state(message.room.id, ParticipantState.MUTED)
    page = await store.lists.rooms(RoomFilter(), counted_since=MIDNIGHT)
    old, lobby = (summary for _, summary in page.items)
    assert (lobby.is_muted, old.is_muted) == (True, False)
    assert (lobby.message_count, old.message_count) == (2, 1)
    assert lobby.last_event_at == NOON - timedelta(hours=2)
    assert lobby.world_name == message.world.name
    page = await store.lists.rooms(RoomFilter(), counted_since=NOON + timedelta(days=1))
    assert [summary.message_count for _, summary in page.items] == [0, 0]
    await receive(store, "Tomorrow", at=NOON + timedelta(days=1))
    page = await store.lists.rooms(RoomFilter(), counted_since=NOON + timedelta(days=1))
    assert [summary.message_count for _, summary in page.items] == [1, 0]
    assert set(await store.lists.rooms_by_id([message.room.id, derived_id("none")])) == {message.room.id}


async def texts(store: Store, room_id: UUID, wanted: MessageFilter | None = None, **details: Any) -> Any:
    page = await store.lists.messages(room_id, wanted or MessageFilter(), **details)
    return [item.memory.content.text for _, item in page.items], page


async def test_messages_of_a_room_are_listed_page_by_page_with_the_agents_and_the_latest_receipts(store: Store) -> None:
    for number in range(5):
        message = await receive(store, str(number), at=NOON + timedelta(minutes=number))
    reply = Memory(
        derived_id("reply"),
        MemoryKind.MESSAGE,
        derived_id("agent"),
        message.room.id,
        message.world.id,
        Content(text="reply"),
        NOON,
    )
    await store.memories.add([reply])
    found, page = await texts(store, message.room.id, limit=3)
    assert found == ["reply", "4", "3"]
    assert [item.receipt is None for _, item in page.items] == [True, False, False]
    assert page.items[1][1].receipt.memory_id == message.message.id
    found, page = await texts(store, message.room.id, limit=3, before=page.next)
    assert (found, page.next) == (["2", "1", "0"], None)
    newer = await store.lists.messages_after(message.room.id, page.items[0][0], limit=2)
    assert [item.memory.content.text for _, item in newer.items] == ["3", "4"]
    assert newer.next is not None
    newer = await store.lists.messages_after(message.room.id, newer.next, limit=2)
    assert [item.memory.content.text for _, item in newer.items] == ["reply"]
    assert newer.next is None


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (MessageFilter(outcomes=frozenset({Outcome.IGNORED})), ["4", "2"]),
        (MessageFilter(outcomes=frozenset({Outcome.IGNORED, Outcome.ANSWERED})), ["4", "3", "2"]),
        (MessageFilter(rules=frozenset({"MUTED"})), ["2"]),
        (MessageFilter(since=NOON + timedelta(minutes=1), until=NOON + timedelta(minutes=3)), ["2", "1"]),
        (MessageFilter(until=NOON + timedelta(minutes=1)), ["0"]),
        (MessageFilter(since=NOON + timedelta(minutes=9)), []),
    ],
)
async def test_messages_are_filtered_by_outcome_rule_and_time(
    store: Store, wanted: MessageFilter, expected: list[str]
) -> None:
    rules = {2: (Outcome.IGNORED, "MUTED"), 3: (Outcome.ANSWERED, "mention"), 4: (Outcome.IGNORED, "budget")}
    for number in range(5):
        message = await receive(store, str(number), at=NOON + timedelta(minutes=number))
        if number in rules:
            receipt = await store.ledger.receipt(message.message.id)
            assert receipt is not None
            outcome, rule = rules[number]
            await store.ledger.save_receipts([replace(receipt, outcome=outcome, rule=rule)])
    found, page = await texts(store, message.room.id, wanted)
    assert (found, page.next) == (expected, None)
    if len(expected) > 1:
        found, page = await texts(store, message.room.id, wanted, limit=1)
        assert found + (await texts(store, message.room.id, wanted, before=page.next))[0] == expected


async def test_messages_are_filtered_by_their_author(store: Store) -> None:
    await receive(store, "by Ann", author="Ann")
    message = await receive(store, "by Tom", author="Tom")
    found, _ = await texts(store, message.room.id, MessageFilter(author_id=message.author.id))
    assert found == ["by Tom"]


async def store_deliveries(store: Store, *states: DeliveryState) -> list[Delivery]:
    message = await receive(store, "Hello")
    stored = []
    for number, state in enumerate(states):
        details = {"created_at": NOON + timedelta(seconds=number), "state": state}
        delivery = build_delivery(derived_id("turn", str(number)), message.room.id, f"part {number}", **details)
        await store.ledger.save_delivery(delivery)
        stored.append(delivery)
    return stored


async def test_undelivered_parts_are_listed_by_state_the_latest_first_and_counted(store: Store) -> None:
    held, failed = DeliveryState.UNKNOWN, DeliveryState.FAILED
    waiting, sending = DeliveryState.PENDING, DeliveryState.ATTEMPTING
    sent, cancelled = DeliveryState.SENT, DeliveryState.CANCELLED
    await store_deliveries(store, held, sent, failed, waiting, held, cancelled, sending, held)

    async def parts(*states: DeliveryState, **details: Any) -> tuple[list[str], Page[Delivery]]:
        page = await store.lists.deliveries(states, **details)
        return [delivery.content.text for _, delivery in page.items], page

    assert (await parts(held))[0] == ["part 7", "part 4", "part 0"]
    assert (await parts(failed))[0] == ["part 2"]
    assert (await parts(waiting, sending))[0] == ["part 6", "part 3"]
    assert (await parts(held, failed, waiting, sending))[0] == [f"part {number}" for number in (7, 6, 4, 3, 2, 0)]
    assert (await parts(sent))[0] == []
    found, page = await parts(held, limit=2)
    assert found == ["part 7", "part 4"]
    found, page = await parts(held, limit=2, before=page.next)
    assert (found, page.next) == (["part 0"], None)
    assert await store.lists.count_deliveries() == {held: 3, failed: 1, waiting: 1, sending: 1}


async def test_receipts_are_found_by_the_ids_of_their_messages(store: Store) -> None:
    first, second = await receive(store, "one"), await receive(store, "two")
    found = await store.lists.receipts_of([first.message.id, second.message.id, derived_id("none")])
    assert {message_id: receipt.memory_id for message_id, receipt in found.items()} == {
        first.message.id: first.message.id,
        second.message.id: second.message.id,
    }
    assert await store.lists.receipts_of([]) == {}
