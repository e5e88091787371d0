"""What people on Telegram read of actions."""

import re

from bot import ActionResult, Effect, Plugin, Turn, action
from bot.models import Purpose, TextRequest
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness

CLOSING = "I could not book it: no table is free."


@action("BOOK", "Book a table.")
async def book(turn: Turn) -> ActionResult:
    return ActionResult(False, error="no table is free", authors=())


@action("BREAK", "Break.")
async def broken(turn: Turn) -> ActionResult:
    await turn.reply("I look into the book.")
    raise LookupError("the book is lost")


@action("ORDER", "Order something.")
async def order(turn: Turn) -> ActionResult:
    return ActionResult(text="order number is 88123")


@action("CREATE_ISSUE", "File an issue.")
async def create_issue(turn: Turn) -> ActionResult:
    await turn.reply("I have filed BUG-7.")
    return ActionResult(text="filed BUG-7")


@action("ASSIGN_ISSUE", "Assign the issue that was just filed.")
async def assign_issue(turn: Turn) -> ActionResult:
    return ActionResult(text="assigned to John")


@action("FIND_DEADLINE", "Find a deadline.", effect=Effect.PURE)
async def find_deadline(turn: Turn) -> ActionResult:
    return ActionResult(text="due on Friday")


RESTAURANT = Plugin("restaurant", "Tables.", actions=[book, broken, order])
TRACKER = Plugin("tracker", "Issues.", actions=[create_issue, assign_issue, find_deadline])


async def test_what_each_action_of_a_chain_did_reaches_the_person_once_in_a_single_closing_text(
    open_harness: OpenHarness,
) -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is not Purpose.SUMMARY:
            names = ["REPLY", "CREATE_ISSUE", "ASSIGN_ISSUE", "FIND_DEADLINE"]
            return model_answer("Gladly! I do that now.", actions=names)
        results = re.findall(r"^- [A-Z_]+: ok: (.+)$", request.prompt, re.MULTILINE)
        draft = "Gladly!" if "Gladly! I do that now." in request.prompt else ""
        return model_answer(f"{draft} It is {' and '.join(results)}.")

    async with open_harness(script, plugins=(TRACKER,)) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "File a bug about the login and give it to John. When is it due?")
        await harness.wait_deliveries()
        texts = harness.telegram.recorder.texts(chat["id"])
    assert texts == ["I have filed BUG-7.", "Gladly! It is assigned to John and due on Friday."]


async def test_a_failed_action_is_reported_instead_of_its_promise(open_harness: OpenHarness) -> None:
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


async def test_the_result_of_an_action_is_known_in_the_next_answer_and_in_no_other_chat(
    open_harness: OpenHarness,
) -> None:
    def script(request: TextRequest) -> str:
        if "number?" not in request.prompt:
            return model_answer("It is ordered.", actions=["REPLY", "ORDER"])
        is_known = "(your action ORDER returned, shown only to you): order number is 88123" in request.prompt
        return model_answer("It is 88123." if is_known else "I do not know.")

    async with open_harness(script, plugins=(RESTAURANT,)) as harness:
        alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
        chat, other_chat = harness.people.open_private_chat(alice), harness.people.open_private_chat(bob)
        harness.people.say(chat, alice, "Order it, please")
        await harness.wait_texts(1, chat)
        await harness.wait_deliveries()
        harness.people.say(chat, alice, "What is the number?")
        assert await harness.wait_texts(2, chat) == ["It is ordered.", "It is 88123."]
        harness.people.say(other_chat, bob, "What is the number?")
        assert await harness.wait_texts(1, other_chat) == ["I do not know."]
