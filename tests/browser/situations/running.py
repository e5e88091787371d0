"""Bots in trouble: what a person would click to find the cause of each, and a server on which many run at once."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientSession

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import Limits as DiscordLimits
from adapters.discord.emulator import Emulator as DiscordEmulator
from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits as TelegramLimits
from adapters.telegram.emulator import Emulator as TelegramEmulator
from adapters.web.adapter import WebAdapter
from adapters.web.config import WebSettings
from adapters.x.adapter import XAdapter
from adapters.x.emulator import Emulator as XEmulator
from adapters.x.emulator.server import NEUTRAL_SETTINGS
from bot import AgentConfig, Character, Clock, Plugin, Runtime, Settings, system_clock
from bot.logs import configure_logging
from bot.models import Purpose, TextRequest
from bot.platform import AgentHandle, DeliveryState
from bot.prompts import parse_history
from bot.settings import Layer
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.web.conftest import TOKEN, EchoModel, RunningServer

FIRST_BOT = 1_000_001
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Click:
    """A visible link, button or row that a person would choose: the first whose name contains `name`."""

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Something that keeps the bot from answering as it should, and the sentence that says why.

    The sentence is on the overview, or on the page to which `clicks` lead from there; in the item of a list or
    table that names what it is `about`, if that is given.
    """

    name: str
    cause: str
    clicks: tuple[Click, ...] = ()
    about: str = ""


def link(name: str) -> Click:
    """Return the click on a link."""
    return Click("link", name)


def silence(name: str, cause: str) -> Situation:
    """Return a situation that "Silences by rule" lists: one click leads to a receipt with the whole sentence."""
    shown = cause.removeprefix("Stayed silent: ")
    return Situation(name, cause, (link(shown[:1].upper() + shown[1:]),))


def in_room(name: str, room: str, text: str, cause: str) -> Situation:
    """Return a situation that the receipt of a message shows: the rooms, the room, the message."""
    return Situation(name, cause, (link("Rooms"), link(room), link(text)))


def echo(request: TextRequest) -> str:
    """Echo the last message, and decide to answer every message."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>why not</reasoning><action>RESPOND</action></response>"
    lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    return model_answer(f"You said: {lines[-1]}" if lines else "Hello.")


@dataclass(slots=True)
class Bot:
    """A character to run: its model, plugins, settings, and the platform on which it has an account.

    `prepare` changes its emulated platform before it connects. Without a platform it is reached by the API only.
    """

    name: str
    platform: str = ""
    prepare: Callable[[Any], object] = lambda emulator: None
    script: Any = echo
    plugins: tuple[Plugin, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    has_model: bool = True
    store: Any = None
    clock: Clock = system_clock
    emulator: Any = None


@dataclass(frozen=True, slots=True)
class Group:
    """Situations of bots that run in one process; `open` runs these and brings the situations about."""

    name: str
    open: Callable[[], AbstractAsyncContextManager["Running"]]
    situations: Sequence[Situation]


class Running:
    """A running process with its web app, and what people do to it."""

    def __init__(self, server: RunningServer, bots: Sequence[Bot]) -> None:
        self.server = server
        self.bots = {bot.name: bot for bot in bots}

    def handle(self, name: str) -> AgentHandle:
        """Return the handle of a bot."""
        return next(handle for handle in self.server.runtime.handles if handle.character.name == name)

    async def write(self, bot: str, *texts: str, **fields: Any) -> None:
        """Write to a bot by the API, each message after the outcome of the one before."""
        for text in texts:
            await self.server.send(text, agent=bot, **fields)

    def say(self, bot: str, person: str, text: str, **fields: Any) -> Any:
        """Write to a bot in a private chat on its Telegram; return the message."""
        people = self.bots[bot].emulator.people
        user = people.add_user(person)
        return people.say(people.open_private_chat(user), user, text, **fields)

    async def settle(self, bot: str, count: int) -> None:
        """Wait until `count` messages of a bot have their outcome, and each part of a reply was tried."""
        [runtime] = [item for item in self.server.runtime.agents if item.agent.character.name == bot]
        ledger = runtime.agent.store.ledger

        async def is_settled() -> bool:
            receipts, parts = await ledger.receipts(limit=200), await ledger.deliveries()
            is_tried = all(part.cause or part.state is DeliveryState.SENT for part in parts)
            return is_tried and sum(receipt.outcome.is_final for receipt in receipts) >= count

        await self.wait(is_settled)

    async def wait(self, is_so: Callable[[], Awaitable[object]]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if await is_so():
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def wait_for(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so."""

        async def check() -> object:
            return is_so()

        await self.wait(check)


@asynccontextmanager
async def run_bots(*bots: Bot) -> AsyncIterator[Running]:
    """Run bots in one process, each on an emulated platform of its own, with the web app for all of them."""
    async with AsyncExitStack() as stack:
        stack.enter_context(keep_log())
        folder = stack.enter_context(TemporaryDirectory(prefix="situations-"))
        configs = []
        for number, bot in enumerate(bots):
            if bot.platform:
                bot.emulator = await stack.enter_async_context(EMULATORS[bot.platform]())
                bot.prepare(bot.emulator)
            account = ACCOUNTS[bot.platform](bot, number) if bot.platform else {}
            common = {"SERVER_PORT": "0", "SERVER_TOKEN": TOKEN, "STREAMING": "false", "AI_NOTICE": "off"}
            common["BOT_DATA_DIR"] = folder
            settings = Settings([Layer("the test", {**common, **account, **bot.settings})])
            plugins = (bootstrap, *((ScriptedModel(bot.script).plugin,) if bot.has_model else ()), *bot.plugins)
            character = Character(name=bot.name, settings=dict(bot.rules))
            configs.append(AgentConfig(character, plugins, settings, bot.store, bot.clock))
        runtime = await stack.enter_async_context(Runtime(configs))
        session = await stack.enter_async_context(ClientSession())
        for platform, build in ADAPTERS.items():
            names = [bot.name for bot in bots if bot.platform == platform]
            handles = [handle for handle in runtime.handles if handle.character.name in names]
            if handles:
                await runtime.connect(build(handles))
        web = WebAdapter(runtime.handles, configs[0].settings.load(WebSettings), TOKEN)
        await runtime.connect(web)
        yield Running(RunningServer(runtime, web, EchoModel(), session), bots)


@contextmanager
def keep_log() -> Iterator[None]:
    """Store the log for the page of the Console, and write it nowhere else."""
    with open(os.devnull, "wb") as nowhere, configure_logging(fd=nowhere.fileno()):
        yield


def _telegram_account(bot: Bot, number: int) -> dict[str, str]:
    emulator = bot.emulator
    record = emulator.add_bot(f"{FIRST_BOT + number}:not-a-real-token", name=bot.name)
    return emulator.settings(record)  # type: ignore[no-any-return]  # it is str to str


def _discord_account(bot: Bot, number: int) -> dict[str, str]:
    state = bot.emulator.state
    owner, token = state.add_user("Kim"), f"only-for-tests-{number}"
    for other in range(number):  # so that each bot has an id of its own
        state.add_user(f"Person {other}")
    state.add_channel(state.add_guild("Harbour", owner, [bot.emulator.add_bot(bot.name, token)]), "quay")
    return {"DISCORD_API_TOKEN": token, "DISCORD_API_BASE_URL": bot.emulator.url}


def _x_account(bot: Bot, number: int) -> dict[str, str]:
    for other in range(number):  # so that each account has an id of its own
        bot.emulator.state.user_id_of(f"person_{other}")
    return {**NEUTRAL_SETTINGS, **bot.emulator.environment_of(bot.emulator.add_account(bot.name.lower()))}


EMULATORS: Mapping[str, Any] = {"telegram": TelegramEmulator, "discord": DiscordEmulator, "x": XEmulator}
ACCOUNTS = {"telegram": _telegram_account, "discord": _discord_account, "x": _x_account}
ADAPTERS: Mapping[str, Callable[[Sequence[AgentHandle]], Any]] = {
    "telegram": lambda handles: TelegramAdapter(
        handles, limits=TelegramLimits(response_timeout=2.0, poll_seconds=5, webhook_check_seconds=1.0)
    ),
    "discord": lambda handles: DiscordAdapter(handles, limits=DiscordLimits(guild_ready_timeout=0.02)),
    "x": lambda handles: XAdapter(handles),
}
