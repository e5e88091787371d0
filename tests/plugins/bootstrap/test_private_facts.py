"""What a person wrote alone with the agent is used wherever they talk with it alone, and nowhere else."""

from dataclasses import replace
from typing import Any

import pytest

from bot import ChannelType, Turn, derived_id
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from plugins.bootstrap.evaluators.facts import find_private_facts
from tests.plugins.bootstrap.reflecting import about, fact, facts_of, known, noted, reflected, say

FACT = "Alice keeps seventeen penguins."
QUESTION = "How many penguins do I keep?"
ALONE: dict[str, Any] = {"kind": ChannelType.DM}


def noting(text: str = FACT) -> ScriptedModel:
    """A model that notes one fact of the first message, and asks for all facts when it replies."""

    def write(request: TextRequest) -> str:
        if request.purpose is Purpose.REFLECTION:
            return noted([fact(1, text)])
        return model_answer("I see.", providers=("FACTS",))

    return ScriptedModel(write)


async def tell(harness: AgentHarness, room: str = "first", author: str = "Alice", **details: Any) -> None:
    """Send the fact in a room, and let the agent note it."""
    lines = ("I keep seventeen penguins.", "Yes.", "Really.", "All of them.", "Well.")
    assert await reflected(await say(harness, *lines, author=author, room=room, **{**ALONE, **details}))


async def prompts(harness: AgentHarness, room: str = "second", author: str = "Alice", **details: Any) -> str:
    """Return the prompts for the reply to a question in a room."""
    harness.model.requests.clear()
    await harness.send(QUESTION, room=room, author=author, **{**ALONE, **details})
    return "\n".join(request.prompt for request in harness.model.requests_for(Purpose.REPLY))


async def test_a_new_private_room_knows_what_was_written_in_another_private_room() -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness)
        known_facts = await prompts(harness)
        *_, first, last = known_facts.split("Write what Ada says")
    assert f'"{FACT}" (told in another room)' in first  # MEMORY
    assert "# Told in earlier talks" in last  # FACTS
    assert last.count(FACT) == 2


@pytest.mark.parametrize("setting", ["room", "person"])
async def test_a_setting_says_whether_it_does(setting: str) -> None:
    async with running_agent(model=noting(), settings={"PRIVATE_FACTS": setting}) as harness:
        await tell(harness)
        assert (FACT in await prompts(harness)) == (setting == "person")
        assert FACT in await prompts(harness, room="first")


@pytest.mark.parametrize(
    ("rooms_of_facts", "asked_in"),
    [
        (ALONE, {"kind": ChannelType.GROUP}),
        ({"kind": ChannelType.GROUP}, ALONE),
        ({"kind": ChannelType.GROUP}, {"kind": ChannelType.GROUP}),
    ],
)
async def test_groups_are_kept_separate(rooms_of_facts: dict[str, Any], asked_in: dict[str, Any]) -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness, **rooms_of_facts)
        assert FACT not in await prompts(harness, **{**asked_in, "author": "Alice"})


async def test_another_person_receives_nothing_of_it() -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness)
        assert FACT not in await prompts(harness, author="Bob")


async def test_another_platform_or_account_receives_nothing_of_it() -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness)
        turn = about(harness.agent, make_message(QUESTION, sent_at=harness.agent.clock(), room="second"))
        assert await shared(harness, turn) == [FACT]
        for elsewhere in (replace(turn.room, account="another account"), replace(turn.room, platform="another")):
            turn.room = elsewhere
            assert await shared(harness, turn) == []


async def test_another_world_receives_nothing_of_it() -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness)
        turn = about(harness.agent, make_message(QUESTION, sent_at=harness.agent.clock(), room="second"))
        turn.world = replace(turn.world, id=derived_id("another world"))
        assert await shared(harness, turn) == []


@pytest.mark.parametrize("shared_room", ["first", "second"])
async def test_a_room_of_the_api_with_several_people_is_no_talk_with_a_single_person(shared_room: str) -> None:
    api = {"kind": ChannelType.API}
    async with running_agent(model=noting()) as harness:
        await tell(harness, **api)
        assert FACT in await prompts(harness, **api)
        await harness.send("Hello", room=shared_room, author="Bob", kind=ChannelType.API)
        assert FACT not in await prompts(harness, **api)


async def test_what_is_corrected_in_another_private_room_is_corrected_for_all() -> None:
    answers = iter([noted([fact(1, FACT)]), noted([fact(1, "Alice keeps two penguins.", replaces=1)])])

    def write(request: TextRequest) -> str:
        return next(answers) if request.purpose is Purpose.REFLECTION else model_answer("I see.")

    async with running_agent(model=ScriptedModel(write)) as harness:
        await tell(harness)
        lines = ("No, I keep two penguins.", "Yes.", "Really.", "Only two.", "Well.")
        assert await reflected(await say(harness, *lines, room="second", **ALONE))
        assert (await known(harness, "first"), await known(harness, "second")) == ([], ["Alice keeps two penguins."])


async def test_a_fact_that_repeats_the_words_of_others_is_used_only_where_it_was_learned() -> None:
    async with running_agent(model=noting()) as harness:
        await tell(harness)
        [noted_fact] = await facts_of(harness, "first")
        quoting = replace(noted_fact, metadata={**noted_fact.metadata, "tellers": [str(harness.agent.id)]})
        await harness.agent.store.memories.add([quoting])
        assert FACT not in await prompts(harness)


async def shared(harness: AgentHarness, turn: Turn) -> list[str]:
    """Return the facts that the author of a turn stated in other private rooms."""
    return [item.content.text for item in await find_private_facts(turn)]
