"""Discord as a platform: servers are worlds, channels are rooms, and its people are people."""

from adapters.discord.config import DiscordSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "discord",
    LazyImport("adapters.discord.adapter:open_discord"),
    DiscordSettings,
    needs=("DISCORD_API_TOKEN",),
    extra="discord",
    libraries=("discord",),
    check=LazyImport("adapters.discord.checks:check"),
    emulator="adapters.discord.emulator",
)
