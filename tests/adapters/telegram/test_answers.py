"""What people on Telegram read of actions."""

from bot import ActionResult, Plugin, Turn, action
from bot.models import Purpose, TextRequest
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness

CLOSING = "I could not book it: no table is free."


@action("BOOK", "Book a table.")
async def book(turn: Turn) -> ActionResult:
    return ActionResult(False, error="no table is free")


@action("BREAK", "Break.")
async def broken(turn: Turn) -> ActionResult:
    await turn.reply("I look into the book.")
    raise LookupError("the book is lost")


RESTAURANT = Plugin("restaurant", "Tables.", actions=[book, broken])


async def test_a_failed_action_is_told_instead_of_its_promise(open_harness: OpenHarness) -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer(CLOSING)
        name = "BREAK" if "Try again" in request.prompt else "BOOK"
        return model_answer("Done, your table is booked!", actions=["REPLY", name])

    async with open_harness(script, plugins=(RESTAURANT,)) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "A table for two, please")
        assert await harness.wait_texts(1, chat) == [CLOSING]
        await harness.wait_deliveries()
        harness.people.say(chat, alice, "Try again")
        await harness.wait_texts(3, chat)
        await harness.wait_deliveries()
        assert harness.telegram.recorder.texts(chat["id"]) == [CLOSING, "I look into the book.", CLOSING]
