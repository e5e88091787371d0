"""What platforms tell of places and people is kept, before anybody there has written."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from bot import (
    ChannelType,
    Entity,
    EntityJoined,
    EntityLeft,
    EntityUpdated,
    Event,
    Plugin,
    Role,
    Room,
    RoomJoined,
    World,
    WorldConnected,
    WorldJoined,
    derived_id,
)
from bot.testing import Stage, on_stage
from plugins.sql import plugin as sql

ALICE, BOB = (Entity(derived_id(name), "test", name, (name,)) for name in ("Alice", "Bob"))
WORLD = World(derived_id("guild"), "test", "guild", "Guild", {ALICE.id: Role.ADMIN})
LOBBY, ATTIC = (
    Room(derived_id(name), WORLD.id, ChannelType.GROUP, "test", name, "account", name)
    for name in ("lobby", "attic")
)


async def tell(stage: Stage, *events: Event) -> None:
    for event in events:
        stage.agent.events.emit(event)
    await stage.agent.events.settle()


async def present(stage: Stage, room: Room = LOBBY) -> list[str]:
    return [one.name for one in await stage.agent.store.entities.participants(room.id)]


@pytest.mark.parametrize("plugins", [[], [sql]], ids=["memory", "SQLite"])
async def test_a_joined_world_is_kept_with_its_rooms_and_members(
    plugins: list[Plugin], tmp_path: Path
) -> None:
    members = [
        Entity(derived_id("member", str(number)), "test", str(number), (f"m{number}",))
        for number in range(120)
    ]
    async with on_stage(*plugins, settings={"BOT_DATA_DIR": str(tmp_path)}) as stage:
        agent = stage.agent
        await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY, ATTIC), tuple(members)))
        store = agent.store
        assert await store.worlds.world(WORLD.id) == WORLD
        assert {room.id for room in await store.worlds.rooms(WORLD.id)} == {LOBBY.id, ATTIC.id}
        assert len(await store.entities.entities({one.id for one in members})) == 120
        assert await present(stage) == []


async def test_members_are_kept_fifty_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    entities = stage.agent.store.entities
    save = entities.save_entities

    async def counted(people: Sequence[Entity], room_id: UUID | None = None) -> None:
        sizes.append(len(people))
        await save(people, room_id)

    monkeypatch.setattr(entities, "save_entities", counted)
    members = [replace(ALICE, id=derived_id(str(number))) for number in range(120)]
    await tell(stage, WorldJoined(stage.agent.id, WORLD, (), tuple(members)))
    assert sizes == [50, 50, 20]


async def test_a_world_that_is_reachable_again_has_its_new_name_and_keeps_its_roles(stage: Stage) -> None:
    agent = stage.agent
    await tell(stage, WorldJoined(agent.id, WORLD))
    await tell(stage, WorldConnected(agent.id, replace(WORLD, name="New Guild", roles={})))
    kept = await agent.store.worlds.world(WORLD.id)
    assert kept is not None
    assert (kept.name, kept.role_of(ALICE.id)) == ("New Guild", Role.ADMIN)


async def test_a_joined_room_is_kept_where_its_world_is_known(stage: Stage) -> None:
    agent = stage.agent
    await tell(stage, RoomJoined(agent.id, LOBBY))
    assert await agent.store.worlds.room(LOBBY.id) is None
    await tell(stage, WorldConnected(agent.id, WORLD), RoomJoined(agent.id, LOBBY))
    assert await agent.store.worlds.room(LOBBY.id) == LOBBY


async def test_who_joins_a_world_of_one_room_takes_part_in_it_until_they_leave(stage: Stage) -> None:
    agent = stage.agent
    await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY,)))
    await tell(stage, EntityJoined(agent.id, ALICE, WORLD), EntityJoined(agent.id, BOB, WORLD))
    assert await present(stage) == ["Bob", "Alice"]
    await tell(stage, EntityLeft(agent.id, BOB, WORLD))
    assert await present(stage) == ["Alice"]
    assert BOB.id in await agent.store.entities.entities([BOB.id])


async def test_in_a_world_of_several_rooms_who_joins_is_known_and_in_none(stage: Stage) -> None:
    agent = stage.agent
    await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY, ATTIC)), EntityJoined(agent.id, ALICE, WORLD))
    assert await agent.store.entities.entities([ALICE.id]) == {ALICE.id: ALICE}
    assert await present(stage, LOBBY) == await present(stage, ATTIC) == []


async def test_who_leaves_a_world_leaves_all_its_rooms_and_no_other(stage: Stage) -> None:
    agent = stage.agent
    await stage.say("Hi", author="Alice", kind=ChannelType.GROUP, room="elsewhere")
    other = (await agent.store.worlds.rooms())[0]
    alice = (await agent.store.entities.participants(other.id))[0]
    await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY, ATTIC)))
    for room in (LOBBY, ATTIC):
        await agent.store.entities.save_entities([alice], room.id)
    await tell(stage, EntityLeft(agent.id, alice, WORLD))
    assert await present(stage, LOBBY) == await present(stage, ATTIC) == []
    assert "Alice" in await present(stage, other)


async def test_what_is_told_at_once_is_kept_in_the_order_in_which_it_was_told(stage: Stage) -> None:
    agent = stage.agent
    joined, left = EntityJoined(agent.id, ALICE, WORLD), EntityLeft(agent.id, ALICE, WORLD)
    await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY,)), joined, left, joined, left)
    assert await present(stage) == []


async def test_a_new_name_is_known_and_moves_nobody_to_the_front(stage: Stage) -> None:
    agent = stage.agent
    await tell(stage, WorldJoined(agent.id, WORLD, (LOBBY,)))
    await tell(stage, EntityJoined(agent.id, ALICE, WORLD), EntityJoined(agent.id, BOB, WORLD))
    await tell(stage, EntityUpdated(agent.id, replace(ALICE, names=("Alicia",)), WORLD))
    assert await present(stage) == ["Bob", "Alicia"]


async def test_that_nothing_can_be_kept_reaches_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*given: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(stage.agent.store.entities, "leave", fail)
    await tell(stage, EntityLeft(stage.agent.id, ALICE, WORLD))
    await stage.say("Still there?")
    assert stage.texts == ["Hello."]
