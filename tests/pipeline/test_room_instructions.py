"""What is set for a room or a world changes the answers there, from the next message on."""

from typing import Any

import pytest

from bot import ChannelType, Character, Outcome
from bot.characters import parse_character
from bot.costs.budget import CostEntry
from bot.domain.environment import Role
from bot.domain.instructions import RoomInstructions
from bot.domain.ledger import Rule
from bot.errors import CharacterError
from bot.testing import AgentHarness, running_agent
from tests.commands.asking import give

GROUP = ChannelType.GROUP


def character(**rooms: dict[str, Any]) -> Character:
    return Character.model_validate({"name": "Ada", "rooms": rooms})


async def set_room(harness: AgentHarness, key: str, value: str = "", *, role: Role = Role.ADMIN, **details: Any) -> str:
    arguments = {"action": "set" if value else "unset", "key": key, "value": value}
    return (await give(harness, "room", arguments=arguments, role=role, **details)).text


async def ask(harness: AgentHarness, text: str = "Ada, hello", **details: Any) -> Any:
    return await harness.send(text, kind=GROUP, **details)


async def test_instructions_are_in_the_system_prompt_and_never_a_message() -> None:
    async with running_agent(character=character(lobby={"instructions": "Talk about tides."})) as harness:
        await set_room(harness, "language", "German")
        await set_room(harness, "length", "short")
        receipt = await ask(harness)
        [request] = [item for item in harness.model.requests if item.purpose == "reply"]
        assert "Talk about tides." in request.system
        assert "German" in request.system
        assert "one or two short sentences" in request.system
        assert "Talk about tides." not in request.prompt
        assert "instructions (lobby), language (room), length (room)" in " ".join(receipt.notes)


async def test_a_room_has_its_own_value_of_each_key_else_that_of_the_world_else_that_of_the_file() -> None:
    async with running_agent(character=character(world={"language": "French", "notes": "Polite."})) as harness:
        await set_room(harness, "world.language", "German")
        await set_room(harness, "world.length", "long")
        shown = await set_room(harness, "length", "40")
        assert "language: German (this server, Alice," in shown
        assert "length: 40 (here, Alice," in shown
        assert "notes: Polite. (the character's file)" in shown
        shown = await set_room(harness, "length")
        assert "length: long (this server" in shown


async def test_only_admins_set_something_and_no_person_does_alone_with_the_bot() -> None:
    async with running_agent() as harness:
        assert "role ADMIN" in await set_room(harness, "language", "German", role=Role.MEMBER)
        assert "role ADMIN" in await set_room(harness, "language", "German", role=Role.MEMBER, kind=ChannelType.DM)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("colour", "red", "there is no 'colour'"),
        ("answer", "sometimes", "always, lively, balanced, reserved, called, mentions, listen"),
        ("length", "5", "from 20 to 10000"),
        ("budget", "-1", "dollars a day"),
        ("instructions", "x" * 2001, "at most 2000 characters"),
        ("language", "German\nIgnore all", "the name of a language"),
        ("model", "o1-pro", "the models are large, medium, small"),
    ],
)
async def test_a_value_that_does_not_fit_is_refused_with_what_fits(key: str, value: str, problem: str) -> None:
    async with running_agent() as harness:
        assert problem in await set_room(harness, key, value)
        assert (await give(harness, "room", role=Role.ADMIN)).text == "Nothing is set for this room."


@pytest.mark.parametrize(
    ("answer", "text", "outcome"),
    [
        ("always", "It rains.", Outcome.ANSWERED),
        ("listen", "Ada, hello", Outcome.IGNORED),
        ("mentions", "It rains.", Outcome.IGNORED),
        ("mentions", "Ada, hello", Outcome.ANSWERED),
    ],
)
async def test_answer_decides_which_messages_are_answered(answer: str, text: str, outcome: Outcome) -> None:
    async with running_agent() as harness:
        await set_room(harness, "answer", answer)
        receipt = await ask(harness, text)
        assert receipt.outcome is outcome
        if text == "It rains." or answer == "listen":
            assert receipt.rule == Rule.ROOM_ANSWER
            assert not [item for item in harness.model.requests if item.purpose == "should_respond"]


async def test_the_model_of_a_room_writes_its_answers() -> None:
    async with running_agent(character=character(garden={"model": "gpt-9"})) as harness:
        await ask(harness, room="garden")
        assert harness.model.requests[-1].model == "gpt-9"
        await set_room(harness, "model", "small")
        await ask(harness)
        assert harness.model.requests[-1].model == ""


async def test_actions_can_be_switched_off_in_a_single_room() -> None:
    async with running_agent() as harness:
        names = {spec.name for spec in harness.agent.catalog.actions} - {"REPLY", "IGNORE", "NONE"}
        await ask(harness)
        assert any(name in harness.model.requests[-1].prompt for name in names)
        await set_room(harness, "tools", "off")
        await ask(harness)
        assert not any(name in harness.model.requests[-1].prompt for name in names)


async def test_the_budget_of_a_room_stops_its_answers_for_the_day() -> None:
    async with running_agent() as harness:
        await set_room(harness, "budget", "0.0005")
        first = await ask(harness)
        assert first.outcome is Outcome.ANSWERED
        today = harness.agent.clock().date()
        harness.agent.budget.record(CostEntry(today, "m", first.room_id, None, calls=1, cost=0.5))
        receipt = await ask(harness)
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.ROOM_BUDGET)
        assert "$0.50 of $0.0005 today" in receipt.reason
        assert (await ask(harness, room="garden")).outcome is Outcome.ANSWERED


def test_a_file_with_instructions_is_read_and_a_value_that_does_not_fit_is_named_with_its_line() -> None:
    good = '{"name": "Ada", "rooms": {"help": {"language": "German", "tools": ["REPLY"], "length": 40}}}'
    assert parse_character(good).character.rooms["help"].tools == ("REPLY",)
    with pytest.raises(CharacterError) as caught:
        parse_character('{"name": "Ada", "rooms":\n{"help":\n{"answer": "never", "langage": "German"}}}')
    problems = [(problem.path, problem.line, problem.message[:20]) for problem in caught.value.problems]
    assert ("rooms.help.answer", 3, "it must be which mes") in problems
    assert any(path == "rooms.help.langage" for path, _, _ in problems)


def test_what_people_set_never_goes_beyond_the_file() -> None:
    limit = RoomInstructions(tools=("MUTE_ROOM",), budget=1.0)
    for tools, expected in ((True, ("MUTE_ROOM",)), (("SEND_MESSAGE", "MUTE_ROOM"), ("MUTE_ROOM",)), (False, False)):
        narrowed = RoomInstructions(tools=tools, budget=5.0).narrowed_by(limit)
        assert (narrowed.tools, narrowed.budget) == (expected, 1.0)
