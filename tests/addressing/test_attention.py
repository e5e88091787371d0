"""Group rooms: what the talk decides before a model is asked, and what it learns."""

import asyncio
from dataclasses import replace

import pytest

from benchmarks.two_bots import play_two_bots
from bot.domain.content import Content, MentionContext
from bot.domain.environment import ChannelType, ParticipantState
from bot.domain.events import ReactionReceived
from bot.domain.ids import derived_id
from bot.models.types import Purpose, TextRequest
from bot.pipeline.attention import MAX_CORRECTION, MAX_EXCESS_CORRECTION, Attention, Responsiveness
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ScriptedModel, make_turn, model_answer, running_agent

GROUP = ChannelType.GROUP
IGNORE = "<response><reasoning>no</reasoning><action>IGNORE</action></response>"
RESPOND = "<response><reasoning>yes</reasoning><action>RESPOND</action></response>"
TALK = [
    ("Bo", "Cy: did the parcel come?"),
    ("Cy", "Bo: not yet, it is in Graz"),
    ("Bo", "Cy: since when?"),
    ("Cy", "since Monday, they say"),
    ("Bo", "that is a long time"),
    ("Cy", "it is, I will call them"),
]


def write(request: TextRequest) -> str:
    return IGNORE if request.purpose is Purpose.SHOULD_RESPOND else model_answer("Sure, which one?")


@pytest.fixture
def scripted_model() -> ScriptedModel:
    return ScriptedModel(write)


def asked(harness: AgentHarness) -> int:
    """Return how often the small model was asked whether to answer."""
    return sum(request.purpose is Purpose.SHOULD_RESPOND for request in harness.model.requests)


async def say(harness: AgentHarness, *lines: tuple[str, str]) -> list[str]:
    """Send lines to the group; return the rules that decided."""
    return [(await harness.send(text, author=author, kind=GROUP)).rule for author, text in lines]


@pytest.mark.long
async def test_people_who_talk_with_each_other_are_not_asked_about(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK)
    before = asked(agent_harness)
    for _ in range(10):
        assert set(await say(agent_harness, *TALK)) == {"not addressed"}
    assert asked(agent_harness) == before
    assert agent_harness.texts == []


async def test_an_answer_to_the_agents_question_is_answered_or_asked_about(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK, ("Bo", "Ada, can you write to them?"))
    assert (await say(agent_harness, ("Bo", "yes, the red one"))) != ["not addressed"]


async def test_a_line_right_after_a_line_to_the_agent_is_never_passed_over(agent_harness: AgentHarness) -> None:
    async with running_agent(model=ScriptedModel(write), settings={"RESPONSIVENESS": "balanced"}) as harness:
        await say(harness, *TALK)
        reply = MentionContext(is_mention=True)
        await harness.send(Content(text="look at this", source="test", mention=reply), author="Bo", kind=GROUP)
        assert (await say(harness, ("Bo", "and at that"))) != ["not addressed"]


async def test_only_called_asks_no_model_and_answers_calls() -> None:
    async with running_agent(model=ScriptedModel(write), settings={"RESPONSIVENESS": "called"}) as harness:
        assert set(await say(harness, *TALK)) == {"not addressed"}
        assert await say(harness, ("Bo", "Ada, are you there?")) == ["name called"]
        assert asked(harness) == 0
        receipt = await harness.send("hello everybody", author="Bo", kind=GROUP)
        assert receipt.reason == "Ada answers here only when called"


async def test_a_lively_agent_asks_about_every_message_that_is_not_clear() -> None:
    async with running_agent(model=ScriptedModel(write), settings={"RESPONSIVENESS": "lively"}) as harness:
        await say(harness, *TALK, *TALK)
        assert asked(harness) == 2 * len(TALK)


async def test_the_receipt_says_what_decided(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK)
    receipt = await agent_harness.send("Bo: they do not answer", author="Cy", kind=GROUP)
    assert receipt.rule == "not addressed"
    assert receipt.reason.startswith("probably not addressed to Ada (")
    assert "other people had written to the author" in receipt.reason


async def test_the_model_is_shown_what_the_talk_shows(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK, ("Cy", "Ada, hello"), ("Bo", "does anybody have a key?"))
    assert "Who spoke to whom shows: unclear whether" in agent_harness.model.requests[-1].prompt


async def test_in_a_new_room_silence_follows_a_decision_and_does_not_precede_it(agent_harness: AgentHarness) -> None:
    assert await say(agent_harness, ("Bo", "Ada, are you there?"), ("Cy", "what about me")) == [
        "name called",
        "shouldRespond: IGNORE",
    ]


async def test_an_open_question_is_asked_about_where_the_agent_takes_part(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK, *TALK, *TALK, *TALK)
    assert await say(agent_harness, ("Di", "does anybody have a key?")) == ["not addressed"]
    await say(agent_harness, ("Cy", "Ada, hello"))
    assert await say(agent_harness, ("Di", "does anybody have a key?")) == ["shouldRespond: IGNORE"]
    assert await say(agent_harness, ("Di", "Does anybody have a car, Bo?")) == ["not addressed"]


async def test_what_the_model_decides_teaches_whether_estimates_are_too_high_in_a_room(
    agent_harness: AgentHarness,
) -> None:
    attention, agent = Attention(), agent_harness.agent
    await say(agent_harness, *TALK, ("Bo", "Ada, is it late?"))
    turn = make_turn(agent, "yes, I think so", author="Cy", kind=GROUP)
    first = await attention.judge(turn, Responsiveness.BALANCED)
    for _ in range(20):
        attention.note_decision(turn, is_addressed=False)
    second = await attention.judge(turn, Responsiveness.BALANCED)
    assert second.probability < first.probability / 5
    assert second.text.split(": ")[1].startswith("the model recently decided that such messages were not for Ada")
    room = attention._rooms[turn.room.id]
    assert room.decided_correction(room.heard[turn.message.id]) == -MAX_EXCESS_CORRECTION
    for _ in range(20):
        attention.note_decision(turn, is_addressed=True)
    assert (await attention.judge(turn, Responsiveness.BALANCED)).probability == pytest.approx(first.probability)


async def test_after_a_restart_the_talk_is_read_from_the_store() -> None:
    store = InMemoryStore()
    async with running_agent(model=ScriptedModel(write), store=store) as harness:
        await say(harness, *TALK, *TALK)
    async with running_agent(model=ScriptedModel(write), store=store) as harness:
        assert await say(harness, ("Bo", "Cy: good")) == ["not addressed"]
        assert asked(harness) == 0


async def test_two_bots_in_a_room_know_which_of_them_is_meant(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK)
    await agent_harness.send("I am here.", author="Robo", kind=GROUP, is_bot=True)
    assert await say(agent_harness, ("Bo", "Robo: what is the time?")) == ["not addressed"]
    assert await say(agent_harness, ("Bo", "Ada, and what do you say?")) == ["name called"]


async def test_what_people_object_to_makes_the_agent_more_reserved_within_bounds(agent_harness: AgentHarness) -> None:
    attention, agent = Attention(), agent_harness.agent
    await say(agent_harness, *TALK, ("Bo", "Ada, is it late?"))
    turn = make_turn(agent, "and the other one", author="Bo", kind=GROUP)
    await agent.store.memories.add([turn.message])
    first = await attention.judge(turn, Responsiveness.BALANCED)
    for number in range(20):
        objection = make_turn(agent, f"not you {number}", author="Bo", kind=GROUP)
        attention.hear(objection, ParticipantState.DEFAULT)
    room = attention._rooms[turn.room.id]
    assert -MAX_CORRECTION <= room.correction < 0
    assert (await attention.judge(turn, Responsiveness.BALANCED)).probability < first.probability


async def test_a_reaction_to_the_agents_message_corrects_its_room(agent_harness: AgentHarness) -> None:
    attention, agent = Attention(), agent_harness.agent
    await say(agent_harness, *TALK, ("Bo", "Ada, is it late?"))
    turn = make_turn(agent, "hm", author="Bo", kind=GROUP)
    await attention.judge(turn, Responsiveness.BALANCED)
    memory = next(item for item in await agent.store.memories.recent(turn.room.id) if item.entity_id == agent.id)
    thumb = replace(turn.message, content=Content(text="👎", in_reply_to=memory.id))
    attention.note_reaction(ReactionReceived(agent.id, thumb, turn.room, turn.author))
    assert attention._rooms[turn.room.id].correction < 0
    for _ in range(100):
        attention.note_reaction(ReactionReceived(agent.id, thumb, turn.room, turn.author))
    assert attention._rooms[turn.room.id].correction == -MAX_CORRECTION


async def test_a_burst_in_a_group_takes_a_single_decision_and_gets_a_single_reply() -> None:
    gate = asyncio.Event()

    async def slow(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            await gate.wait()
            return RESPOND
        return model_answer("Hello all.")

    async with running_agent(model=ScriptedModel(slow)) as harness:
        receipts = [
            await harness.submit(f"part {number}?", author=f"P{number % 3}", kind=GROUP) for number in range(20)
        ]
        gate.set()
        outcomes = [await harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts]
        await harness.agent.outbox.drain(5)
        replies = sum(request.purpose is Purpose.REPLY for request in harness.model.requests)
        assert asked(harness) == 1
        assert replies <= 2
        assert {receipt.outcome.value for receipt in outcomes} <= {"answered", "superseded"}
        assert len(harness.texts) == 1


BRUNO = ("Bruno", "Which one do you mean?")


async def bot_says(harness: AgentHarness, author: str, text: str) -> None:
    """Send a line that another bot writes to the group."""
    receipt = await harness.send(text, author=author, kind=GROUP, is_bot=True)
    assert receipt.rule == "RESPOND_TO_BOTS"


async def test_a_line_that_names_another_bot_is_passed_over_without_asking(agent_harness: AgentHarness) -> None:
    await bot_says(agent_harness, *BRUNO)
    receipt = await agent_harness.send("Bruno, what is the weather?", author="Cy", kind=GROUP)
    assert (receipt.rule, asked(agent_harness)) == ("not addressed", 0)
    assert "it is for another bot here" in receipt.reason


async def test_a_line_that_names_no_bot_is_for_the_bot_that_spoke_to_its_author_last(
    agent_harness: AgentHarness,
) -> None:
    await bot_says(agent_harness, *BRUNO)
    await say(agent_harness, ("Cy", "Bruno, can you find the parcel?"))
    await bot_says(agent_harness, *BRUNO)
    assert await say(agent_harness, ("Cy", "the red one")) == ["not addressed"]
    assert asked(agent_harness) == 0
    await say(agent_harness, ("Cy", "Ada, can you find the parcel?"))
    assert await say(agent_harness, ("Cy", "the red one")) != ["not addressed"]


QUESTION = ("Bo", "does anyone know where the parcel is?")


async def bot_answers(harness: AgentHarness, person: str, text: str = "In Graz.") -> None:
    """Send a line with which another bot replies to a person of the group."""
    mention = MentionContext(replies_to=derived_id("test", "entity", person))
    answer = Content(text=text, source="test", mention=mention)
    await harness.send(answer, author="Bruno", kind=GROUP, is_bot=True)


async def test_a_question_to_all_is_left_to_the_bot_that_answered_last(agent_harness: AgentHarness) -> None:
    await say(agent_harness, ("Cy", "Ada, can you help?"), *TALK, QUESTION)
    await bot_answers(agent_harness, "Bo")
    before = asked(agent_harness)
    receipt = await agent_harness.submit(QUESTION[1], author="Bo", kind=GROUP)
    await bot_answers(agent_harness, "Bo")
    closed = await agent_harness.agent_runtime.inbox.wait_outcome(receipt.id)
    assert (closed.rule, closed.reason) == ("not addressed", "another bot here has answered it")
    assert asked(agent_harness) == before


async def test_a_question_to_all_is_considered_when_the_other_bot_had_its_time(
    agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.pipeline.attention.MIN_BOT_SECONDS", 0.0)
    await say(agent_harness, ("Cy", "Ada, can you help?"), *TALK, QUESTION)
    await bot_answers(agent_harness, "Bo")
    assert await say(agent_harness, QUESTION) == ["shouldRespond: IGNORE"]


async def test_when_another_process_has_sent_the_agents_line_is_read_from_the_store(
    agent_harness: AgentHarness,
) -> None:
    attention, agent = Attention(), agent_harness.agent  # which is notified of nothing that is sent
    await attention.judge(make_turn(agent, "hello", author="Bo", kind=GROUP), Responsiveness.BALANCED)
    turn = make_turn(agent, "Ada, where is the parcel?", author="Bo", kind=GROUP)
    attention.hear(turn, ParticipantState.DEFAULT)
    await agent_harness.send("Ada, where is the parcel?", author="Bo", kind=GROUP)
    turn.replies = [item for item in await agent.store.memories.recent(turn.room.id) if item.entity_id == agent.id]
    attention.hear_replies(turn)
    mention = MentionContext(replies_to=derived_id("test", "entity", "Bo"))
    answer = Content(text="In Graz.", source="test", mention=mention)
    attention.hear(make_turn(agent, answer, author="Bruno", kind=GROUP, is_bot=True), ParticipantState.DEFAULT)
    question = make_turn(agent, QUESTION[1], author="Bo", kind=GROUP)
    attention.hear(question, ParticipantState.DEFAULT)
    await attention.judge(question, Responsiveness.BALANCED)
    [bot] = attention._rooms[turn.room.id].heard[question.message.id].bots_before
    assert bot == str(derived_id("test", "entity", "Bruno"))


async def test_what_a_bot_announces_leaves_questions_to_all_as_they_were(agent_harness: AgentHarness) -> None:
    await say(agent_harness, *TALK)
    for text in ("Bo, you have reached level 5!", "Now playing: The Tide", *[BRUNO[1]] * 3):
        await bot_says(agent_harness, "Bruno", text)
        assert await say(agent_harness, QUESTION) == ["shouldRespond: IGNORE"]


@pytest.mark.long
async def test_of_two_bots_in_a_room_each_line_is_answered_by_the_bot_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.pipeline.attention.MIN_BOT_SECONDS", 0.1)
    counts = await play_two_bots(rooms=4)
    assert counts["lines"] > 100
    assert counts["answered by that bot"] == counts["for a bot"]
    assert counts["answered by the other"] == counts["answered among people"] == 0
    assert counts["to all, answered by nobody"] == 0
    assert counts["asked though another bot was meant"] <= counts["for a bot"] / 10
