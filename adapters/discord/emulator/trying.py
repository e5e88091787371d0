"""A small town to try a character in: what `bot run --emulate discord` puts up in the place of Discord."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from adapters.discord.emulator.server import Emulator
from bot import Trial

# What is meant for the real Discord: its channels are not here.
ELSEWHERE = {"CHANNEL_IDS": "", "DISCORD_LISTEN_CHANNEL_IDS": ""}


@asynccontextmanager
async def emulated(names: Sequence[str], *, port: int = 0) -> AsyncIterator[Trial]:
    """Put up a town with a server, two people and these characters, as long as the block lasts.

    `settings` are to be put over those of each character; the page is for whoever wants to talk there.
    """
    async with Emulator(port=port) as emulator:
        town = emulator.town
        kim, robin = town.add_user("Kim"), town.add_user("Robin")
        tokens = {name: f"emulated-token-{number}" for number, name in enumerate(names)}
        bots = [emulator.add_bot(name, token) for name, token in tokens.items()]
        guild = town.add_guild("Harbour", kim, [robin, *bots])
        for channel in ("general", "quay"):
            town.add_channel(guild, channel)
        for bot in bots:
            direct = town.add_channel(None, f"{town.users[bot]['global_name']} and Kim", 1)
            town.channels[direct]["recipients"] = [town.users[kim]]
            town.alone[direct] = bot
        settings = {
            name: {**ELSEWHERE, "DISCORD_API_TOKEN": token, "DISCORD_API_BASE_URL": emulator.url}
            for name, token in tokens.items()
        }
        yield Trial(f"{emulator.url}/", settings)
