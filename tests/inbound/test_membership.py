"""What platforms tell of places and people is kept once, and listeners hear of it once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.environment import ChannelType, Entity, Role, Room, World
from bot.domain.events import (
    EntityJoined,
    EntityLeft,
    EntityUpdated,
    Event,
    RoomJoined,
    WorldConnected,
    WorldJoined,
    WorldLeft,
)
from bot.domain.ids import derived_id
from bot.domain.inbound import MOST_PEOPLE
from bot.domain.ledger import Outcome
from bot.errors import IntakeClosed
from bot.inbound.membership import News
from bot.models.types import TextRequest
from bot.testing import ScriptedModel, Stage, answer, make_arrival, on_stage

ALICE = Entity(derived_id("Alice"), "test", "Alice", ("Alice",))
WORLD = World(derived_id("guild"), "test", "guild", "Guild", {ALICE.id: Role.ADMIN})
LOBBY = Room(derived_id("lobby"), WORLD.id, ChannelType.GROUP, "test", "lobby", "account", "lobby")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with on_stage() as stage:
        yield stage


@pytest.fixture
def heard(stage: Stage) -> list[Event]:
    """Collect what listeners are told."""
    events: list[Event] = []
    for kind in (WorldJoined, WorldConnected, WorldLeft, RoomJoined, EntityJoined, EntityUpdated, EntityLeft):
        stage.agent.events.subscribe(kind, events.append, name="test", at_once=True)
    return events


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


@pytest.fixture
def news(stage: Stage) -> News:
    return stage.resident.door.news


async def test_a_world_is_joined_once_and_connected_from_then_on(news: News, heard: list[Event]) -> None:
    await news.world_joined(WORLD, [LOBBY], [ALICE])
    await news.world_joined(WORLD, [LOBBY], [ALICE])
    assert kinds(heard) == ["WorldJoined", "WorldConnected"]
    joined = heard[0]
    assert isinstance(joined, WorldJoined)
    assert (joined.rooms, joined.entities) == ((LOBBY,), (ALICE,))


async def test_who_is_invited_again_has_joined_again_and_a_repeat_says_nothing(
    news: News, heard: list[Event]
) -> None:
    await news.world_joined(WORLD, event_id="1")
    await news.world_joined(WORLD, event_id="2")
    await news.world_joined(WORLD, event_id="2")
    assert kinds(heard) == ["WorldJoined", "WorldJoined"]


async def test_what_is_told_is_kept_when_the_call_returns(stage: Stage, news: News) -> None:
    await news.world_joined(WORLD, [LOBBY], [ALICE])
    store = stage.agent.store
    assert await store.worlds.room(LOBBY.id) == LOBBY
    assert await store.entities.entities([ALICE.id]) == {ALICE.id: ALICE}
    await news.world_updated(replace(WORLD, name="New Guild"))
    kept = await store.worlds.world(WORLD.id)
    assert kept is not None
    assert kept.name == "New Guild"


async def test_a_room_is_joined_once_and_renamed_silently(
    stage: Stage, news: News, heard: list[Event]
) -> None:
    await news.room_joined(WORLD, LOBBY)
    await news.room_joined(WORLD, LOBBY)
    await news.room_updated(WORLD, replace(LOBBY, name="Hall"))
    assert kinds(heard) == ["RoomJoined"]
    kept = await stage.agent.store.worlds.room(LOBBY.id)
    assert kept is not None
    assert kept.name == "Hall"


async def test_somebody_joins_leaves_and_joins_again_each_heard_once(news: News, heard: list[Event]) -> None:
    for event_id in ("1", "1"):
        await news.person_joined(WORLD, ALICE, event_id=event_id)
    for event_id in ("1", "1"):
        await news.person_left(WORLD, ALICE, event_id=event_id)
    await news.person_joined(WORLD, ALICE, event_id="2")
    assert kinds(heard) == ["EntityJoined", "EntityLeft", "EntityJoined"]


async def test_who_joins_a_world_of_one_room_takes_part_in_it_until_they_leave(
    stage: Stage, news: News
) -> None:
    entities = stage.agent.store.entities
    await news.world_joined(WORLD, [LOBBY])
    await news.person_joined(WORLD, ALICE)
    assert await entities.participants(LOBBY.id) == [ALICE]
    await news.person_left(WORLD, ALICE)
    assert await entities.participants(LOBBY.id) == []
    await news.room_joined(WORLD, replace(LOBBY, id=derived_id("attic")))
    await news.person_joined(WORLD, ALICE, event_id="again")
    assert await entities.participants(LOBBY.id) == []


async def test_who_left_has_no_role_by_the_platform_any_more(stage: Stage, news: News) -> None:
    await news.person_joined(WORLD, ALICE)
    await news.person_left(WORLD, ALICE)
    kept = await stage.agent.store.worlds.world(WORLD.id)
    assert kept is not None
    assert kept.role_of(ALICE.id) is Role.MEMBER


async def test_b14_a_new_name_or_role_is_told_and_the_same_again_is_not(
    news: News, heard: list[Event]
) -> None:
    await news.world_joined(WORLD, people=[ALICE])
    heard.clear()
    await news.person_updated(WORLD, ALICE)
    assert heard == []
    await news.person_updated(WORLD, replace(ALICE, names=("Alicia",)))
    await news.person_updated(replace(WORLD, roles={ALICE.id: Role.MEMBER}), ALICE)
    assert kinds(heard) == ["EntityUpdated", "EntityUpdated"]


async def test_of_a_world_without_end_only_so_many_are_kept(stage: Stage, news: News) -> None:
    people = [replace(ALICE, id=derived_id(str(number))) for number in range(MOST_PEOPLE + 5)]
    await news.world_joined(WORLD, people=people)
    kept = await stage.agent.store.entities.entities([one.id for one in people])
    assert len(kept) == MOST_PEOPLE


async def test_nothing_is_taken_in_while_the_bot_stops(stage: Stage, news: News) -> None:
    stage.resident.inbox.close()
    with pytest.raises(IntakeClosed):
        await news.world_joined(WORLD)


async def test_in_a_world_that_was_left_the_answer_under_way_is_dropped() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        begun.set()
        await gate.wait()
        return answer("Too late.")

    async with on_stage(model=ScriptedModel(slow)) as stage:
        arrival = make_arrival("Hello", at=stage.agent.clock())
        receipt = await stage.resident.inbox.put(arrival)
        await begun.wait()
        await stage.resident.door.changes.left_world(arrival.world.id)
        gate.set()
        settled = await stage.resident.inbox.settled(receipt.id)
        await stage.agent.outbox.drain(5)
    assert settled.outcome is Outcome.CANCELLED
    assert stage.texts == []


async def test_b10_what_was_said_long_ago_is_kept_and_not_answered_and_what_is_fresh_is() -> None:
    async with on_stage() as stage:
        inbox, now = stage.resident.inbox, stage.agent.clock()
        old = replace(make_arrival("Are you there?", at=now - timedelta(hours=1)), is_backfill=True)
        young = replace(make_arrival("And now?", at=now - timedelta(minutes=1)), is_backfill=True)
        first, second = await inbox.put_all([old, young])
        assert (await inbox.settled(first.id)).outcome is Outcome.EXPIRED
        assert (await inbox.settled(second.id)).outcome is Outcome.ANSWERED
        await stage.agent.outbox.drain(5)
        assert len(stage.texts) == 1
        assert await inbox.last_seen([old.room.id]) == {old.room.id: young.key.message_id}
