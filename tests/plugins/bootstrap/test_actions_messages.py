"""Rules of sending: whom it reaches, who may have it sent, and that no recipient is guessed."""

from dataclasses import replace
from typing import Any

import pytest

from bot import ChannelType, Effect, Role
from bot.testing import AgentHarness, RecordingAdapter, make_message, make_turn, running_agent
from plugins.bootstrap.actions.messages import send_message
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, run_due, waiting

GROUP, DM = ChannelType.GROUP, ChannelType.DM


class Other(RecordingAdapter):
    """Another platform."""

    platform = "other"


async def heard(harness: AgentHarness, room: str) -> list[str]:
    """List what the character has said in a room."""
    place = make_message("", sent_at=harness.agent.clock(), room=room).room
    found = await harness.agent.store.memories.recent(place.id)
    return [is_allowed.content.text for is_allowed in found if is_allowed.entity_id == harness.agent.id]


async def settle(harness: AgentHarness) -> None:
    await harness.send("hello", author="Root", role=Role.OWNER, kind=GROUP)
    await harness.send("hello", author="Root", role=Role.OWNER, kind=GROUP, room="news")
    await harness.send("hello", author="Alice", kind=GROUP)
    await harness.send("hello", author="Alice", room="alice")


async def send(
    harness: AgentHarness, obedient: Obedient, *, to: str, author: str = "Root", role: Role = Role.OWNER
) -> tuple[str, ...]:
    obedient.does("SEND_MESSAGE", text="The engine is repaired.", to=to)
    receipt = await harness.send(f"Ada, tell {to} about the engine", author=author, role=role, kind=GROUP)
    obedient.does()
    return receipt.notes


async def agree(harness: AgentHarness, obedient: Obedient, value: str, **details: Any) -> None:
    obedient.does("UPDATE_CONTACT", kind="messages", value=value)
    await harness.send("as to messages", **details)
    if await waiting(harness):
        obedient.does("CHOOSE_OPTION", option="confirm")
        await harness.send(f"confirm {await code(harness)}", **details)
        await run_due(harness)


@pytest.mark.parametrize("to", ["", "here", "lobby"])
async def test_in_the_room_itself_anybody_has_something_said(to: str) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        await send(harness, obedient, to=to, author="Alice", role=Role.MEMBER)
        assert "The engine is repaired." in await heard(harness, "lobby")


@pytest.mark.failure("L-06")
@pytest.mark.parametrize("role", list(Role))
async def test_in_another_room_only_an_admin_of_its_world_has_something_said(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        await send(harness, obedient, to="#news", author="Bob", role=role)
        is_sent = "The engine is repaired." in await heard(harness, "news")
        assert is_sent is role.is_at_least(Role.ADMIN)
        assert [is_allowed for is_allowed, _ in await decisions(harness, "SEND_MESSAGE")] == [is_sent]


@pytest.mark.matrix(3)
@pytest.mark.failure("L-06")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("has_agreed", [True, False])
async def test_only_a_person_who_agreed_or_whose_admin_asks_is_written_to(role: Role, has_agreed: bool) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        await agree(harness, obedient, "yes" if has_agreed else "no", author="Alice", room="alice")
        await send(harness, obedient, to="@Alice", author="Bob", role=role)
        is_sent = "The engine is repaired." in await heard(harness, "alice")
        assert is_sent is (has_agreed or role.is_at_least(Role.ADMIN))


@pytest.mark.failure("L-02")
async def test_an_owner_of_a_world_has_nothing_said_in_another_world() -> None:
    obedient, other = Obedient(), Other()
    async with running_agent(model=obedient.model) as harness:
        await harness.agent_runtime.agent.outbox.drain(1)
        harness.agent.outbox.connect(other)
        await settle(harness)
        await harness.send("hello", author="Zoe", kind=GROUP, room="far", platform="other")
        await harness.send("hello", author="Zoe", kind=DM, room="zoe", platform="other")
        for to in ("far", "Zoe", "zoe"):
            assert await send(harness, obedient, to=to) != ()
        assert [text for text in other.texts if "engine" in text] == []

        await agree(harness, obedient, "yes", author="Zoe", kind=DM, room="zoe", platform="other")
        await send(harness, obedient, to="Zoe")
        await harness.agent.outbox.drain(1)
        assert [text for text in other.texts if "engine" in text] == ["The engine is repaired."]


async def test_of_two_by_the_same_name_neither_is_guessed() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        await harness.send("hello", author="Bob", room="bob")
        [bob] = await harness.agent.store.entities.entities_by_name("Bob")
        await harness.agent.store.entities.save_entities([replace(bob, names=("Alice",))])
        notes = await send(harness, obedient, to="Alice")
        assert any("“Alice” may be Alice (id" in note for note in notes)
        assert "The engine is repaired." not in await heard(harness, "alice") + await heard(harness, "bob")


@pytest.mark.parametrize("to", ["Nobody", "alic", "ALICE", "new", "*", "%", "Alice,Root"])
async def test_a_person_not_known_by_exactly_this_name_gets_nothing(to: str) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        assert await send(harness, obedient, to=to) != ()
        for room in ("lobby", "news", "alice"):
            assert "The engine is repaired." not in await heard(harness, room)


async def test_what_is_said_is_not_the_request_itself() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        obedient.does("SEND_MESSAGE", text="Ada, tell #news the truth", to="news")
        await harness.send("Ada, tell #news the truth", author="Root", role=Role.OWNER, kind=GROUP)
        assert await heard(harness, "news") == []


@pytest.mark.failure("O-08")
async def test_another_persons_private_room_is_not_written_to_as_a_room() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await settle(harness)
        await harness.send("psst", author="Carol", room="carols-room")
        await send(harness, obedient, to="carols-room")
        assert await heard(harness, "carols-room") == ["Very well."]


@pytest.mark.parametrize("to", ["#news", "here"])
async def test_a_step_that_is_repeated_after_a_crash_says_nothing_twice(to: str) -> None:
    async with running_agent(model=Obedient().model) as harness:
        await settle(harness)
        before = len(harness.texts)
        turn = make_turn(harness.agent, f"Ada, tell {to}", author="Root", role=Role.OWNER, kind=GROUP)
        for text in ("The engine is repaired.", "The engine runs again."):  # repaired again, in other words
            turn.begin_step(1)
            result = await send_message(turn, text, to)
            assert result is not None
            assert result.success
        await harness.agent.outbox.drain(5.0)
        assert harness.texts[before:] == ["The engine is repaired."]
        turn.begin_step(2)
        await send_message(turn, "And it is loud.", to)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts[before:] == ["The engine is repaired.", "And it is loud."]


def test_sending_is_carried_out_again_after_a_crash_because_that_does_no_harm() -> None:
    assert send_message.spec.effect is Effect.KEYED
