"""Rules of sending: whom it reaches, who may have it sent, and that nobody is guessed."""

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


async def heard(stage: AgentHarness, room: str) -> list[str]:
    """List what the character has said in a room."""
    place = make_message("", sent_at=stage.agent.clock(), room=room).room
    found = await stage.agent.store.memories.recent(place.id)
    return [one.content.text for one in found if one.entity_id == stage.agent.id]


async def settle(stage: AgentHarness) -> None:
    await stage.send("hello", author="Root", role=Role.OWNER, kind=GROUP)
    await stage.send("hello", author="Root", role=Role.OWNER, kind=GROUP, room="news")
    await stage.send("hello", author="Alice", kind=GROUP)
    await stage.send("hello", author="Alice", room="alice")


async def send(
    stage: AgentHarness, obedient: Obedient, *, to: str, author: str = "Root", role: Role = Role.OWNER
) -> tuple[str, ...]:
    obedient.does("SEND_MESSAGE", text="The engine is repaired.", to=to)
    receipt = await stage.send(f"Ada, tell {to} about the engine", author=author, role=role, kind=GROUP)
    obedient.does()
    return receipt.notes


async def agree(stage: AgentHarness, obedient: Obedient, value: str, **details: Any) -> None:
    obedient.does("UPDATE_CONTACT", kind="messages", value=value)
    await stage.send("as to messages", **details)
    if await waiting(stage):
        obedient.does("CHOOSE_OPTION", option="confirm")
        await stage.send(f"confirm {await code(stage)}", **details)
        await run_due(stage)


@pytest.mark.parametrize("to", ["", "here", "lobby"])
async def test_in_the_room_itself_anybody_has_something_said(to: str) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        await send(stage, obedient, to=to, author="Alice", role=Role.MEMBER)
        assert "The engine is repaired." in await heard(stage, "lobby")


@pytest.mark.failure("L-06")
@pytest.mark.parametrize("role", list(Role))
async def test_in_another_room_only_an_admin_of_its_world_has_something_said(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        await send(stage, obedient, to="#news", author="Bob", role=role)
        said = "The engine is repaired." in await heard(stage, "news")
        assert said is role.is_at_least(Role.ADMIN)
        assert [one for one, _ in await decisions(stage, "SEND_MESSAGE")] == [said]


@pytest.mark.failure("L-06")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("has_agreed", [True, False])
async def test_somebody_is_written_to_who_agreed_or_by_their_admin(role: Role, has_agreed: bool) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        await agree(stage, obedient, "yes" if has_agreed else "no", author="Alice", room="alice")
        await send(stage, obedient, to="@Alice", author="Bob", role=role)
        said = "The engine is repaired." in await heard(stage, "alice")
        assert said is (has_agreed or role.is_at_least(Role.ADMIN))


@pytest.mark.failure("L-02")
async def test_an_owner_of_one_world_has_nothing_said_in_another() -> None:
    obedient, other = Obedient(), Other()
    async with running_agent(model=obedient.model) as stage:
        await stage.agent_runtime.agent.outbox.drain(1)
        stage.agent.outbox.connect(other)
        await settle(stage)
        await stage.send("hello", author="Zoe", kind=GROUP, room="far", platform="other")
        await stage.send("hello", author="Zoe", kind=DM, room="zoe", platform="other")
        for to in ("far", "Zoe", "zoe"):
            assert await send(stage, obedient, to=to) != ()
        assert [text for text in other.texts if "engine" in text] == []

        await agree(stage, obedient, "yes", author="Zoe", kind=DM, room="zoe", platform="other")
        await send(stage, obedient, to="Zoe")
        await stage.agent.outbox.drain(1)
        assert [text for text in other.texts if "engine" in text] == ["The engine is repaired."]


async def test_of_two_by_one_name_nobody_is_guessed() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        await stage.send("hello", author="Bob", room="bob")
        [bob] = await stage.agent.store.entities.entities_by_name("Bob")
        await stage.agent.store.entities.save_entities([replace(bob, names=("Alice",))])
        notes = await send(stage, obedient, to="Alice")
        assert any("“Alice” may be Alice (id" in note for note in notes)
        assert "The engine is repaired." not in await heard(stage, "alice") + await heard(stage, "bob")


@pytest.mark.parametrize("to", ["Nobody", "alic", "ALICE", "new", "*", "%", "Alice,Root"])
async def test_whoever_is_not_known_by_exactly_this_name_gets_nothing(to: str) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        assert await send(stage, obedient, to=to) != ()
        for room in ("lobby", "news", "alice"):
            assert "The engine is repaired." not in await heard(stage, room)


async def test_what_is_said_is_not_the_request_itself() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        obedient.does("SEND_MESSAGE", text="Ada, tell #news the truth", to="news")
        await stage.send("Ada, tell #news the truth", author="Root", role=Role.OWNER, kind=GROUP)
        assert await heard(stage, "news") == []


@pytest.mark.failure("O-08")
async def test_nobody_elses_private_room_is_written_to_as_a_room() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await settle(stage)
        await stage.send("psst", author="Carol", room="carols-room")
        await send(stage, obedient, to="carols-room")
        assert await heard(stage, "carols-room") == ["Very well."]


@pytest.mark.parametrize("to", ["#news", "here"])
async def test_a_step_that_is_repeated_after_a_crash_says_nothing_twice(to: str) -> None:
    async with running_agent(model=Obedient().model) as stage:
        await settle(stage)
        before = len(stage.texts)
        turn = make_turn(stage.agent, f"Ada, tell {to}", author="Root", role=Role.OWNER, kind=GROUP)
        for text in ("The engine is repaired.", "The engine runs again."):  # mended anew, in other words
            turn.begin_step(1)
            result = await send_message(turn, text, to)
            assert result is not None
            assert result.success
        await stage.agent.outbox.drain(5.0)
        assert stage.texts[before:] == ["The engine is repaired."]
        turn.begin_step(2)
        await send_message(turn, "And it is loud.", to)
        await stage.agent.outbox.drain(5.0)
        assert stage.texts[before:] == ["The engine is repaired.", "And it is loud."]


def test_sending_is_carried_out_again_after_a_crash_because_that_does_no_harm() -> None:
    assert send_message.spec.effect is Effect.KEYED
