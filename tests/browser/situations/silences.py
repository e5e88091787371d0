"""Messages that are not answered, for reasons of the room, the person, the limits or the model's decision."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bot.models import Purpose, TextRequest, TextResult, Usage
from bot.testing import model_answer
from tests.browser.situations.running import Bot, Group, Running, echo, run_bots, silence

PRICES = {"MODEL_PRICES": "scripted=100/100"}
TEXTS = ("Hello", "Hello again", "And once more", "Anybody?")
QUIET = "<response><reasoning>not addressed</reasoning><action>{}</action></response>"


def decide(action: str) -> Any:
    """Return a model that decides about each message in this way."""

    def script(request: TextRequest) -> str:
        return QUIET.format(action) if request.purpose is Purpose.SHOULD_RESPOND else echo(request)

    return script


def unreadable(request: TextRequest) -> str:
    """Decide nothing."""
    return "I am not sure." if request.purpose is Purpose.SHOULD_RESPOND else echo(request)


def keep_silent(request: TextRequest) -> str:
    """Choose to say nothing."""
    return model_answer("", actions=("IGNORE",))


def repeat(request: TextRequest) -> str:
    """Write the same each time."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return echo(request)
    return model_answer("As I said: no, and that is all that I have to say about this.")


def expensive(request: TextRequest) -> TextResult:
    """Take tokens that cost more than a dollar."""
    return TextResult(model_answer("Dear."), "scripted", Usage(20_000, 100))


BOTS = (
    Bot("Muted", "telegram"),
    Bot("Ignoring", "telegram", script=decide("IGNORE")),
    Bot("Stopped", "telegram", script=decide("STOP")),
    Bot("Unsure", "telegram", script=unreadable),
    Bot("Quiet", script=keep_silent),
    Bot("Repeating", "telegram", script=repeat),
    Bot("Person", settings={"MESSAGES_PER_PERSON": "1"}),
    Bot("Room", settings={"MESSAGES_PER_ROOM": "1"}),
    Bot("Server", settings={"MESSAGES_PER_WORLD": "1"}),
    Bot("Bots", "telegram"),
    Bot("Dear", script=expensive, settings={**PRICES, "BUDGET_USD_PER_ROOM": "1.5"}),
    Bot("Dearer", script=expensive, settings={**PRICES, "BUDGET_USD_PER_PERSON": "1.75"}),
    Bot("Wordy", script=expensive, settings={"BUDGET_TOKENS": "20050"}),
    Bot("Elsewhere", "telegram", settings={"TELEGRAM_ALLOWED_CHATS": "-1"}),
)


@asynccontextmanager
async def open_silences() -> AsyncIterator[Running]:
    """Run bots that keep silent, and write to each."""
    async with run_bots(*BOTS) as running:
        for name in ("Quiet", "Person", "Room", "Server", "Dear", "Dearer", "Wordy"):
            await running.write(name, *TEXTS, room=f"Room of {name}")
        for name in ("Ignoring", "Stopped", "Unsure", "Bots"):
            say_in_group(running, name, "Shall we go?", is_bot=name == "Bots")
            await running.settle(name, 1)
        running.say("Elsewhere", "Kim", "Hello?")
        await running.settle("Elsewhere", 1)
        chat, owner = say_in_group(running, "Repeating", TEXTS[0])
        for number, text in enumerate(TEXTS[1:], 1):
            await running.settle("Repeating", number)
            running.bots["Repeating"].emulator.people.say(chat, owner, text)
        await running.settle("Repeating", len(TEXTS))
        chat, owner = say_in_group(running, "Muted", "Hello")
        await running.settle("Muted", 1)
        emulator = running.bots["Muted"].emulator
        emulator.people.say(chat, owner, "/mute", entities=[{"type": "bot_command", "offset": 0, "length": 5}])
        await running.wait_for(lambda: len(emulator.recorder.texts()) == 2)
        emulator.people.say(chat, owner, "Is anybody here?")
        await running.settle("Muted", 2)
        yield running


def say_in_group(running: Running, bot: str, text: str, *, is_bot: bool = False) -> tuple[Any, Any]:
    """Write in a new group of a bot's Telegram, as its owner; return the group and the owner."""
    people = running.bots[bot].emulator.people
    owner = people.add_user("Kim", is_bot=is_bot)
    chat = people.add_group(f"Group of {bot}", owner, owner=owner)
    people.say(chat, owner, text)
    return chat, owner


GROUP = Group(
    "silences",
    open_silences,
    [
        silence("the room is muted", "Stayed silent: the room is muted"),
        silence(
            "the model finds the bot not addressed", "Stayed silent: the model decided that Ignoring was not addressed"
        ),
        silence("the bot was asked to be quiet", "Stayed silent: the model decided that Stopped was asked to be quiet"),
        silence("the decision is unreadable", "Stayed silent: the model's decision could not be read"),
        silence("the character chose silence", "Stayed silent: Quiet chose not to answer"),
        silence("the answer would be a repetition", "Stayed silent: the answer would have repeated earlier ones"),
        silence("one person writes too much", "Stayed silent: too many messages from one person in a minute"),
        silence("too much is written in a room", "Stayed silent: too many messages in this room in a minute"),
        silence("too much is written on a server", "Stayed silent: too many messages on this server in a minute"),
        silence("another bot wrote", "Stayed silent: another bot wrote it"),
        silence("a room's budget is spent", "Stayed silent: today's limit of $1.50 is used up"),
        silence("a person's budget is spent", "Stayed silent: today's limit of $1.75 is used up"),
        silence("the budget of tokens is spent", "Stayed silent: today's limit of 20,050 tokens is used up"),
        silence("the chat is not allowed", "Stayed silent: TELEGRAM_ALLOWED_CHATS forbids answering here"),
    ],
)
