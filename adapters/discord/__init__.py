"""Discord as a platform: servers are worlds, channels are rooms, and its people are people."""

import adapters.discord.library  # noqa: F401  # before anything else asks for the library
from adapters.discord.adapter import open_discord
from adapters.discord.checks import check
from adapters.discord.config import DiscordSettings
from bot import AdapterSpec

adapter = AdapterSpec(
    "discord",
    open_discord,
    DiscordSettings,
    needs=("DISCORD_API_TOKEN",),
    extra="discord",
    check=check,
    emulator="adapters.discord.emulator",
)
