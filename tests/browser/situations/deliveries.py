"""Replies that do not arrive."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.discord.emulator import Fault as DiscordFault
from adapters.telegram.emulator import Fault, build_refusal, too_many_requests
from adapters.x.emulator import Fault as XFault
from tests.browser.situations.accounts import ENDLESS
from tests.browser.situations.running import Bot, Group, Running, Situation, link, run_bots

SENDING = "POST /2/tweets"


def refuse(code: int, text: str) -> Any:
    """Return what makes Telegram refuse each message of a bot."""
    return lambda emulator: emulator.faults.append(Fault("sendMessage", code, build_refusal(code, text), times=ENDLESS))


def refuse_on_discord(status: int, code: int, text: str) -> Any:
    """Return what makes Discord refuse each message of a bot."""
    fault = DiscordFault("POST .*/messages$", status, {"code": code, "message": text}, times=ENDLESS)
    return lambda emulator: emulator.faults.append(fault)


def refuse_on_x(status: int, text: str) -> Any:
    """Return what makes X refuse each post."""
    body = f'{{"title": "Forbidden", "detail": "{text}", "status": {status}}}'
    return lambda emulator: emulator.add_faults(*[XFault(SENDING, status=status, body=body) for _ in range(20)])


def lose(emulator: Any) -> None:
    """Show each message, and answer with an error."""
    emulator.faults.append(Fault("sendMessage", 500, "oops", times=ENDLESS, is_late=True))


def limit(emulator: Any) -> None:
    """Ask for a pause before each message."""
    emulator.faults.append(too_many_requests("sendMessage", 600, times=ENDLESS))


HOLD = {"TELEGRAM_UNCLEAR": "hold"}
TELEGRAM = (
    Bot("Blocked", "telegram", refuse(403, "Forbidden: bot was blocked by the user")),
    Bot("Gone", "telegram", refuse(400, "Bad Request: chat not found")),
    Bot("Expelled", "telegram", refuse(403, "Forbidden: bot was kicked from the supergroup chat")),
    Bot("Silenced", "telegram", refuse(400, "Bad Request: not enough rights to send text messages to the chat")),
    Bot("Held", "telegram", lose, settings=HOLD),
    Bot("Limited", "telegram", limit),
    Bot("Down", "telegram", lambda emulator: emulator.faults.append(Fault("sendMessage", 502, "oops", times=ENDLESS))),
)
DISCORD = (
    Bot("Forbidden", "discord", refuse_on_discord(403, 50013, "Missing Permissions")),
    Bot("Closed", "discord", refuse_on_discord(403, 50007, "Cannot send messages to this user")),
)
X = (Bot("Double", "x", refuse_on_x(403, "You are not allowed to create a Tweet with duplicate content.")),)


@asynccontextmanager
async def open_deliveries() -> AsyncIterator[Running]:
    """Run bots whose replies do not arrive, and write to each."""
    async with run_bots(*TELEGRAM, *DISCORD, *X) as running:
        for bot in TELEGRAM:
            running.say(bot.name, "Kim", f"hello {bot.name}")
        for bot in DISCORD:
            emulator = bot.emulator
            await running.wait_for(lambda emulator=emulator: emulator.recorder.counts["ready"])
            [channel] = [number for number, item in emulator.state.channels.items() if item.get("name") == "quay"]
            [kim] = [number for number, item in emulator.state.users.items() if item["global_name"] == "Kim"]
            [own] = emulator.state.tokens.values()
            await emulator.people.say(channel, kim, f"<@{own}> hello {bot.name}")
        for bot in X:
            bot.emulator.say("kim", f"@{bot.name.lower()} hello {bot.name}")
        for bot in (*TELEGRAM, *DISCORD, *X):
            await running.settle(bot.name, 1)
        yield running


def failed(name: str, bot: str, cause: str) -> Situation:
    """Return a situation that the list of failed parts shows."""
    return Situation(name, cause, (link("Look: "),), about=f"hello {bot}")


GROUP = Group(
    "deliveries",
    open_deliveries,
    [
        failed("Telegram: the person has blocked the bot", "Blocked", "bot was blocked by the user"),
        failed("Telegram: the chat is gone", "Gone", "Chat not found"),
        failed("Telegram: the bot was expelled", "Expelled", "bot was kicked from the supergroup chat"),
        failed("Telegram: the bot may not write", "Silenced", "Not enough rights to send text messages"),
        failed("Discord: a permission is missing", "Forbidden", "give it the permissions View Channel, Send Messages"),
        failed("Discord: the person takes no messages", "Closed", "Cannot send messages to this user"),
        failed("X: the post is a duplicate", "Double", "duplicate content"),
        Situation("a part is held", "it is unknown whether it arrived", (link("Decide: "),), about="hello Held"),
        Situation(
            "a part waits for a pause",
            "Telegram asks to wait for 600 s",
            (link("Waiting to be sent"),),
            about="hello Limited",
        ),
        Situation("a part is tried again", "Bad Gateway", (link("Waiting to be sent"),), about="hello Down"),
    ],
)
