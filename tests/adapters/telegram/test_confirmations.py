"""How people on Telegram confirm what they were asked: with a button, a code or, in private, an answer."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from bot import ActionResult, Plugin, TaskTag, Turn, action
from bot.models import TextRequest
from bot.prompts import Authority, parse_history
from bot.testing import model_answer
from bot.text import user_text
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness

CHATTING = "That is another matter."


def script(request: TextRequest) -> str:
    lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    if lines and "Order tea" in lines[-1]:
        return model_answer("", actions=["ORDER"], parameters={"ORDER": {"what": "tea"}})
    return model_answer(CHATTING)


@dataclass
class Shop:
    """A chat in which Alice was asked to confirm an order, and what was ordered."""

    harness: TelegramHarness
    chat: Any
    alice: Any
    bob: Any
    orders: list[str] = field(default_factory=list)
    ordered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def question(self) -> Any:
        """The message that asks."""
        messages = self.harness.telegram.state.messages.values()
        return next(message for message in messages if "Is that right" in message.get("text", ""))

    @property
    def code(self) -> str:
        """The code in the question."""
        return re.findall(r"confirm ([A-Z0-9]{5})$", self.question["text"])[0]

    async def answer(self, text: str, author: Any = None) -> None:
        """Send a message of a person, by default Alice, and wait for its outcome."""
        self.harness.people.say(self.chat, author or self.alice, text.format(code=self.code))
        await self.harness.wait_deliveries()

    async def is_waiting(self) -> bool:
        """Return whether the order still waits for its confirmation."""
        return bool(await self.harness.store.tasks.tasks(tags={TaskTag.AWAITING_CHOICE}))

    async def wait_ordered(self) -> list[str]:
        """Wait until something was ordered, and return all orders."""
        async with asyncio.timeout(10):
            await self.ordered.wait()
        return self.orders


@asynccontextmanager
async def open_shop(
    open_harness: OpenHarness, *, confirm: Literal["answer", "code"] = "answer", in_group: bool = False
) -> AsyncIterator[Shop]:
    @action("ORDER", "Order something.", authority=Authority.confirmed(), confirm=confirm)
    async def order(turn: Turn, what: str) -> ActionResult:
        shop.orders.append(f"{what} by {turn.author.name}")
        shop.ordered.set()
        return ActionResult(text=f"ordered {what}", authors=())

    async with open_harness(script, plugins=(Plugin("shop", "Orders.", actions=[order]),)) as harness:
        alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
        chat = harness.people.add_group("Shop", alice, bob) if in_group else harness.people.open_private_chat(alice)
        shop = Shop(harness, chat, alice, bob)
        harness.people.say(chat, alice, f"{'@ada_bot ' if in_group else ''}Order tea")
        await harness.wait_deliveries()
        yield shop


YES = [
    "yes",
    "Yes!",
    "OK",
    "do it",
    "{code}",
    "Yes, {code} please",
    "👍",
    "👍🏽",
    "ja, bitte",
    "Oui !",
    "sí",
    "да",
    "はい",
]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("text", [*YES, "yes please, Ada, do it", "ada: {code}", "that’s right, thank you"])
async def test_an_answer_that_only_says_yes_confirms_in_a_private_chat(open_harness: OpenHarness, text: str) -> None:
    async with open_shop(open_harness) as shop:
        await shop.answer(text)
        assert await shop.wait_ordered() == ["tea by Alice"]
        assert CHATTING not in shop.harness.telegram.recorder.texts()


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "text", ["yes?", "yes, but coffee", "yes no", "what is {code}?", "yes AAAAA", "not yes", "is it okay"]
)
async def test_an_answer_that_says_anything_else_does_not_confirm(open_harness: OpenHarness, text: str) -> None:
    async with open_shop(open_harness) as shop:
        await shop.answer(text)
        assert await shop.is_waiting()
        assert shop.orders == []


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "text", ["no", "No, thanks!", "nein", "cancel", "don't do it", "👎", "no {code}", "нет", "いいえ"]
)
@pytest.mark.parametrize("confirm", ["answer", "code"])
async def test_an_answer_that_only_says_no_cancels_in_a_private_chat(
    open_harness: OpenHarness, text: str, confirm: Literal["answer", "code"]
) -> None:
    async with open_shop(open_harness, confirm=confirm) as shop:
        await shop.answer(text)
        assert not await shop.is_waiting()
        assert shop.harness.telegram.recorder.texts()[-1] == user_text("choices.dropped")
        await shop.answer("yes")
        assert shop.orders == []


async def test_a_yes_to_what_was_said_after_the_question_does_not_confirm_but_a_reply_to_it_does(
    open_harness: OpenHarness,
) -> None:
    async with open_shop(open_harness) as shop:
        await shop.answer("What is the weather like?")
        await shop.answer("yes")
        assert (await shop.is_waiting(), shop.orders) == (True, [])
        shop.harness.people.say(shop.chat, shop.alice, "yes", reply_to=shop.question)
        assert await shop.wait_ordered() == ["tea by Alice"]


@pytest.mark.parametrize(("emoji", "is_confirmed"), [("👍", True), ("👍🏽", True), ("👎", False), ("🤔", False)])
async def test_a_thumbs_up_on_the_question_confirms_in_a_private_chat(
    open_harness: OpenHarness, emoji: str, is_confirmed: bool
) -> None:
    async with open_shop(open_harness) as shop:
        shop.harness.people.react(shop.question, shop.alice, emoji)
        await shop.harness.wait_confirmed()
        if is_confirmed:
            assert await shop.wait_ordered() == ["tea by Alice"]
        await shop.answer("Well?")
        assert await shop.is_waiting() is not is_confirmed


async def test_what_needs_a_code_is_confirmed_by_no_yes_and_no_reaction(open_harness: OpenHarness) -> None:
    async with open_shop(open_harness, confirm="code") as shop:
        assert "answer yes" not in shop.question["text"]
        shop.harness.people.react(shop.question, shop.alice, "👍")
        await shop.answer("yes")
        await shop.answer("Yes, do it!")
        assert (await shop.is_waiting(), shop.orders) == (True, [])
        await shop.answer("{code}")
        assert await shop.wait_ordered() == ["tea by Alice"]


async def test_in_a_group_only_the_code_of_the_person_who_was_asked_confirms(open_harness: OpenHarness) -> None:
    async with open_shop(open_harness, in_group=True) as shop:
        name = "@ada_bot"
        shop.harness.people.react(shop.question, shop.alice, "👍")
        await shop.answer(f"{name} yes")
        await shop.answer(f"{name} do it, please")
        await shop.answer(f"{name} {{code}}", shop.bob)
        assert (await shop.is_waiting(), shop.orders) == (True, [])
        await shop.answer(f"{name} {{code}}")
        assert await shop.wait_ordered() == ["tea by Alice"]


async def test_the_button_confirms_in_a_group_too(open_harness: OpenHarness) -> None:
    async with open_shop(open_harness, confirm="code", in_group=True) as shop:
        [[button]] = shop.question["reply_markup"]["inline_keyboard"]
        shop.harness.people.press(shop.question, shop.bob, button["callback_data"])
        shop.harness.people.press(shop.question, shop.alice, button["callback_data"])
        assert await shop.wait_ordered() == ["tea by Alice"]
