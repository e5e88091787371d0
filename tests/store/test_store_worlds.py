"""Contract of every store: worlds and rooms."""

from dataclasses import replace
from uuid import UUID

import pytest

from bot.concurrency.clock import Clock
from bot.domain.environment import ChannelType, ParticipantState, Role, Room, World
from bot.domain.ids import derived_id, new_id
from bot.settings import room_setting
from bot.store.protocols import Store
from bot.testing import make_message

ALICE, BOB = derived_id("entity", "alice"), derived_id("entity", "bob")
WORLD = World(derived_id("world"), "test", "w1", "The World", {ALICE: Role.OWNER}, {"icon": "w.png"})


def build_room(name: str, world: World = WORLD, **details: object) -> Room:
    values = {"name": name, "account": "account", **details}
    return Room(derived_id("room", name), world.id, ChannelType.GROUP, "test", name, **values)  # type: ignore[arg-type]


def ids_of(rooms: list[Room]) -> list[UUID]:
    return [room.id for room in rooms]


async def test_unknown_worlds_and_rooms_are_none_or_empty(store: Store) -> None:
    assert await store.worlds.world(new_id()) is None
    assert await store.worlds.room(new_id()) is None
    assert await store.worlds.rooms() == []
    assert await store.worlds.rooms(new_id()) == []
    assert await store.worlds.participant_state(new_id()) is ParticipantState.DEFAULT


async def test_a_world_and_its_rooms_come_back_as_they_were_saved(store: Store) -> None:
    thread = build_room("thread", parent_id=derived_id("room", "lobby"), metadata={"topic": ["a", 1, None]})
    await store.worlds.save_world(WORLD, [build_room("lobby"), thread])

    assert await store.worlds.world(WORLD.id) == WORLD
    assert await store.worlds.room(thread.id) == thread


async def test_a_world_saved_again_is_updated_and_keeps_its_name_and_roles(store: Store) -> None:
    await store.worlds.save_world(WORLD)
    await store.worlds.save_world(World(WORLD.id, "test", "w1", "", {BOB: Role.ADMIN}))
    found = await store.worlds.world(WORLD.id)

    assert found is not None
    assert found.name == "The World"
    assert found.roles == {ALICE: Role.OWNER, BOB: Role.ADMIN}

    await store.worlds.save_world(World(WORLD.id, "test", "w1", "New Name", {ALICE: Role.NONE}))
    found = await store.worlds.world(WORLD.id)

    assert found is not None
    assert (found.name, found.role_of(ALICE), found.role_of(BOB)) == ("New Name", Role.NONE, Role.ADMIN)


async def test_a_room_saved_without_a_name_keeps_its_earlier_name(store: Store) -> None:
    await store.worlds.save_world(WORLD, [build_room("lobby")])
    await store.worlds.save_world(WORLD, [replace(build_room("lobby"), name="")])
    found = await store.worlds.room(build_room("lobby").id)

    assert found is not None
    assert found.name == "lobby"


async def test_rooms_are_listed_the_most_recently_active_first(store: Store) -> None:
    other = World(derived_id("other"), "test", "w2")
    await store.worlds.save_world(WORLD, [build_room("a"), build_room("b"), build_room("c")])
    await store.worlds.save_world(other, [build_room("z", other)])
    await store.worlds.save_world(WORLD, [build_room("a")])

    assert ids_of(await store.worlds.rooms()) == ids_of(
        [build_room("a"), build_room("z", other), build_room("c"), build_room("b")]
    )
    assert ids_of(await store.worlds.rooms(WORLD.id)) == ids_of([build_room("a"), build_room("c"), build_room("b")])


async def test_the_participant_state_is_stored_per_room(store: Store) -> None:
    lobby, attic = build_room("lobby"), build_room("attic")
    await store.worlds.save_world(WORLD, [lobby, attic])
    await store.worlds.set_participant_state(lobby.id, ParticipantState.MUTED)
    await store.worlds.set_participant_state(attic.id, ParticipantState.FOLLOWED)
    await store.worlds.set_participant_state(attic.id, ParticipantState.DEFAULT)
    await store.worlds.save_world(WORLD, [lobby])

    assert await store.worlds.participant_state(lobby.id) is ParticipantState.MUTED
    assert await store.worlds.participant_state(attic.id) is ParticipantState.DEFAULT


async def test_a_role_is_given_to_a_single_person_in_a_single_world(store: Store) -> None:
    other = World(derived_id("other"), "test", "w2")
    await store.worlds.save_world(WORLD)
    await store.worlds.save_world(other)
    await store.worlds.set_role(WORLD.id, BOB, Role.ADMIN)
    here, there = await store.worlds.world(WORLD.id), await store.worlds.world(other.id)

    assert here is not None
    assert there is not None
    assert (here.role_of(ALICE), here.role_of(BOB)) == (Role.OWNER, Role.ADMIN)
    assert (here.roles, here.grants) == ({ALICE: Role.OWNER}, {BOB: Role.ADMIN})
    assert there.role_of(BOB) is Role.MEMBER


async def test_a_grant_survives_the_roles_of_later_messages(store: Store, clock: Clock) -> None:
    for number, role in enumerate((Role.ADMIN, Role.MEMBER, Role.NONE)):
        first = make_message("hi", sent_at=clock(), author=f"Bob {number}")
        await store.ledger.receive([first], clock())
        await store.worlds.set_role(first.world.id, first.author.id, role)
        for reported_role in (Role.MEMBER, Role.ADMIN):
            again = make_message("hi", sent_at=clock(), author=f"Bob {number}", role=reported_role)
            [received] = await store.ledger.receive([again], clock())
            assert received.inbound is not None
            assert received.inbound.world.role_of(first.author.id) is role
        found = await store.worlds.world(first.world.id)
        assert found is not None
        assert found.role_of(first.author.id) is role


async def test_the_platforms_owner_stays_owner_whatever_was_granted(store: Store) -> None:
    await store.worlds.save_world(WORLD)
    await store.worlds.set_role(WORLD.id, ALICE, Role.NONE)
    found = await store.worlds.world(WORLD.id)

    assert found is not None
    assert found.role_of(ALICE) is Role.OWNER
    assert found.owners == {ALICE}


async def test_a_setting_of_a_world_survives_later_messages_and_can_be_removed(store: Store, clock: Clock) -> None:
    first = make_message("hi", sent_at=clock())
    await store.ledger.receive([first], clock())
    await store.worlds.set_setting(first.world.id, "CONVERSATION_LENGTH", "7")
    await store.worlds.set_setting(first.world.id, "ON_EDIT", "rerun")
    await store.worlds.set_setting(first.world.id, "ON_EDIT", "")
    of_room = room_setting("RESPONSIVENESS", first.room.id)
    await store.worlds.set_setting(first.world.id, of_room, "lively")
    [received] = await store.ledger.receive([make_message("again", sent_at=clock())], clock())

    assert received.inbound is not None
    assert received.inbound.world.settings == {"CONVERSATION_LENGTH": "7", of_room: "lively"}


async def test_a_setting_of_an_unknown_world_is_refused(store: Store) -> None:
    with pytest.raises(LookupError):
        await store.worlds.set_setting(new_id(), "ON_EDIT", "rerun")


async def test_the_rooms_of_a_person_are_those_they_take_part_in(store: Store, clock: Clock) -> None:
    for author, place in (("Alice", "a"), ("Bob", "b"), ("Alice", "c")):
        await store.ledger.receive([make_message("hi", sent_at=clock(), author=author, room=place)], clock())
    alice = derived_id("test", "entity", "Alice")

    assert [room.name for room in await store.worlds.rooms_of(alice)] == ["c", "a"]
    assert await store.worlds.rooms_of(new_id()) == []


async def test_a_role_in_an_unknown_world_is_refused(store: Store) -> None:
    with pytest.raises(LookupError):
        await store.worlds.set_role(new_id(), BOB, Role.ADMIN)


async def test_grants_and_settings_follow_a_room_to_another_world(store: Store, clock: Clock) -> None:
    old = make_message("hi", sent_at=clock(), room="group")
    await store.ledger.receive([old], clock())
    await store.worlds.set_role(old.world.id, BOB, Role.ADMIN)
    await store.worlds.set_setting(old.world.id, "ON_EDIT", "rerun")
    world = World(derived_id("supergroup"), "test", "w2", roles={ALICE: Role.OWNER})
    await store.edits.migrate_room(old.room.id, world, replace(old.room, id=new_id(), world_id=world.id))
    found = await store.worlds.world(world.id)

    assert found is not None
    assert (found.role_of(ALICE), found.role_of(BOB)) == (Role.OWNER, Role.ADMIN)
    assert found.settings == {"ON_EDIT": "rerun"}


async def test_a_person_owns_worlds_in_which_they_have_not_written(store: Store) -> None:
    owner, other = new_id(), new_id()
    quay, attic, cellar = (World(new_id(), "test", name, name) for name in ("quay", "attic", "cellar"))
    await store.worlds.save_world(replace(quay, roles={owner: Role.OWNER, other: Role.ADMIN}))
    await store.worlds.save_world(replace(attic, roles={other: Role.OWNER}))
    await store.worlds.save_world(cellar)
    await store.worlds.set_role(attic.id, owner, Role.OWNER)

    assert [world.name for world in await store.worlds.worlds_owned_by(owner)] == ["attic", "quay"]
    assert [world.name for world in await store.worlds.worlds_owned_by(other)] == ["attic"]
    assert await store.worlds.worlds_owned_by(new_id()) == []
