"""Rules of every store for take-overs of rooms."""

from dataclasses import replace
from datetime import timedelta

from bot.domain.environment import ChannelType, Entity, Room, TakeOver, World
from bot.domain.ids import derived_id
from bot.store import Store
from tests.clocks import ManualClock

ROOM, PERSON, MIA = derived_id("room"), derived_id("person"), derived_id("mia")


def build_take_over(clock: ManualClock) -> TakeOver:
    return TakeOver(ROOM, "Mia", "/take-over", clock.now, by_id=MIA, reason="a refund")


async def test_a_take_over_holds_until_it_ends_and_the_last_that_ended_is_kept(
    store: Store, clock: ManualClock
) -> None:
    take_over = build_take_over(clock)
    assert await store.take_overs.begin(take_over) == take_over
    assert dict(store.take_overs.current) == {(ROOM, None): take_over}
    ended = await store.take_overs.end(ROOM, None, clock.advance(hours=2))
    assert ended == replace(take_over, ended_at=clock.now)
    assert (dict(store.take_overs.current), dict(store.take_overs.ended)) == ({}, {(ROOM, None): ended})
    assert await store.take_overs.end(ROOM, None, clock.now) is None
    again = replace(take_over, since=clock.now)
    assert await store.take_overs.begin(again) == again
    assert (dict(store.take_overs.current), dict(store.take_overs.ended)) == ({(ROOM, None): again}, {})


async def test_a_second_take_over_of_a_room_returns_what_holds(store: Store, clock: ManualClock) -> None:
    first = await store.take_overs.begin(build_take_over(clock))
    second = replace(first, name="Ben", by_id=derived_id("ben"), since=clock.advance(minutes=1))
    assert await store.take_overs.begin(second) == first
    assert list(store.take_overs.current.values()) == [first]


async def test_a_room_and_a_person_in_it_are_taken_over_separately(store: Store, clock: ManualClock) -> None:
    room = await store.take_overs.begin(build_take_over(clock))
    person = await store.take_overs.begin(replace(room, person_id=PERSON))
    await store.take_overs.end(ROOM, None, clock.now + timedelta(hours=1))
    assert dict(store.take_overs.current) == {(ROOM, PERSON): person}


async def test_take_overs_are_read_again_from_the_store(store: Store, clock: ManualClock) -> None:
    take_over = await store.take_overs.begin(build_take_over(clock))
    await store.take_overs.refresh()
    assert list(store.take_overs.current.values()) == [take_over]


async def test_an_erased_person_leaves_a_take_over_that_holds_without_name_and_reason(
    store: Store, clock: ManualClock
) -> None:
    held = await store.take_overs.begin(build_take_over(clock))
    await store.take_overs.begin(replace(held, person_id=PERSON))
    await store.take_overs.end(ROOM, PERSON, clock.now)
    await store.entities.save_entities([Entity(MIA, "test", "mia", ("Mia",))])
    await store.edits.erase_entity(MIA, clock.now)
    await store.take_overs.refresh()
    assert list(store.take_overs.current.values()) == [replace(held, name="", reason="")]
    assert not store.take_overs.ended


async def test_a_take_over_moves_with_its_room(store: Store, clock: ManualClock) -> None:
    world = World(derived_id("world"), "test", "world")
    old, new = (Room(derived_id(name), world.id, ChannelType.GROUP, "test", name) for name in ("old", "new"))
    await store.worlds.save_world(world, [old])
    held = await store.take_overs.begin(replace(build_take_over(clock), room_id=old.id))
    await store.edits.migrate_room(old.id, world, new)
    await store.take_overs.refresh()
    assert list(store.take_overs.current.values()) == [replace(held, room_id=new.id)]
