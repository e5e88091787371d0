"""The made-up rooms of `benchmarks.speaking` on the emulated Discord, with its mentions and reply buttons."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.emulator import Emulator
from benchmarks.seeded_rooms import PEOPLE, ROOMS, SEED, SeededMessage, TruthfulModel, format_counts, generate_room
from bot import Outcome, Receipt
from bot.events import MessageClosed
from bot.testing import running_agent

TOKEN = "only-for-the-benchmark"
NAMED = re.compile(rf"^({'|'.join(PEOPLE)}): ")
REPLY_SHARE = 0.3  # of the answers among people are replies to the message before
SETTINGS = {"STREAMING": "false", "MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


@dataclass(frozen=True, slots=True)
class DiscordServer:
    """An emulated server with a bot and people, by name; `closed` brings the receipt of each message."""

    emulator: Emulator
    bot: str
    people: dict[str, str]
    guild: str
    closed: asyncio.Queue[Receipt]

    async def send(self, message: SeededMessage, channel: str, chance: random.Random) -> Receipt:
        """Send a message as its author would on Discord; return its receipt."""
        recorder, people = self.emulator.recorder, self.emulator.people
        text, reply_to = NAMED.sub(lambda found: f"<@{self.people[found[1]]}> ", message.content.text), None
        own = [shown.id for shown in recorder.messages if shown.channel == channel]
        mention = message.content.mention
        if mention is not None and mention.is_reply and own:
            reply_to = own[-1]
        elif mention is not None and (mention.is_mention or mention.is_reply):
            text = f"<@{self.bot}> {text}"
        elif message.is_answer and chance.random() < REPLY_SHARE:
            reply_to = next(reversed(self.emulator.state.messages[channel]))
        await people.say(channel, self.people[message.author], text, reply_to=reply_to)
        receipt = await self.closed.get()
        if receipt.outcome is Outcome.ANSWERED:
            await recorder.wait_for_texts(len(own) + 1, channel)
        return receipt


@asynccontextmanager
async def running_server(model: TruthfulModel) -> AsyncIterator[DiscordServer]:
    """Run a bot on an emulated Discord."""
    async with Emulator() as emulator:
        bot = emulator.add_bot("Ada", TOKEN)
        people = {name: emulator.state.add_user(name) for name in PEOPLE}
        guild = emulator.state.add_guild("Harbour", people[PEOPLE[0]], [*people.values(), bot])
        settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": emulator.url, **SETTINGS}
        server = DiscordServer(emulator, bot, people, guild, asyncio.Queue())
        async with running_agent(model=model, settings=settings) as stage:
            handle = stage.agent_runtime.handle
            handle.subscribe(MessageClosed, lambda event: server.closed.put_nowait(event.receipt))
            async with DiscordAdapter([handle]) as adapter:
                stage.agent.outbox.connect(adapter)
                await emulator.recorder.wait_until(lambda: emulator.recorder.counts["ready"] > 0)
                yield server


async def measure_emulated_rooms() -> tuple[str, str]:
    """Return the figures of the rooms, each a channel."""
    counts, model = Counter[str](), TruthfulModel()
    async with running_server(model) as server:
        for number in range(ROOMS):
            channel = await server.emulator.people.open_channel(server.guild, f"room-{number}")
            chance = random.Random(SEED + number)
            for message in generate_room(random.Random(SEED + number)):
                model.is_addressed = message.is_addressed
                receipt = await server.send(message, channel, chance)
                counts += message.count(is_answered=receipt.outcome is Outcome.ANSWERED)
    return f"{ROOMS} made-up rooms on the emulated Discord", format_counts(counts, model.decisions)
