"""The variables of Discord, and the limits that nobody has to turn."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from bot import BaseUrl, Secret, Settings, SettingsModel, Words, keep_key
from bot.platform import Allowed

DEVELOPERS = "https://discord.com/developers/applications"


def _snowflakes(ids: tuple[str, ...]) -> tuple[str, ...]:
    for one in ids:
        if not (one.isascii() and one.isdigit()):
            raise ValueError(
                f"{one[:40]!r} is no id: switch on Developer Mode in Discord (Settings, Advanced), "
                "then right-click the channel and choose Copy Channel ID"
            )
    return ids


Snowflakes = Annotated[Words, AfterValidator(_snowflakes)]
Channels = Annotated[Allowed, AfterValidator(_snowflakes)]


class DiscordSettings(SettingsModel):
    """Who we are on Discord, where we speak, and when."""

    discord_api_token: Secret | None = Field(
        None, description=f"The bot's token, from {DEVELOPERS} (your application, Bot, Reset Token)."
    )
    channel_ids: Channels = Field(
        (),
        description="The only Discord channels in which to answer, threads of theirs included; all if unset.",
    )
    discord_listen_channel_ids: Snowflakes = Field(
        (), description="Discord channels in which to remember what is said, and never to answer."
    )
    discord_should_ignore_bot_messages: bool = Field(
        False, description="Whether what other bots write on Discord is not even remembered."
    )
    discord_should_ignore_direct_messages: bool = Field(
        False, description="Whether direct messages on Discord are remembered but not answered."
    )
    discord_should_respond_only_to_mentions: bool = Field(
        False,
        description="Whether to answer on Discord only if mentioned or replied to, or in a direct message.",
    )
    discord_members_intent: bool = Field(
        False,
        description="Whether to be told who joins and leaves a server; switch on Server Members Intent for "
        "the bot in the developer portal first.",
    )
    discord_api_base_url: BaseUrl = Field(
        "https://discord.com",
        description="Another server that speaks Discord's protocol, such as the emulator: without /api.",
    )


def read_settings(settings: Settings) -> DiscordSettings:
    """Read the variables; raises SettingError, also where a file would have the token sent elsewhere."""
    keep_key(settings, server="DISCORD_API_BASE_URL", key="DISCORD_API_TOKEN")
    return settings.load(DiscordSettings)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things take, and how much is asked or waits at once; times in seconds, sizes in bytes."""

    request: float = 30.0
    heartbeat: float = 60.0
    ready: float = 2.0
    full: float = 10.0
    goodbye: float = 2.0
    typing: float = 8.0
    longest_typing: float = 900.0
    longest_pause: float = 60.0
    answer: int = 1024 * 1024
    history: int = 100
    waiting: int = 2000
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
