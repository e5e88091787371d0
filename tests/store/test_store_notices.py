"""Contract of every store: membership updates, which make no entity or room active."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.environment import ChannelType, Entity, Role, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import MembershipChange, MembershipUpdate
from bot.store.protocols import Store
from bot.testing import make_message
from tests.clocks import ManualClock

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
ALICE, BOB = (Entity(derived_id(name), "test", name, (name,)) for name in ("Alice", "Bob"))
WORLD = World(derived_id("guild"), "test", "guild", "Guild", {ALICE.id: Role.ADMIN})
LOBBY, ATTIC = (
    Room(derived_id(name), WORLD.id, ChannelType.GROUP, "test", name, "account", name) for name in ("lobby", "attic")
)


async def apply_update(store: Store, update: MembershipUpdate, now: datetime = NOW) -> MembershipChange:
    return await store.edits.apply_membership(update, now)


@pytest.mark.long
async def test_an_update_of_ten_thousand_entities_makes_none_active(store: Store) -> None:
    people = tuple(
        Entity(derived_id("member", str(number)), "test", str(number), (f"m{number}",)) for number in range(10_000)
    )
    noticed = await apply_update(store, MembershipUpdate(WORLD, (LOBBY, ATTIC), people))
    assert noticed.previous_world is None
    assert noticed.new_room_ids == {LOBBY.id, ATTIC.id}
    assert len(noticed.new_entity_ids) == 10_000
    assert await store.worlds.world(WORLD.id) == WORLD
    assert {room.id for room in await store.worlds.rooms(WORLD.id)} == {LOBBY.id, ATTIC.id}
    assert len(await store.entities.entities([entity.id for entity in people])) == 10_000
    assert await store.entities.participants(LOBBY.id) == []


async def test_a_reported_room_comes_after_rooms_with_messages(store: Store) -> None:
    arrival = make_message("Hello", sent_at=NOW)
    await store.ledger.receive([arrival], NOW)
    await apply_update(store, MembershipUpdate(WORLD, (LOBBY, ATTIC)))
    await apply_update(store, MembershipUpdate(WORLD, (replace(LOBBY, name="Lobby"),)))
    rooms = await store.worlds.rooms()
    assert rooms[0].id == arrival.room.id
    assert {room.name for room in rooms[1:]} == {"Lobby", "attic"}


async def test_the_same_update_again_changes_nothing(store: Store) -> None:
    notice = MembershipUpdate(WORLD, (LOBBY,), (ALICE, BOB))
    await apply_update(store, notice)
    again = await apply_update(store, notice)
    assert again.previous_world == WORLD
    assert (again.new_room_ids, again.new_entity_ids, again.changed_entity_ids) == (
        frozenset(),
        frozenset(),
        frozenset(),
    )
    assert not again.has_changed(ALICE, WORLD)


async def test_a_new_name_and_a_new_role_are_changes(store: Store) -> None:
    await apply_update(store, MembershipUpdate(WORLD, (), (ALICE, BOB)))
    renamed = await apply_update(store, MembershipUpdate(WORLD, entities=(replace(ALICE, names=("Alicia",)),)))
    assert renamed.changed_entity_ids == {ALICE.id}
    raised = replace(WORLD, roles={BOB.id: Role.ADMIN})
    assert (await apply_update(store, MembershipUpdate(raised, entities=(BOB,)))).has_changed(BOB, raised)
    lowered = replace(WORLD, roles={BOB.id: Role.MEMBER})
    assert (await apply_update(store, MembershipUpdate(lowered, entities=(BOB,)))).has_changed(BOB, lowered)
    kept = await store.worlds.world(WORLD.id)
    assert kept is not None
    assert (kept.role_of(ALICE.id), kept.role_of(BOB.id)) == (Role.ADMIN, Role.MEMBER)


async def test_an_event_that_is_known_changes_nothing_for_thirty_days(store: Store, clock: ManualClock) -> None:
    notice = MembershipUpdate(WORLD, entities=(ALICE,), event_id="7")
    assert (await apply_update(store, notice, clock.now)).is_new
    other = replace(notice, entities=(BOB,))
    assert not (await apply_update(store, other, clock.advance(days=29))).is_new
    assert await store.entities.entities([BOB.id]) == {}
    assert (await apply_update(store, other, clock.advance(days=2))).is_new
    assert await store.entities.entities([BOB.id]) == {BOB.id: BOB}


async def test_who_left_a_world_is_in_none_of_its_rooms_until_active_there_again(store: Store) -> None:
    await apply_update(store, MembershipUpdate(WORLD, (LOBBY, ATTIC), (ALICE, BOB)))
    for person in (ALICE, BOB):
        await store.entities.save_entities([person], LOBBY.id)
    elsewhere = make_message("Hi", sent_at=NOW, author="Alice").room
    await store.ledger.receive([make_message("Hi", sent_at=NOW + timedelta(seconds=1))], NOW)
    await store.entities.save_entities([ALICE], elsewhere.id)
    await apply_update(store, MembershipUpdate(WORLD, entities=(ALICE,), is_leaving=True))
    assert await store.entities.participants(LOBBY.id) == [BOB]
    assert ALICE in await store.entities.participants(elsewhere.id)
    assert await store.entities.entities([ALICE.id]) == {ALICE.id: ALICE}
    await store.entities.save_entities([ALICE], LOBBY.id)
    assert await store.entities.participants(LOBBY.id) == [ALICE, BOB]


async def test_the_last_message_ids_of_several_rooms_are_found_at_once(store: Store) -> None:
    arrivals = [
        make_message(text, sent_at=NOW, room=room, message_id=text)
        for text, room in (("1", "lobby"), ("2", "attic"), ("3", "lobby"))
    ]
    await store.ledger.receive(arrivals, NOW)
    edit = replace(arrivals[0], key=replace(arrivals[0].key, event_id="edit", revision=1))
    await store.edits.apply_edit(edit, NOW)
    rooms = {arrival.room.external_id: arrival.room.id for arrival in arrivals}
    seen = await store.ledger.last_message_ids([*rooms.values(), derived_id("nowhere")])
    assert seen == {rooms["lobby"]: "3", rooms["attic"]: "2"}


async def test_an_old_message_from_the_history_is_stored_closed_and_a_recent_message_open(store: Store) -> None:
    old = replace(make_message("old", sent_at=NOW - timedelta(minutes=16)), is_backfill=True)
    young = replace(make_message("young", sent_at=NOW - timedelta(minutes=14)), is_backfill=True)
    first, second = await store.ledger.receive([old, young], NOW)
    assert (first.receipt.outcome, first.receipt.rule) == ("expired", "backfill")
    assert second.receipt.outcome == "claimed"
    assert [receipt.id for receipt in await store.ledger.receipts(is_open=True)] == [second.receipt.id]
    assert len(await store.memories.recent(old.room.id)) == 2
    [again] = await store.ledger.receive([old], NOW)
    assert (again.is_new, again.receipt.id) == (False, first.receipt.id)


async def test_a_single_old_message_is_stored_closed(store: Store) -> None:
    await store.ledger.receive([make_message("before", sent_at=NOW)], NOW)
    old = replace(make_message("old", sent_at=NOW - timedelta(hours=1)), is_backfill=True)
    [received] = await store.ledger.receive([old], NOW)
    assert received.receipt.outcome == "expired"
    assert received.receipt not in await store.ledger.receipts(is_open=True)
