"""Membership reports are stored once, and each change is emitted once."""

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
from bot.domain.inbound import MAX_ENTITIES
from bot.domain.ledger import Outcome
from bot.errors import InboxClosed
from bot.inbound.agent_handle import MembershipReporter
from bot.models.types import TextRequest
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent

ALICE = Entity(derived_id("Alice"), "test", "Alice", ("Alice",))
WORLD = World(derived_id("guild"), "test", "guild", "Guild", {ALICE.id: Role.ADMIN})
LOBBY = Room(derived_id("lobby"), WORLD.id, ChannelType.GROUP, "test", "lobby", "account", "lobby")


@pytest.fixture
async def harness() -> AsyncIterator[AgentHarness]:
    async with running_agent() as harness:
        yield harness


@pytest.fixture
def heard(harness: AgentHarness) -> list[Event]:
    """Collect what listeners receive."""
    events: list[Event] = []
    for kind in (WorldJoined, WorldConnected, WorldLeft, RoomJoined, EntityJoined, EntityUpdated, EntityLeft):
        harness.agent.events.subscribe(kind, events.append, name="test", at_once=True)
    return events


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


@pytest.fixture
def news(harness: AgentHarness) -> MembershipReporter:
    return harness.agent_runtime.handle.membership


async def test_a_world_is_joined_once_and_then_only_connected(news: MembershipReporter, heard: list[Event]) -> None:
    await news.join_world(WORLD, [LOBBY], [ALICE])
    await news.join_world(WORLD, [LOBBY], [ALICE])
    assert kinds(heard) == ["WorldJoined", "WorldConnected"]
    joined = heard[0]
    assert isinstance(joined, WorldJoined)
    assert (joined.rooms, joined.entities) == ((LOBBY,), (ALICE,))


async def test_a_new_invitation_is_a_new_join_and_a_repeated_report_is_ignored(
    news: MembershipReporter, heard: list[Event]
) -> None:
    await news.join_world(WORLD, event_id="1")
    await news.join_world(WORLD, event_id="2")
    await news.join_world(WORLD, event_id="2")
    assert kinds(heard) == ["WorldJoined", "WorldJoined"]


async def test_a_membership_report_is_stored_when_the_call_returns(
    harness: AgentHarness, news: MembershipReporter
) -> None:
    await news.join_world(WORLD, [LOBBY], [ALICE])
    store = harness.agent.store
    assert await store.worlds.room(LOBBY.id) == LOBBY
    assert await store.entities.entities([ALICE.id]) == {ALICE.id: ALICE}
    await news.update_world(replace(WORLD, name="New Guild"))
    kept = await store.worlds.world(WORLD.id)
    assert kept is not None
    assert kept.name == "New Guild"


async def test_a_room_is_joined_once_and_renamed_without_an_event(
    harness: AgentHarness, news: MembershipReporter, heard: list[Event]
) -> None:
    await news.join_room(WORLD, LOBBY)
    await news.join_room(WORLD, LOBBY)
    await news.update_room(WORLD, replace(LOBBY, name="Hall"))
    assert kinds(heard) == ["RoomJoined"]
    kept = await harness.agent.store.worlds.room(LOBBY.id)
    assert kept is not None
    assert kept.name == "Hall"


async def test_each_join_and_leave_of_a_person_is_reported_once(news: MembershipReporter, heard: list[Event]) -> None:
    for event_id in ("1", "1"):
        await news.add_member(WORLD, ALICE, event_id=event_id)
    for event_id in ("1", "1"):
        await news.remove_member(WORLD, ALICE, event_id=event_id)
    await news.add_member(WORLD, ALICE, event_id="2")
    assert kinds(heard) == ["EntityJoined", "EntityLeft", "EntityJoined"]


async def test_a_member_of_a_world_with_a_single_room_participates_in_it_until_leaving(
    harness: AgentHarness, news: MembershipReporter
) -> None:
    entities = harness.agent.store.entities
    await news.join_world(WORLD, [LOBBY])
    await news.add_member(WORLD, ALICE)
    assert await entities.participants(LOBBY.id) == [ALICE]
    await news.remove_member(WORLD, ALICE)
    assert await entities.participants(LOBBY.id) == []
    await news.join_room(WORLD, replace(LOBBY, id=derived_id("attic")))
    await news.add_member(WORLD, ALICE, event_id="again")
    assert await entities.participants(LOBBY.id) == []


async def test_a_person_who_left_has_no_platform_role(harness: AgentHarness, news: MembershipReporter) -> None:
    await news.add_member(WORLD, ALICE)
    await news.remove_member(WORLD, ALICE)
    kept = await harness.agent.store.worlds.world(WORLD.id)
    assert kept is not None
    assert kept.role_of(ALICE.id) is Role.MEMBER


@pytest.mark.failure("B-14")
async def test_a_changed_name_or_role_is_reported_and_an_unchanged_name_or_role_is_not(
    news: MembershipReporter, heard: list[Event]
) -> None:
    await news.join_world(WORLD, members=[ALICE])
    heard.clear()
    await news.update_member(WORLD, ALICE)
    assert heard == []
    await news.update_member(WORLD, replace(ALICE, names=("Alicia",)))
    await news.update_member(replace(WORLD, roles={ALICE.id: Role.MEMBER}), ALICE)
    assert kinds(heard) == ["EntityUpdated", "EntityUpdated"]


@pytest.mark.long
async def test_the_number_of_stored_members_of_a_world_is_limited(
    harness: AgentHarness, news: MembershipReporter
) -> None:
    people = [replace(ALICE, id=derived_id(str(number))) for number in range(MAX_ENTITIES + 5)]
    await news.join_world(WORLD, members=people)
    kept = await harness.agent.store.entities.entities([person.id for person in people])
    assert len(kept) == MAX_ENTITIES


async def test_nothing_is_accepted_during_shutdown(harness: AgentHarness, news: MembershipReporter) -> None:
    harness.agent_runtime.inbox.close()
    with pytest.raises(InboxClosed):
        await news.join_world(WORLD)


async def test_leaving_a_world_drops_the_answer_in_progress() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        begun.set()
        await gate.wait()
        return model_answer("Too late.")

    async with running_agent(model=ScriptedModel(slow)) as harness:
        arrival = make_message("Hello", sent_at=harness.agent.clock())
        receipt = await harness.agent_runtime.inbox.submit(arrival)
        await begun.wait()
        await harness.agent_runtime.handle.edits.leave_world(arrival.world.id)
        gate.set()
        settled = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5)
    assert settled.outcome is Outcome.CANCELLED
    assert harness.texts == []


@pytest.mark.failure("B-10")
async def test_an_old_message_is_stored_but_not_answered_and_a_recent_message_is_answered() -> None:
    async with running_agent() as harness:
        inbox, now = harness.agent_runtime.inbox, harness.agent.clock()
        old = replace(make_message("Are you there?", sent_at=now - timedelta(hours=1)), is_backfill=True)
        young = replace(make_message("And now?", sent_at=now - timedelta(minutes=1)), is_backfill=True)
        first, second = await inbox.submit_all([old, young])
        assert (await inbox.wait_outcome(first.id)).outcome is Outcome.EXPIRED
        assert (await inbox.wait_outcome(second.id)).outcome is Outcome.ANSWERED
        await harness.agent.outbox.drain(5)
        assert len(harness.texts) == 1
        assert await inbox.last_seen([old.room.id]) == {old.room.id: young.key.message_id}
