"""What a message replies to stands in the prompt."""

from bot.models import Purpose
from tests.adapters.telegram.conftest import OpenHarness


async def test_a_reply_to_an_old_message_of_the_bot_shows_that_message_in_the_prompt(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"CONVERSATION_LENGTH": "4"}) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "the first question")
        await harness.wait_texts(1)
        for number in range(1, 6):
            harness.people.say(chat, alice, f"number {number}")
            await harness.wait_texts(1 + number)
        [said, *_] = harness.telegram.recorder.messages
        harness.people.say(chat, alice, "why that?", reply_to=said.message)
        await harness.wait_texts(7)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert "why that?" in prompt
    assert "You said: the first question" in prompt
    assert "\nthe first question" not in prompt  # the conversation does not reach back to it
