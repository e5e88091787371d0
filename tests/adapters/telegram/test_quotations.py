"""The message that a message replies to is in the prompt, until its author is forgotten."""

from adapters.telegram.incoming import derive_user_id
from bot.models import Purpose
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness


async def test_a_reply_to_an_old_message_of_the_bot_shows_that_message_in_the_prompt(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"CONVERSATION_LENGTH": "4"}) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "the first question")
        await harness.wait_texts(1)
        for number in range(1, 6):
            harness.people.say(chat, alice, f"number {number}")
            await harness.wait_texts(1 + number)
        [message, *_] = harness.telegram.recorder.messages
        harness.people.say(chat, alice, "why that?", reply_to=message.message)
        await harness.wait_texts(7)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert "why that?" in prompt
    assert "You said: the first question" in prompt
    assert "\nthe first question" not in prompt  # the conversation does not reach back to it


async def test_a_person_who_was_forgotten_is_not_quoted_by_stored_replies(harness: TelegramHarness) -> None:
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    group = harness.people.add_group("The group", alice, bob)
    message_id = harness.people.say(group, bob, "@ada_bot the treasure lies under the oak")
    await harness.wait_texts(1, group)
    harness.people.say(group, alice, "@ada_bot is that so?", reply_to=message_id)
    await harness.wait_texts(2, group)
    *_, receipt = await harness.wait_receipts()
    memories = harness.store.memories
    quoted = (await memories.memories([receipt.memory_id]))[receipt.memory_id].content.render_text()
    assert quoted == "> Bob: @ada_bot the treasure lies under the oak\n@ada_bot is that so?"
    [handle] = harness.runtime.handles
    await handle.edits.erase_entity(derive_user_id(bob["id"]))
    stored = (await memories.memories([receipt.memory_id]))[receipt.memory_id].content
    assert (stored.text, stored.quotation) == ("@ada_bot is that so?", None)
