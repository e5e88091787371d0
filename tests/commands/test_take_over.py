"""Take-overs: the agent is silent in a room, or for one person there, and reads on, until it is given back."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from bot.domain.environment import ChannelType, Role
from bot.domain.ids import derived_id, short_id
from bot.domain.ledger import DeliveryKind, Outcome, Rule
from bot.models.types import TextRequest
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from tests.clocks import ManualClock
from tests.commands.asking import give, press

GROUP, DM = ChannelType.GROUP, ChannelType.DM
ADMIN = {"author": "Mia", "role": Role.ADMIN}


@pytest.fixture
async def harness() -> AsyncIterator[AgentHarness]:
    clock = ManualClock()
    settings = {"BURST_PAUSE": "0", "OWNER_ACCOUNTS": "test:Olga"}
    model = ScriptedModel(model_answer("Aye."))
    async with running_agent(model=model, settings=settings, store=InMemoryStore(clock), clock=clock) as harness:
        yield harness


def room_of(harness: AgentHarness, room: str = "lobby") -> UUID:
    return make_message("", sent_at=harness.agent.clock(), kind=GROUP, room=room).room.id


async def test_a_taken_over_room_is_read_and_not_answered_until_it_is_given_back(harness: AgentHarness) -> None:
    done = await give(harness, "take-over", **ADMIN)
    assert "Mia has taken over" in done.text
    silent = await harness.send("Ada, hello", kind=GROUP)
    assert (silent.outcome, silent.rule) == (Outcome.IGNORED, Rule.TAKEN_OVER)
    assert silent.reason == "taken over by Mia since 2026-05-04 12:00 UTC"
    assert (harness.texts, harness.model.requests) == ([], [])
    stored = await harness.agent.store.memories.recent(silent.room_id, 5)
    assert [memory.content.text for memory in stored] == ["Ada, hello"]
    assert silent.reason in (await give(harness, "why")).text
    [button] = done.choices
    assert "I answer again. Mia" in (await press(harness, button.value, **ADMIN)).text
    assert (await harness.send("Ada, hello", kind=GROUP)).outcome is Outcome.ANSWERED


async def test_other_rooms_than_the_taken_over_are_answered(harness: AgentHarness) -> None:
    await give(harness, "take-over", **ADMIN)
    assert (await harness.send("Ada, hello", kind=GROUP, room="garden")).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("name", ["Alice", f"<@{'Alice'}>", short_id(derived_id("test", "entity", "Alice"))])
async def test_a_take_over_for_a_person_leaves_the_others_answered(harness: AgentHarness, name: str) -> None:
    for author in ("Alice", "Bob"):
        await harness.send("Ada, hello", kind=GROUP, author=author)
    assert "for Alice" in (await give(harness, "take-over", text=f"{name} a refund", **ADMIN)).text
    [held] = harness.agent.store.take_overs.current.values()
    assert held.reason == "a refund"
    assert (await harness.send("Ada, hello", kind=GROUP, author="Alice")).rule == Rule.TAKEN_OVER
    assert (await harness.send("Ada, hello", kind=GROUP, author="Bob")).outcome is Outcome.ANSWERED
    assert "I answer again" in (await give(harness, "give-back", **ADMIN)).text
    assert (await harness.send("Ada, hello", kind=GROUP, author="Alice")).outcome is Outcome.ANSWERED


async def test_only_moderators_take_over_and_give_back(harness: AgentHarness) -> None:
    assert "ADMIN" in (await give(harness, "take-over", author="Alice")).text
    await give(harness, "take-over", **ADMIN)
    assert "ADMIN" in (await give(harness, "give-back", author="Alice")).text
    assert harness.agent.store.take_overs.current
    await give(harness, "give-back", **ADMIN)
    assert "Only an admin" in (await give(harness, "take-over", author="Alice", kind=DM)).text
    assert not harness.agent.store.take_overs.current


async def test_a_second_moderator_reads_who_has_taken_over(harness: AgentHarness) -> None:
    await give(harness, "take-over", **ADMIN)
    second = await give(harness, "take-over", author="Ben", role=Role.ADMIN)
    assert "already taken over by Mia since 2026-05-04 12:00 UTC" in second.text


async def test_what_is_not_there_is_said(harness: AgentHarness) -> None:
    assert "not know anyone called “zebra”" in (await give(harness, "take-over", text="zebra", **ADMIN)).text
    assert "no room nowhere" in (await give(harness, "take-over", text="room:nowhere", **ADMIN)).text
    assert "Nobody has taken over" in (await give(harness, "give-back", **ADMIN)).text


async def test_an_owner_takes_over_a_room_from_a_private_chat(harness: AgentHarness) -> None:
    await harness.send("Ada, hello", kind=GROUP, room="garden")
    room_id = room_of(harness, "garden")
    stranger = await give(harness, "take-over", author="Alice", kind=DM, text=f"room:{room_id}")
    assert "Only an admin" in stranger.text
    done = await give(harness, "take-over", author="Olga", kind=DM, text=f"room:{room_id}")
    assert "taken over in garden" in done.text
    assert (await harness.send("Ada, hello", kind=GROUP, room="garden")).rule == Rule.TAKEN_OVER
    [button] = done.choices
    given = await give(harness, "give-back", author="Olga", kind=DM, text=button.value.partition(" ")[2])
    assert "I answer again" in given.text
    assert (await harness.send("Ada, hello", kind=GROUP, room="garden")).outcome is Outcome.ANSWERED


async def test_an_answer_that_is_being_written_is_stopped(harness: AgentHarness) -> None:
    is_writing = asyncio.Event()

    async def write(request: TextRequest) -> str:
        is_writing.set()
        await asyncio.Event().wait()
        return ""

    harness.model._script = write
    receipt = await harness.submit("Ada, hello", kind=GROUP)
    await is_writing.wait()
    await give(harness, "take-over", **ADMIN)
    closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    assert (closed.outcome, closed.rule) == (Outcome.CANCELLED, Rule.STOPPED)
    assert harness.texts == []


async def test_an_answer_is_not_sent_where_another_process_has_stored_a_take_over_meanwhile(
    harness: AgentHarness,
) -> None:
    await give(harness, "take-over", **ADMIN)
    [held] = harness.agent.store.take_overs.current.values()
    await give(harness, "give-back", **ADMIN)

    async def write(request: TextRequest) -> str:
        await harness.agent.store.take_overs.begin(held)
        return model_answer("Aye.")

    harness.model._script = write
    receipt = await harness.send("Ada, hello", kind=GROUP)
    assert (receipt.outcome, receipt.rule, harness.texts) == (Outcome.IGNORED, Rule.TAKEN_OVER, [])


async def test_a_person_in_distress_is_referred_to_help_in_a_taken_over_room(harness: AgentHarness) -> None:
    await give(harness, "take-over", **ADMIN)
    receipt = await harness.send("Ada, I want to die", kind=GROUP)
    assert receipt.rule == Rule.TAKEN_OVER
    assert [part.kind for part in harness.adapter.sent] == [DeliveryKind.REFERRAL]


async def test_the_agent_says_nothing_by_itself_in_a_taken_over_room(harness: AgentHarness) -> None:
    await harness.send("Ada, hello", kind=GROUP)
    room = await harness.agent.store.worlds.room(room_of(harness))
    assert room is not None
    await give(harness, "take-over", **ADMIN)
    assert await harness.agent.say(room, "Good morning.") is None
    await give(harness, "give-back", **ADMIN)
    assert await harness.agent.say(room, "Good morning.") is not None


async def test_the_next_prompt_says_in_a_line_who_had_taken_over_for_how_long_and_what_they_said(
    harness: AgentHarness,
) -> None:
    clock = harness.agent.clock
    assert isinstance(clock, ManualClock)
    await give(harness, "take-over", **ADMIN)
    clock.advance(minutes=10)
    await harness.send("Where is my refund?", kind=GROUP)
    clock.advance(minutes=1)
    await harness.send("It was sent [today].", kind=GROUP, author="Mia")
    clock.advance(minutes=19)
    await give(harness, "give-back", **ADMIN)
    clock.advance(minutes=1)
    await harness.send("Ada, thank you", kind=GROUP)
    [line] = [line for line in harness.model.requests[-1].prompt.splitlines() if "in your place" in line]
    assert line.startswith("[Mia, a person, answered in your place in this room for 30 min; 2 messages were written")
    assert "by Mia: It was sent [today]." in line
    clock.advance(minutes=1)
    await harness.send("Ada, and now?", kind=GROUP)
    assert "in your place" not in harness.model.requests[-1].prompt
