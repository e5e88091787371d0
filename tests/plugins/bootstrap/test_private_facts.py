"""What a person told alone with the agent is known wherever they talk with it alone, and nowhere else."""

from dataclasses import replace
from typing import Any

import pytest

from bot import ChannelType, Turn, derived_id
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from plugins.bootstrap.evaluators.facts import find_private_facts
from tests.plugins.bootstrap.reflecting import about, fact, facts_of, known, noted, reflected, said

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


async def tell(stage: AgentHarness, room: str = "first", author: str = "Alice", **details: Any) -> None:
    """Have somebody tell the fact in a room, and the agent note it."""
    lines = ("I keep seventeen penguins.", "Yes.", "Really.", "All of them.", "Well.")
    assert await reflected(await said(stage, *lines, author=author, room=room, **{**ALONE, **details}))


async def prompts(stage: AgentHarness, room: str = "second", author: str = "Alice", **details: Any) -> str:
    """Return the prompts for the reply to a question in a room."""
    stage.model.requests.clear()
    await stage.send(QUESTION, room=room, author=author, **{**ALONE, **details})
    return "\n".join(request.prompt for request in stage.model.requests_for(Purpose.REPLY))


async def test_a_new_private_room_knows_what_was_told_in_another_one() -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage)
        told = await prompts(stage)
        *_, first, last = told.split("Write what Ada says")
    assert f'"{FACT}" (told in another room)' in first  # MEMORY
    assert "# Told in earlier talks" in last  # FACTS
    assert last.count(FACT) == 2


@pytest.mark.parametrize("setting", ["room", "person"])
async def test_a_setting_says_whether_it_does(setting: str) -> None:
    async with running_agent(model=noting(), settings={"PRIVATE_FACTS": setting}) as stage:
        await tell(stage)
        assert (FACT in await prompts(stage)) == (setting == "person")
        assert FACT in await prompts(stage, room="first")


@pytest.mark.parametrize(
    ("told_in", "asked_in"),
    [
        (ALONE, {"kind": ChannelType.GROUP}),
        ({"kind": ChannelType.GROUP}, ALONE),
        ({"kind": ChannelType.GROUP}, {"kind": ChannelType.GROUP}),
    ],
)
async def test_groups_stay_separate(told_in: dict[str, Any], asked_in: dict[str, Any]) -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage, **told_in)
        assert FACT not in await prompts(stage, **{**asked_in, "author": "Alice"})


async def test_another_person_is_told_nothing_of_it() -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage)
        assert FACT not in await prompts(stage, author="Bob")


async def test_another_platform_or_account_is_told_nothing_of_it() -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage)
        turn = about(stage.agent, make_message(QUESTION, sent_at=stage.agent.clock(), room="second"))
        assert await shared(stage, turn) == [FACT]
        for elsewhere in (replace(turn.room, account="another account"), replace(turn.room, platform="another")):
            turn.room = elsewhere
            assert await shared(stage, turn) == []


async def test_another_world_is_told_nothing_of_it() -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage)
        turn = about(stage.agent, make_message(QUESTION, sent_at=stage.agent.clock(), room="second"))
        turn.world = replace(turn.world, id=derived_id("another world"))
        assert await shared(stage, turn) == []


@pytest.mark.parametrize("shared_room", ["first", "second"])
async def test_a_room_of_the_api_with_several_people_is_no_talk_with_one_alone(shared_room: str) -> None:
    api = {"kind": ChannelType.API}
    async with running_agent(model=noting()) as stage:
        await tell(stage, **api)
        assert FACT in await prompts(stage, **api)
        await stage.send("Hello", room=shared_room, author="Bob", kind=ChannelType.API)
        assert FACT not in await prompts(stage, **api)


async def test_what_is_corrected_in_another_private_room_is_corrected_for_all() -> None:
    answers = iter([noted([fact(1, FACT)]), noted([fact(1, "Alice keeps two penguins.", replaces=1)])])

    def write(request: TextRequest) -> str:
        return next(answers) if request.purpose is Purpose.REFLECTION else model_answer("I see.")

    async with running_agent(model=ScriptedModel(write)) as stage:
        await tell(stage)
        lines = ("No, I keep two penguins.", "Yes.", "Really.", "Only two.", "Well.")
        assert await reflected(await said(stage, *lines, room="second", **ALONE))
        assert (await known(stage, "first"), await known(stage, "second")) == ([], ["Alice keeps two penguins."])


async def test_a_fact_that_repeats_the_words_of_others_stays_where_it_was_told() -> None:
    async with running_agent(model=noting()) as stage:
        await tell(stage)
        [noted_fact] = await facts_of(stage, "first")
        quoting = replace(noted_fact, metadata={**noted_fact.metadata, "tellers": [str(stage.agent.id)]})
        await stage.agent.store.memories.add([quoting])
        assert FACT not in await prompts(stage)


async def shared(stage: AgentHarness, turn: Turn) -> list[str]:
    """Return what the author of a turn told in other private rooms."""
    return [item.content.text for item in await find_private_facts(turn)]
