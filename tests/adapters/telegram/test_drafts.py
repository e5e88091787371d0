"""Replies on Telegram that wait for approvers in a group of theirs."""

import re
from typing import Any

from adapters.telegram.emulator import Emulator
from bot.testing import model_answer
from tests.adapters.telegram.conftest import TelegramHarness, run_character

TOKEN = "1234567:" + "a" * 35


def card_of(harness: TelegramHarness, chat: Any) -> Any:
    """Return the message that shows a draft, as it is now."""
    messages = [item for (chat_id, _), item in harness.telegram.state.messages.items() if chat_id == chat["id"]]
    return next(message for message in messages if message.get("text", "").startswith("Draft "))


def buttons_of(card: Any) -> dict[str, str]:
    """Return the values of the buttons of a message by their labels."""
    rows = card.get("reply_markup", {}).get("inline_keyboard", [])
    return {button["text"]: button["callback_data"] for row in rows for button in row}


async def test_approvers_edit_a_draft_with_a_reply_and_send_it_with_a_button() -> None:
    async with Emulator() as telegram:
        telegram.add_bot(TOKEN, reads_all=True)
        alice, bob, carol = (telegram.people.add_user(name) for name in ("Alice", "Bob", "Carol"))
        approvers = telegram.people.add_group("Approvers", carol, owner=bob)
        chat = telegram.people.open_private_chat(alice)
        settings = {
            "APPROVAL": "rooms",
            "APPROVAL_ROOMS": f"telegram:{chat['id']}",
            "OPERATORS_ROOM": f"telegram:{approvers['id']}",
        }
        script = model_answer("It is a fern.")
        async with run_character(telegram, script, settings=settings, token=TOKEN) as harness:
            harness.people.say(approvers, bob, "Good morning")
            await harness.wait_deliveries()
            harness.people.say(chat, alice, "What is this?")
            await harness.wait_deliveries()
            card = card_of(harness, approvers)
            assert "Alice: What is this?\nIt is a fern." in card["text"]
            assert list(buttons_of(card)) == ["Send", "Edit", "Drop", "Take over"]
            harness.people.press(card, carol, buttons_of(card)["Send"])  # a member decides nothing
            harness.people.say(approvers, bob, "It is a moss.", reply_to=card)
            await harness.wait_deliveries()
            assert harness.telegram.recorder.texts(chat["id"]) == []
            card = card_of(harness, approvers)
            assert "It is a moss." in card["text"]
            harness.people.press(card, bob, buttons_of(card)["Send"])
            assert await harness.wait_texts(1, chat) == ["It is a moss."]
            await harness.wait_deliveries()
            card = card_of(harness, approvers)
            assert re.search("already sent by Bob", card["text"])
            assert buttons_of(card) == {}


async def test_an_approver_takes_over_instead_of_sending_and_gives_back_with_buttons() -> None:
    async with Emulator() as telegram:
        telegram.add_bot(TOKEN, reads_all=True)
        alice, bob, carol = (telegram.people.add_user(name) for name in ("Alice", "Bob", "Carol"))
        approvers = telegram.people.add_group("Approvers", carol, owner=bob)
        chat = telegram.people.open_private_chat(alice)
        settings = {"APPROVAL": "all", "OPERATORS_ROOM": f"telegram:{approvers['id']}"}
        async with run_character(telegram, model_answer("It is a fern."), settings=settings, token=TOKEN) as harness:
            held = harness.store.take_overs.current
            harness.people.say(approvers, bob, "Good morning")
            await harness.wait_deliveries()
            harness.people.say(chat, alice, "What is this?")
            await harness.wait_deliveries()
            card = card_of(harness, approvers)
            harness.people.press(card, carol, buttons_of(card)["Take over"])  # a member decides nothing
            harness.people.press(card, bob, buttons_of(card)["Take over"])
            await telegram.recorder.wait_until(lambda: bool(held))
            assert [take_over.name for take_over in held.values()] == ["Bob"]
            await telegram.recorder.wait_until(lambda: "already dropped by Bob" in card_of(harness, approvers)["text"])
            messages = telegram.state.messages
            await telegram.recorder.wait_until(
                lambda: any("Give back" in buttons_of(item) for item in messages.values())
            )
            shown = next(item for item in messages.values() if "Give back" in buttons_of(item))
            harness.people.press(shown, bob, buttons_of(shown)["Give back"])
            await telegram.recorder.wait_until(lambda: not held)
            assert telegram.recorder.texts(chat["id"]) == []
