"""Which facts a prompt shows without a request, and what RECALL finds of the conversation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.remembering import count_leaks, count_stale
from bot import (
    Agent,
    ChannelType,
    Content,
    Entity,
    Memory,
    MemoryKind,
    MemoryScope,
    Plugin,
    ProviderResult,
    Turn,
    derived_id,
    model,
    new_id,
    short_id,
)
from bot.models import EmbeddingRequest, EmbeddingResult, ModelType, Usage
from bot.platform import CommandInvocation
from bot.testing import AgentHarness, ScriptedModel, make_message, make_turn, model_answer, running_agent
from bot.turn import DEFAULT_MEMORY_BYTES
from plugins.bootstrap.providers.conversation import LATEST, memory, recall
from tests.plugins.bootstrap.reflecting import person
from tests.remembering import RememberingModel

NOW = datetime(2026, 11, 21, 12, 3, tzinfo=UTC)


async def learn(
    turn: Turn,
    text: str,
    *,
    name: str = "Alice",
    day: int = 0,
    room: str = "",
    world: str = "",
    scope: MemoryScope = MemoryScope.ROOM,
    **metadata: object,
) -> None:
    """Store a fact of a person, in the turn's room and world unless others are named."""
    await turn.agent.store.entities.save_entities([Entity(person(name), "test", name, (name,))])
    fact = Memory(
        id=new_id(),
        kind=MemoryKind.FACT,
        entity_id=person(name),
        room_id=derived_id("test", "room", room) if room else turn.room.id,
        world_id=derived_id(world) if world else turn.world.id,
        content=Content(text=text),
        created_at=NOW + timedelta(days=day),
        scope=scope,
        metadata=metadata,
    )
    await turn.agent.store.memories.add([fact])


async def shown(turn: Turn) -> str:
    result = await memory(turn)
    assert isinstance(result, ProviderResult)
    return result.text


async def test_facts_about_the_topic_and_the_people_named_are_shown_without_being_asked_for(
    agent_harness: AgentHarness,
) -> None:
    turn = make_turn(agent_harness.agent, "Does Kim still live in Oslo?")
    await learn(turn, "Kim lives in Oslo.", name="Kim")
    await learn(turn, "Tom plays the harp.", name="Tom")

    text = await shown(turn)
    assert f'- Kim (id {short_id(person("Kim"))}), 2026-11-21: "Kim lives in Oslo."' in text
    assert "harp" not in text


async def test_facts_of_other_rooms_and_worlds_are_not_shown(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "Does Kim still live in Oslo?")
    await learn(turn, "Kim lives in Oslo.", name="Kim", room="a direct message")
    await learn(turn, "Kim lives in Rome.", name="Kim", room="elsewhere", world="another world")

    assert not await shown(turn)


async def test_no_more_than_six_hundred_bytes_are_shown_and_no_line_is_cut(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "What is the plan for Oslo?")
    for day in range(30):
        await learn(turn, f"Kim has plan {day} for Oslo, which is a very long story to tell.", name="Kim", day=day)

    text = await shown(turn)
    assert len(text.encode()) <= DEFAULT_MEMORY_BYTES
    assert "plan 29" in text
    assert text.endswith('"')


async def test_a_plan_whose_time_is_over_is_not_shown(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "Does Kim go to Oslo?")
    await learn(turn, "Kim goes to Oslo.", name="Kim", likely_until="2020-01-01T00:00:00+00:00")

    assert not await shown(turn)


@pytest.mark.long
async def test_a_private_fact_reaches_no_other_room_whatever_the_model_asks_for() -> None:
    assert await count_leaks(6) == (0, 6)


@pytest.mark.long
async def test_a_corrected_value_is_not_shown_as_current() -> None:
    assert await count_stale(3) == (0, 3)


async def recalled(harness: AgentHarness, question: str, **place: Any) -> list[str]:
    """Return the quotes in a prompt with this question."""
    result = await recall(make_turn(harness.agent, question, **place))
    assert isinstance(result, ProviderResult)
    return result.text.splitlines()[1:]


async def test_what_was_said_is_recalled_with_who_when_and_where(agent_harness: AgentHarness) -> None:
    await agent_harness.send("I relocated to Graz last month", message_id="m1", kind=ChannelType.GROUP)
    await agent_harness.send("lunch anyone?", author="Bob", kind=ChannelType.GROUP)

    [line, *_] = await recalled(agent_harness, "Where did Alice relocate to?", author="Bob", kind=ChannelType.GROUP)
    assert line.startswith(f"- Alice (id {short_id(person('Alice'))}), 20")
    assert line.endswith('"I relocated to Graz last month" (message m1)')


async def test_the_day_and_the_time_of_facts_are_those_of_the_time_zone() -> None:
    async with running_agent(settings={"TIMEZONE": "Pacific/Auckland"}, clock=lambda: NOW) as harness:
        await harness.send("The boat is in Hull")
        turn = make_turn(harness.agent, "Where is the boat?")
        await learn(turn, "The boat is in Hull.")
        [line, *_] = await recalled(harness, "Where is the boat?")
        assert ", 2026-11-22 01:03: " in line
        assert ", 2026-11-22: " in await shown(turn)
        assert "(2026-11-22)" in await known_of(harness)


async def test_a_question_is_no_answer_to_itself() -> None:
    asking = RememberingModel()
    async with running_agent(model=ScriptedModel(asking)) as agent_harness:
        for text in ("I play the harp", "lunch was late", "my sister visits", "it rains all day"):
            await agent_harness.send(text)
        await agent_harness.send("Ada, which instrument do I play?")
        assert '"I play the harp"' in asking.recalled[0]
        assert not any("instrument" in line for line in asking.recalled)


async def test_the_prompt_says_that_recalled_lines_may_not_answer() -> None:
    asking = RememberingModel()
    async with running_agent(model=ScriptedModel(asking)) as agent_harness:
        await agent_harness.send("I play the harp")
        await agent_harness.send("Ada, what is my favourite colour?")
        assert '"I play the harp"' in asking.recalled[0]
        assert "These lines may not answer what is asked: if they do not, say so" in asking.prompts[-1]


async def test_lines_of_a_person_on_a_topic_are_in_the_order_of_time_with_the_latest_marked(
    agent_harness: AgentHarness,
) -> None:
    texts = ("my bike is a red racer", "it rains", "lunch anyone?", "my bike is now a blue tandem", "see you")
    for text in texts:
        await agent_harness.send(text, kind=ChannelType.GROUP)
    await agent_harness.send("a bike is a fine thing", author="Bob", kind=ChannelType.GROUP)

    lines = await recalled(agent_harness, "Which bike has Alice?", author="Carol", kind=ChannelType.GROUP)
    old, new = (next(line for line in lines if text in line) for text in (texts[0], texts[3]))
    assert lines.index(new) == lines.index(old) + 1
    assert new.endswith(LATEST)
    assert [line for line in lines if line.endswith(LATEST)] == [new]


async def test_of_facts_of_a_person_on_a_topic_the_latest_is_marked(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "Which bike do I have?", kind=ChannelType.GROUP)
    for text in ("Alice has a red bike.", "Alice has a blue bike.", "Alice keeps bees."):
        await learn(turn, text)
    marked = [line for line in (await shown(turn)).splitlines() if line.endswith(LATEST)]
    assert [line.partition('"')[2].partition('"')[0] for line in marked] == ["Alice has a blue bike."]


async def test_what_the_character_said_is_recalled_as_its_own() -> None:
    async with running_agent(model=ScriptedModel(model_answer("The ferry leaves at noon."))) as agent_harness:
        await agent_harness.send("when does it leave?")
        [line] = [
            line for line in await recalled(agent_harness, "When did you say leaves the ferry?") if "noon" in line
        ]

    assert line.startswith("- Ada (you), 20")


@model(ModelType.TEXT_EMBEDDING)
async def embed_noises(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return one vector for texts about noises, and different ones for all others."""
    is_noise = [any(word in text for word in ("noise", "gurgles")) for text in request.texts]
    vectors = [
        (1.0, 0.2, 0.0) if noise else (0.1, 1.0, len(text) / 100)
        for noise, text in zip(is_noise, request.texts, strict=True)
    ]
    return EmbeddingResult(tuple(vectors), "noises-3", Usage())


@pytest.mark.parametrize(
    ("plugins", "expected"), [((), "harp"), ((Plugin("noises", models=[embed_noises]),), "boiler")]
)
async def test_with_an_embedding_model_messages_near_in_meaning_are_recalled_first(
    plugins: tuple[Plugin, ...], expected: str
) -> None:
    async with running_agent(*plugins) as agent_harness:
        for text in ("I play the harp at home", "the boiler gurgles", "lunch anyone?", "see you all", "it rains"):
            await agent_harness.send(text, kind=ChannelType.GROUP)

        lines = await recalled(agent_harness, "Which noise is at home?", author="Bob", kind=ChannelType.GROUP)
        assert expected in lines[0]


async def test_a_room_recalls_nothing_of_another_room(agent_harness: AgentHarness) -> None:
    await agent_harness.send("my secret is the harp")

    assert not await recalled(agent_harness, "What is the secret?", room="another", kind=ChannelType.GROUP)


async def test_what_is_said_later_is_found_and_what_is_deleted_is_not(agent_harness: AgentHarness) -> None:
    await agent_harness.send("good morning")
    assert not await recalled(agent_harness, "Who plays the harp?")

    receipt = await agent_harness.send("I play the harp", message_id="m2")
    assert "I play the harp" in (await recalled(agent_harness, "Who plays the harp?"))[0]

    await agent_harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, ["m2"])
    assert not await recalled(agent_harness, "Who plays the harp?")


@pytest.mark.usefixtures("immediate_edits")
async def test_what_is_edited_is_found_by_its_new_words_only(agent_harness: AgentHarness) -> None:
    await agent_harness.send("", message_id="m1")
    await agent_harness.send("I play the harp", message_id="m2")
    assert await recalled(agent_harness, "Who plays the harp?")

    edits = agent_harness.agent_runtime.handle.edits
    for message_id, text in [("m1", "I keep bees"), ("m2", "I play the drums")]:
        message = make_message(text, sent_at=NOW, message_id=message_id)
        await edits.submit_edit(replace(message, key=replace(message.key, event_id=f"edit-{message_id}", revision=1)))
    assert "I keep bees" in (await recalled(agent_harness, "Who keeps bees?"))[0]
    assert "I play the drums" in (await recalled(agent_harness, "Who plays the drums?"))[0]
    assert not await recalled(agent_harness, "Who has a harp?")


async def known_of(harness: AgentHarness, author: str = "Alice", **place: Any) -> str:
    """Return the answer to /what-do-you-know-about-me."""
    message = make_message("", sent_at=NOW, author=author, **place)
    here = message.world, message.room, message.author
    invocation = CommandInvocation("what-do-you-know-about-me", *here, new_id().hex, NOW)
    return (await harness.agent_runtime.handle.run_command(invocation)).text


async def test_people_are_shown_what_is_known_of_them_and_by_whom(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, kind=ChannelType.GROUP)
    about_alice = {"about": [str(person("Alice"))]}
    await learn(turn, "Alice lives in Oslo.")
    await learn(turn, "Alice keeps bees.", name="Bob", **about_alice)
    await learn(turn, "Bob plays the harp.", name="Bob")

    text = await known_of(agent_harness, kind=ChannelType.GROUP)
    assert "- Alice lives in Oslo. (2026-11-21)" in text
    assert "- Alice keeps bees. (from Bob, 2026-11-21)" in text
    assert "harp" not in text


async def test_in_a_room_nothing_is_listed_that_was_written_elsewhere(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent)
    await learn(turn, "Alice has a secret.")

    assert "secret" not in await known_of(agent_harness, room="another", kind=ChannelType.GROUP)
    assert "Alice has a secret." in await known_of(agent_harness)
    assert "secret" not in await known_of(agent_harness, author="Bob", room="the room of Bob")


async def share_facts(harness: AgentHarness, choice: str, **place: Any) -> str:
    """Return the answer to /share-my-facts of Alice."""
    message = make_message("", sent_at=NOW, author="Alice", **place)
    here = message.world, message.room, message.author
    invocation = CommandInvocation("share-my-facts", *here, new_id().hex, NOW, arguments={"choice": choice})
    return (await harness.agent_runtime.handle.run_command(invocation)).text


async def shown_in_the_pub(harness: AgentHarness, text: str, author: str = "Alice") -> str:
    return await shown(make_turn(harness.agent, text, author=author, room="the pub", kind=ChannelType.GROUP))


async def test_with_consent_what_people_stated_of_themselves_follows_them_into_other_rooms(
    agent_harness: AgentHarness,
) -> None:
    await agent_harness.send("Hello all", kind=ChannelType.GROUP)
    await agent_harness.send("Hello", room="in private", kind=ChannelType.DM)
    group = make_turn(agent_harness.agent, kind=ChannelType.GROUP)
    await learn(group, "Alice keeps bees.")
    await learn(group, "Alice and Bob share a flat.", about=[str(person("Alice")), str(person("Bob"))])
    await learn(group, "Alice sings off key.", name="Bob", about=[str(person("Alice"))])
    private = make_turn(agent_harness.agent, room="in private", kind=ChannelType.DM)
    await learn(private, "Alice is looking for another job.")
    await agent_harness.send("Hello", room="the page", kind=ChannelType.API)
    on_the_page = make_turn(agent_harness.agent, room="the page", kind=ChannelType.API)
    await learn(on_the_page, "Alice owes money.")

    assert await shown_in_the_pub(agent_harness, "What do you know of Alice?") == ""
    assert "only in that room" in await share_facts(agent_harness, "show")
    assert "may use what you said" in await share_facts(agent_harness, "on")
    lines = (await shown_in_the_pub(agent_harness, "What do you know of Alice?")).splitlines()[1:]
    assert len(lines) == 1
    assert lines[0].endswith('"Alice keeps bees." (told in another room)')
    assert await shown_in_the_pub(agent_harness, "What do you know of Alice?", author="Bob") == ""

    assert "only in that room" in await share_facts(agent_harness, "off")
    assert await shown_in_the_pub(agent_harness, "What do you know of Alice?") == ""


async def test_a_person_who_is_forgotten_no_longer_consents(agent_harness: AgentHarness) -> None:
    await agent_harness.send("Hello all", kind=ChannelType.GROUP)
    await share_facts(agent_harness, "on")
    await agent_harness.agent_runtime.handle.edits.erase_entity(person("Alice"))
    assert "only in that room" in await share_facts(agent_harness, "show")
