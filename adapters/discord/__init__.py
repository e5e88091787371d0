"""Discord adapter: guilds are worlds, channels are rooms, users are entities."""

from adapters.discord.config import DiscordSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "discord",
    LazyImport("adapters.discord.adapter:open_discord"),
    DiscordSettings,
    needs=("DISCORD_API_TOKEN",),
    extra="discord",
    spreads_connections=True,
    libraries=("discord",),
    check=LazyImport("adapters.discord.adapter:check"),
    emulator=LazyImport("adapters.discord.emulator:start_emulator"),
    faces_setting="DISCORD_FACES",
    setup_steps=(
        "Open https://discord.com/developers/applications, press New Application, name it, press Create.",
        "Choose Bot on the left; under Privileged Gateway Intents switch on Message Content Intent; Save Changes.",
        "On the same page press Reset Token, confirm, and press Copy.",
    ),
)
