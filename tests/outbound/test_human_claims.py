"""Claims to be human are replaced in what is sent, in every language; what is no claim stays."""

import pytest

from bot import Content
from bot.events import HumanClaimsReplaced
from bot.outbound.content_filter import filter_outgoing, filter_partial_text, replace_human_claims
from bot.testing import ScriptedModel, model_answer, running_agent

CLAIMS = (
    ("I'm a real person", "I am an AI"),
    ("I'm a real person, I promise!", "I am an AI, I promise!"),
    ("No, I'm not a bot.", "No, I am an AI."),
    ("I am human.", "I am an AI."),
    ("Yes, I am a real human being and I live in Paris.", "Yes, I am an AI and I live in Paris."),
    ("i'm not an AI lol", "I am an AI lol"),
    ("I am not just a chatbot", "I am an AI"),
    ("I'm actually a human, not a bot", "I am an AI, not a bot"),
    ("You're talking to a real person.", "I am an AI."),
    ("I’m definitely not a robot", "I am an AI"),
    ("Of course I'm a living, breathing human!", "Of course I am an AI!"),
    ("I promise you that I am a real woman.", "I promise you that I am an AI."),
    ("Don't worry, I'm human.", "Don't worry, I am an AI."),
    ("I'm real, not a bot", "I am an AI"),
    ("Ich bin ein echter Mensch.", "Ich bin eine KI."),
    ("Nein, ich bin kein Bot!", "Nein, ich bin eine KI!"),
    ("Ich bin wirklich keine KI", "Ich bin eine KI"),
    ("Je suis un être humain.", "Je suis une IA."),
    ("Non, je ne suis pas un robot.", "Non, je suis une IA."),
    ("je suis une vraie personne", "je suis une IA"),
    ("Soy una persona real.", "Soy una IA."),
    ("No, no soy un bot.", "No, soy una IA."),
    ("Soy humana", "Soy una IA"),
    ("Sono una persona vera.", "Sono un'IA."),
    ("No, non sono un bot.", "No, sono un'IA."),
    ("Sou uma pessoa de verdade.", "Sou uma IA."),
    ("Não sou um robô.", "Sou uma IA."),
    ("Ik ben een echt mens.", "Ik ben een AI."),
    ("Ik ben geen bot.", "Ik ben een AI."),
    ("Jestem prawdziwym człowiekiem.", "Jestem sztuczną inteligencją."),
    ("Nie jestem botem.", "Jestem sztuczną inteligencją."),
    ("Я живой человек.", "Я — ИИ."),
    ("Нет, я не бот.", "Нет, я — ИИ."),
    ("Я — человек", "Я — ИИ"),
    ("Ben gerçek bir insanım.", "Ben bir yapay zekâyım."),
    ("Hayır, bot değilim.", "Hayır, ben bir yapay zekâyım."),
    ("私は本物の人間です。", "私はAIです。"),
    ("私はAIではありません。", "私はAIです。"),
    ("我是真人。", "我是AI。"),
    ("我不是机器人。", "我是AI。"),
    ("저는 진짜 사람이에요.", "저는 AI입니다."),
    ("저는 AI가 아니에요.", "저는 AI입니다."),
)
OTHERS = (
    "I'm not a real person.",
    "I'm an AI, not a human.",
    "I'm not human.",
    "I can't say I'm human.",
    "Do you think I'm a real person?",
    'He said "I\'m a real person" and laughed.',
    "I'm only human-like in tone.",
    "I'm not an AI expert.",
    "I'm a person of few words.",
    "If I'm human, you're a teapot.",
    "I'm talking to a human.",
    "I'm a human resources bot.",
    "I'm not a machine learning engineer.",
    "I am not pretending to be a real person.",
    "I said I'm here.",
    "I'm not saying I'm a real person.",
    "Ich bin kein Mensch.",
    "Ich bin kein KI-Experte.",
    "Ich bin nicht sicher, ob ich ein Mensch bin.",
    "Je ne suis pas humain.",
    "No soy humano.",
    "Non sono umano.",
    "Não sou humano.",
    "Ik ben geen mens.",
    "Nie jestem człowiekiem.",
    "Я не человек.",
    "Ben insan değilim.",
    "私は人間ではありません。",
    "我不是人类。",
    "저는 사람이 아니에요.",
    "Soy un bot.",
    "The robot said it was human.",
    "I like that human.",
)


@pytest.mark.parametrize(("text", "expected"), CLAIMS)
def test_a_claim_says_that_an_ai_writes(text: str, expected: str) -> None:
    replaced, count = replace_human_claims(text)
    assert replaced == expected
    assert count == 1


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_denied_doubted_quoted_or_about_others_is_no_claim(text: str) -> None:
    assert replace_human_claims(text) == (text, 0)


def test_several_claims_are_counted() -> None:
    assert replace_human_claims("I'm human. Really, I'm not a bot!") == ("I am an AI. Really, I am an AI!", 2)


def test_a_claim_is_found_behind_markup() -> None:
    filtered = filter_outgoing(Content(text="<think>hm</think>I'm a real person."))
    assert filtered is not None
    assert filtered.text == "I am an AI."


def test_a_claim_is_replaced_while_a_reply_is_written() -> None:
    assert filter_partial_text("I'm a real person, and I live in ") == "I am an AI, and I live in"


async def test_what_is_sent_and_stored_claims_nothing_and_the_claim_is_reported() -> None:
    model = ScriptedModel(model_answer("No, I'm not a bot."))
    async with running_agent(model=model) as harness:
        reports: list[HumanClaimsReplaced] = []
        harness.agent.events.subscribe(HumanClaimsReplaced, reports.append, at_once=True)
        receipt = await harness.send("Are you a bot?")
        assert harness.texts == ["No, I am an AI."]
        recent = await harness.agent.store.memories.recent(receipt.room_id)
        assert recent[-1].content.text == "No, I am an AI."
        assert [(report.room_id, report.count) for report in reports] == [(receipt.room_id, 1)]
