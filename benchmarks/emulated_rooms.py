"""The made-up rooms of `benchmarks.seeded_rooms` on emulated platforms, with their mentions and replies."""

import asyncio
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.emulator import Emulator as EmulatedDiscord
from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.emulator import Emulator as EmulatedTelegram
from benchmarks.figures import Row
from benchmarks.seeded_rooms import PEOPLE, ROOMS, SEED, SeededMessage, TruthfulModel, format_counts, generate_room
from bot import Outcome, Receipt
from bot.events import MessageClosed
from bot.platform import Adapter, AgentHandle
from bot.testing import running_agent
from tests.adapters.telegram.conftest import SkippingClock

DISCORD_TOKEN, TELEGRAM_TOKEN = "only-for-the-benchmark", "1:only-for-the-benchmark"
NAMED = re.compile(rf"^({'|'.join(PEOPLE)}): ")
REPLY_SHARE = 0.3  # of the answers among people are replies to the message before
SETTINGS = {"STREAMING": "false", "MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


class EmulatedRooms(ABC):
    """Rooms of one platform with a bot and the people in them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.closed: asyncio.Queue[Receipt] = asyncio.Queue()

    @abstractmethod
    def open_adapter(self, handle: AgentHandle) -> Adapter:
        """Return the adapter that connects the bot."""

    @abstractmethod
    async def open_room(self, name: str) -> Any:
        """Open a room with everybody in it."""

    @abstractmethod
    def mention(self, name: str) -> str:
        """Return the platform's mention of a person, or of the bot, named Ada."""

    @abstractmethod
    def find_own(self, room: Any) -> list[Any]:
        """Return the bot's messages in a room, oldest first."""

    @abstractmethod
    async def say(self, room: Any, author: str, text: str, reply_to: Any | None) -> Any:
        """Send a message; return it, as `reply_to` takes it."""

    @abstractmethod
    async def wait_for_own(self, room: Any, count: int) -> None:
        """Wait until the bot has sent so many messages."""

    async def play(self, model: TruthfulModel) -> Counter[str]:
        """Send the messages of all rooms; return their figures."""
        counts = Counter[str]()
        for number in range(ROOMS):
            room, last, chance = await self.open_room(f"room-{number}"), None, random.Random(SEED + number)
            for message in generate_room(random.Random(SEED + number)):
                model.is_addressed = message.is_addressed
                own = self.find_own(room)
                text, reply_to = self._write(message, own, last, chance)
                last = await self.say(room, message.author, text, reply_to)
                is_answered = (await self.closed.get()).outcome is Outcome.ANSWERED
                if is_answered:
                    await self.wait_for_own(room, len(own) + 1)
                counts += message.count(is_answered=is_answered)
        return counts

    def _write(self, message: SeededMessage, own: list[Any], last: Any, chance: random.Random) -> tuple[str, Any]:
        """Return the text of a message and what it replies to, as its author would on the platform."""
        text = NAMED.sub(lambda found: f"{self.mention(found[1])} ", message.content.text)
        mention = message.content.mention
        if mention is not None and mention.is_reply and own:
            return text, own[-1]
        if mention is not None and (mention.is_mention or mention.is_reply):
            return f"{self.mention('Ada')} {text}", None
        return text, last if message.is_answer and chance.random() < REPLY_SHARE else None


class DiscordRooms(EmulatedRooms):
    """Channels of a Discord server."""

    def __init__(self, emulator: EmulatedDiscord) -> None:
        super().__init__({"DISCORD_API_TOKEN": DISCORD_TOKEN, "DISCORD_API_BASE_URL": emulator.url})
        self._emulator = emulator
        self._ids = {name: emulator.state.add_user(name) for name in PEOPLE}
        self._ids["Ada"] = emulator.add_bot("Ada", DISCORD_TOKEN)
        self._guild = emulator.state.add_guild("Harbour", self._ids[PEOPLE[0]], [*self._ids.values()])

    def open_adapter(self, handle: AgentHandle) -> Adapter:
        return DiscordAdapter([handle])

    async def open_room(self, name: str) -> str:
        await self._emulator.recorder.wait_until(lambda: self._emulator.recorder.counts["ready"] > 0)
        return await self._emulator.people.open_channel(self._guild, name)

    def mention(self, name: str) -> str:
        return f"<@{self._ids[name]}>"

    def find_own(self, room: str) -> list[str]:
        return [shown.id for shown in self._emulator.recorder.messages if shown.room == room]

    async def say(self, room: str, author: str, text: str, reply_to: str | None) -> str:
        return await self._emulator.people.say(room, self._ids[author], text, reply_to=reply_to)

    async def wait_for_own(self, room: str, count: int) -> None:
        await self._emulator.recorder.wait_for_texts(count, room)


class TelegramRooms(EmulatedRooms):
    """Groups of Telegram, in which the bot reads all messages."""

    def __init__(self, emulator: EmulatedTelegram) -> None:
        bot = emulator.add_bot(TELEGRAM_TOKEN)
        super().__init__(emulator.settings(bot))
        self._emulator = emulator
        self._users = {
            name: emulator.people.add_user(name, username=f"person_{number}") for number, name in enumerate(PEOPLE)
        }
        self._users["Ada"] = bot.user

    def open_adapter(self, handle: AgentHandle) -> Adapter:
        return TelegramAdapter([handle], time_source=SkippingClock().time_source)  # its pauses take no time

    async def open_room(self, name: str) -> Any:
        return self._emulator.people.add_group(name, *(self._users[person] for person in PEOPLE))

    def mention(self, name: str) -> str:
        return f"@{self._users[name]['username']}"

    def find_own(self, room: Any) -> list[Any]:
        return [shown.message for shown in self._emulator.recorder.messages if shown.room == room["id"]]

    async def say(self, room: Any, author: str, text: str, reply_to: Any | None) -> Any:
        return self._emulator.people.say(room, self._users[author], text, reply_to=reply_to)

    async def wait_for_own(self, room: Any, count: int) -> None:
        await self._emulator.recorder.wait_until(lambda: len(self.find_own(room)) >= count)


async def measure_emulated_rooms(platform: Literal["Discord", "Telegram"]) -> Row:
    """Return the figures of the rooms on an emulated platform."""
    model = TruthfulModel()
    async with EmulatedDiscord() if platform == "Discord" else EmulatedTelegram() as emulator:
        rooms = DiscordRooms(emulator) if isinstance(emulator, EmulatedDiscord) else TelegramRooms(emulator)
        async with running_agent(model=model, settings={**SETTINGS, **rooms.settings}) as harness:
            handle = harness.agent_runtime.handle
            handle.subscribe(MessageClosed, lambda event: rooms.closed.put_nowait(event.receipt))
            async with rooms.open_adapter(handle) as adapter:
                harness.agent.outbox.connect(adapter)
                counts = await rooms.play(model)
    return f"{ROOMS} made-up rooms, emulated {platform}", format_counts(counts, model.decisions)
