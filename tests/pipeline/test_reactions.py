"""Reactions in place of words: when one is set, replaced and removed, and that each is set once."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bot import Content, MemoryKind, Outcome
from bot.domain.environment import ChannelType
from bot.domain.reactions import ReactionSet, vote_of
from bot.models.types import Purpose, TextRequest
from bot.platform import DeliveryKind, DeliveryUnknown, NotSent
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent

pytestmark = pytest.mark.usefixtures("nothing_held_back")
GROUP = ChannelType.GROUP
REACT = "<response><reasoning>thanks</reasoning><action>REACT</action><emoji>{}</emoji></response>"


def decide(text: str) -> Callable[[TextRequest], str]:
    """Return a script that answers the question whether to respond with a text, and everything else with words."""
    return lambda request: text if request.purpose is Purpose.SHOULD_RESPOND else model_answer("Words.")


def react(emoji: str, text: str = "") -> str:
    actions = ["REPLY", "REACT"] if text else ["REACT"]
    return model_answer(text, actions=actions, parameters={"REACT": {"emoji": emoji}} if text else {"emoji": emoji})


@pytest.fixture
def adapter() -> RecordingAdapter:
    return RecordingAdapter(reactions=ReactionSet())


def emojis(adapter: RecordingAdapter) -> list[str]:
    return [delivery.content.text for delivery in adapter.reacted]


@pytest.mark.parametrize(
    ("listed", "wanted", "found"),
    [
        ((), "👍", "👍"),
        ((), "REACT with 👩🏽‍💻!", "👩🏽‍💻"),
        ((), "nothing", ""),
        ((), "<b>5</b>", ""),
        (("👍", "❤", "🔥"), "❤️", "❤"),
        (("👍", "❤", "🔥"), "🎉", "🔥"),
        (("⭐",), "😂", "⭐"),
        (("❤",), "💩", ""),
        (("👍",), "🤔", ""),
    ],
)
def test_the_nearest_reaction_of_a_platform_is_found(listed: tuple[str, ...], wanted: str, found: str) -> None:
    assert ReactionSet(listed).find(wanted) == found


def test_a_custom_emoji_is_found_by_its_name() -> None:
    reactions = ReactionSet(custom={"party_cat": "party_cat:1"})
    assert [reactions.find(text) for text in (":Party_Cat:", "party_cat", "👍", "dog")] == ["party_cat:1"] * 2 + [
        "👍",
        "",
    ]


def test_a_reaction_likes_or_dislikes_a_message_or_says_neither() -> None:
    assert [vote_of(emoji) for emoji in ("👍🏿", "❤️", "🔥", "👎", "💩", "🤔", "party_cat:1")] == [1, 1, 1, -1, -1, 0, 0]


async def test_the_model_that_decides_may_react_in_place_of_words(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(decide(REACT.format("👍"))), adapter=adapter) as harness:
        receipt = await harness.send("it works now", kind=GROUP)
        assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "shouldRespond: REACT")
        assert "it reacted with 👍" in receipt.notes
        [delivery] = adapter.reacted
        assert (delivery.kind, delivery.reply_to) == (DeliveryKind.REACTION, receipt.key.message_id)
        assert harness.texts == []
        [memory] = await harness.agent.store.memories.recent(receipt.room_id, 5, kind=MemoryKind.REACTION)
        assert (memory.entity_id, memory.source_id) == (harness.agent.id, receipt.memory_id)
        assert len(harness.model.requests) == 1


@pytest.mark.parametrize("emoji", ["", "words", "💩"])
async def test_a_decision_for_a_reaction_that_the_platform_lacks_is_silence(emoji: str) -> None:
    adapter = RecordingAdapter(reactions=ReactionSet(("❤",)))
    async with running_agent(model=ScriptedModel(decide(REACT.format(emoji))), adapter=adapter) as harness:
        receipt = await harness.send("it works now", kind=GROUP)
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "shouldRespond: IGNORE")
        assert adapter.attempts == []


async def test_an_answer_may_be_a_reaction_alone_without_another_model_call(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(react("🎉")), adapter=adapter) as harness:
        receipt = await harness.send("thank you, Ada")
        assert (receipt.outcome, emojis(adapter), harness.texts) == (Outcome.ANSWERED, ["🎉"], [])
        assert len([call for call in receipt.model_calls if not call.error]) == 1


async def test_an_answer_may_have_words_and_a_reaction(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(react("🎉", "At last.")), adapter=adapter) as harness:
        await harness.send("it works, Ada")
        assert (emojis(adapter), harness.texts) == (["🎉"], ["At last."])


async def test_an_impossible_reaction_alone_is_silence_and_no_error(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(react("none")), adapter=adapter) as harness:
        receipt = await harness.send("thank you, Ada")
        assert (receipt.outcome, adapter.attempts) == (Outcome.IGNORED, [])


@pytest.mark.parametrize(("limit", "expected"), [("2", 2), ("0", 0)])
async def test_reactions_in_a_room_are_limited_by_the_hour(
    adapter: RecordingAdapter, limit: str, expected: int
) -> None:
    model = ScriptedModel(react("👍"))
    async with running_agent(model=model, adapter=adapter, settings={"REACTIONS": limit}) as harness:
        outcomes = [(await harness.send(f"thanks {number}, Ada")).outcome for number in range(4)]
        assert outcomes.count(Outcome.ANSWERED) == len(adapter.reacted) == expected
        assert sum("React to the message" in request.prompt for request in model.requests) == expected


async def test_nothing_of_reactions_is_in_prompts_where_there_are_none() -> None:
    async with running_agent() as harness:
        await harness.send("hello, Ada")
        await harness.send("hello all", kind=GROUP)
        assert not any("REACT" in request.prompt for request in harness.model.requests)


@pytest.mark.usefixtures("immediate_edits")
@pytest.mark.parametrize(("second", "expected"), [("🔥", ["👍", "🔥"]), ("👍", ["👍"]), ("", ["👍", ""])])
async def test_the_answer_to_an_edit_replaces_keeps_or_removes_the_reaction(second: str, expected: list[str]) -> None:
    adapter = RecordingAdapter(reactions=ReactionSet(), can_edit=True)
    answers = [react("👍"), react(second) if second else model_answer("Words.")]
    async with running_agent(model=ScriptedModel(answers), adapter=adapter, settings={"ON_EDIT": "rerun"}) as harness:
        await harness.send("it works", message_id="m1")
        inbound = make_message("it does not work", message_id="m1", sent_at=harness.agent.clock())
        edit = replace(inbound, key=replace(inbound.key, event_id="edit", revision=1))
        receipt = await harness.agent_runtime.handle.edits.submit_edit(edit)
        await harness.agent_runtime.handle.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert emojis(adapter) == expected
        assert [delivery.replaces_external_id for delivery in adapter.reacted] == ["", "👍"][: len(expected)]
        [room_id] = {delivery.room_id for delivery in adapter.reacted}
        stored = await harness.agent.store.memories.recent(room_id, 5, kind=MemoryKind.REACTION)
        assert [memory.content.text for memory in stored] == [emoji for emoji in expected[-1:] if emoji]


@pytest.mark.parametrize("fault", [NotSent("busy", retry_after=0.0), DeliveryUnknown("broken off")])
async def test_a_reaction_of_unknown_outcome_is_set_again(fault: Exception) -> None:
    adapter = RecordingAdapter(reactions=ReactionSet(), faults=[fault])
    async with running_agent(model=ScriptedModel(react("👍")), adapter=adapter) as harness:
        await harness.send("thank you, Ada")
        assert emojis(adapter) == ["👍"]
        assert len(set(adapter.attempts)) == 1


async def test_a_message_of_distress_gets_no_reaction(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(react("👍")), adapter=adapter) as harness:
        await harness.send("I want to kill myself")
        assert adapter.reacted == []


async def test_no_ai_notice_is_sent_for_a_reaction(adapter: RecordingAdapter) -> None:
    model = ScriptedModel([react("👍"), model_answer("Words.")])
    async with running_agent(model=model, adapter=adapter, settings={"AI_NOTICE": "first"}) as harness:
        await harness.send(Content(text="thank you, Ada"))
        assert harness.texts == []
        await harness.send("and now?")
        assert [delivery.kind for delivery in adapter.sent] == [DeliveryKind.NOTICE, DeliveryKind.REPLY]
