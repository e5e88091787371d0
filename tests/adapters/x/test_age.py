"""Posts that X marks as possibly sensitive, and a character whose content is mature; the label of posts by an AI."""

from adapters.x.emulator import Emulator
from adapters.x.outgoing import MAX_WEIGHT, text_weight
from bot import Character, Outcome
from bot.domain.character import ContentRating
from bot.domain.ledger import Rule
from bot.testing import model_answer
from tests.adapters.x.conftest import RunX

MATURE = Character(name="Ada", content=ContentRating.MATURE)
LONG = " ".join(f"This is sentence number {number} of a long answer." for number in range(14))


async def test_a_mature_character_answers_sensitive_posts_only(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(character=MATURE) as harness:
        plain = emulator.say("bob", "@greenroom_bot hello")
        sensitive = emulator.say("bob", "@greenroom_bot hello there", is_sensitive=True)
        await harness.poll()
        receipts = await harness.receipts()
        assert (receipts[plain].outcome, receipts[plain].rule) == (Outcome.IGNORED, Rule.MATURE_CONTENT)
        assert receipts[sensitive].outcome is Outcome.ANSWERED
        assert emulator.bot_texts == ["Noted."]


async def test_the_label_stands_on_the_first_post_of_a_thread_within_its_length(
    run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(model_answer(LONG), AI_NOTICE_POSTS="on") as harness:
        emulator.say("bob", "@greenroom_bot tell me everything")
        await harness.poll()
        first, *others = emulator.bot_texts
        assert first.startswith("🤖 AI: This is sentence number 0")
        assert not any(text.startswith("🤖") for text in others)
        assert all(text_weight(text) <= MAX_WEIGHT for text in emulator.bot_texts)
        assert " ".join(emulator.bot_texts).removeprefix("🤖 AI: ") == LONG
