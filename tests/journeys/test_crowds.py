"""Journeys in rooms full of strangers: what is too much stays unanswered, free of charge, and says why."""

from itertools import count

from bot import Plugin, Turn, evaluator
from bot.domain.content import Content, MentionContext
from bot.domain.ledger import Outcome
from bot.domain.places import ChannelType
from bot.testing import RecordingAdapter, ScriptedModel, answer, on_stage

NAMED = MentionContext(is_mention=True)


@evaluator("LOOK", "Looks.", always_run=True)
async def look(turn: Turn) -> None:
    await turn.agent.store.cache.set(f"seen:{turn.message.content.text}", True)


async def test_o01_a_flood_is_answered_once_told_to_slow_down_once_and_then_met_with_silence() -> None:
    model = ScriptedModel(embeds=True)
    adapter = RecordingAdapter(is_private=False)
    async with on_stage(
        Plugin("look", evaluators=[look]),
        model=model,
        adapter=adapter,
        settings={"MESSAGES_PER_PERSON": "1"},
    ) as stage:
        direct = {"room": "direct", "kind": ChannelType.DM, "author": "Ann"}
        receipts = [await stage.say(f"message {number}", **direct) for number in range(6)]
        asked = len(model.requests)
        other = await stage.say("hello", room="direct too", kind=ChannelType.DM, author="Bo")
        seen = [await stage.agent.store.cache.get(f"seen:message {number}") for number in range(6)]
    assert [one.outcome for one in receipts] == [Outcome.ANSWERED] * 2 + [Outcome.IGNORED] * 4
    assert {one.rule for one in receipts[2:]} == {"MESSAGES_PER_PERSON"}
    assert receipts[2].reason == "more than 1 messages a minute came of one person"
    assert stage.texts[:3] == [
        "Hello.",
        "Hello.",
        "That is more than I can follow. Give me a minute, please.",
    ]
    assert len(stage.texts) == 4
    assert other.outcome is Outcome.ANSWERED
    assert seen == [True] * 2 + [None] * 4
    assert asked == 2


async def test_o01_chatter_that_is_not_meant_for_it_is_let_pass_without_a_word() -> None:
    async with on_stage(
        adapter=RecordingAdapter(is_private=False), settings={"MESSAGES_PER_PERSON": "1"}
    ) as stage:
        await stage.say(Content(text="hi", mention=NAMED))
        await stage.say(Content(text="hi", mention=NAMED))
        silent = [await stage.say("did you see the game?") for _ in range(3)]
        told = [await stage.say(Content(text="hey", mention=NAMED)) for _ in range(2)]
    assert {one.outcome for one in (*silent, *told)} == {Outcome.IGNORED}
    assert len(stage.texts) == 3


async def test_o01_where_the_operator_lets_people_in_there_is_no_limit() -> None:
    async with on_stage(settings={"MESSAGES_PER_PERSON": "1"}) as stage:
        receipts = [await stage.say("hi", kind=ChannelType.DM) for _ in range(5)]
    assert {one.outcome for one in receipts} == {Outcome.ANSWERED}


async def test_o05_two_bots_that_answer_one_another_fall_silent_until_a_person_speaks() -> None:
    """Whatever it says, another bot answers it at once."""
    words = count()
    model = ScriptedModel(lambda request: answer(f"Hello, for time {next(words)}."))
    async with on_stage(settings={"RESPOND_TO_BOTS": "true"}, model=model) as stage:
        echo = {"kind": ChannelType.DM, "author": "Echo", "is_bot": True}
        receipt = await stage.say("I am a bot", **echo)
        rounds = 0
        while receipt.outcome is Outcome.ANSWERED:
            rounds += 1
            receipt = await stage.say(f"I heard: {stage.texts[-1]}", **echo)
        assert (rounds, receipt.rule) == (5, "RESPOND_TO_BOTS")
        assert receipt.reason == "bots wrote 5 messages here since a person did"
        await stage.say("stop it, you two", kind=ChannelType.DM, author="Ann")
        assert (await stage.say("I am a bot", **echo)).outcome is Outcome.ANSWERED
