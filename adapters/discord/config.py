"""Settings of Discord, and limits that are not settings."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bot import CommaList, Secret, Settings, SettingsModel
from bot.platform import AllowList, BaseUrl

PLATFORM = "discord"
MAX_SHARDS = 10_000
DEVELOPER_PORTAL_URL = "https://discord.com/developers/applications"


def _check_snowflakes(ids: tuple[str, ...]) -> tuple[str, ...]:
    for snowflake in ids:
        if not (snowflake.isascii() and snowflake.isdigit()):
            raise ValueError(
                f"{snowflake[:40]!r} is no id: switch on Developer Mode in Discord (Settings, Advanced), "
                "then right-click the channel and choose Copy Channel ID"
            )
    return ids


Snowflakes = Annotated[CommaList, AfterValidator(_check_snowflakes)]
Channels = Annotated[AllowList, AfterValidator(_check_snowflakes)]


class DiscordSettings(SettingsModel):
    """The variables of Discord."""

    CHARACTER_SETTINGS = frozenset(
        [
            "DISCORD_API_TOKEN",
            "CHANNEL_IDS",
            "DISCORD_LISTEN_CHANNEL_IDS",
            "DISCORD_SHOULD_IGNORE_BOT_MESSAGES",
            "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES",
            "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS",
            "DISCORD_FACES",
            "DISCORD_MEMBERS_INTENT",
            "DISCORD_USER_INSTALL",
            "DISCORD_SHARD_COUNT",
            "IGNORED_ROLES",
        ]
    )

    discord_api_token: Secret | None = Field(
        None, description=f"The bot's token, from {DEVELOPER_PORTAL_URL} (your application, Bot, Reset Token)."
    )
    channel_ids: Channels = Field(
        (), description="The only Discord channels in which to answer, including their threads; all if unset."
    )
    discord_listen_channel_ids: Snowflakes = Field(
        (), description="Discord channels whose messages are stored but never answered."
    )
    discord_should_ignore_bot_messages: bool = Field(
        False, description="Whether messages of other bots on Discord are not even stored."
    )
    discord_should_ignore_direct_messages: bool = Field(
        False, description="Whether direct messages on Discord are stored but not answered."
    )
    discord_should_respond_only_to_mentions: bool = Field(
        False, description="Whether to answer on Discord only if mentioned or replied to, or in a direct message."
    )
    discord_faces: Literal["webhook"] | None = Field(
        None,
        description="webhook: characters with the same token share the account and speak through webhooks, each "
        "with its own name and picture; the bot needs the permission Manage Webhooks.",
    )
    discord_members_intent: bool = Field(
        False,
        description="Whether to receive who joins and leaves a server; switch on Server Members Intent for "
        "the bot in the developer portal first.",
    )
    discord_user_install: bool = Field(
        False,
        description="Whether people who have installed the bot for themselves can ask it anywhere on Discord, by /ask "
        "or about a message; only they see the answer. Switch on User Install in the developer portal first.",
    )
    ignored_roles: CommaList = Field(
        (),
        description="Roles of Discord servers, by name or id: nothing that people with one of them write is stored or "
        "read.",
    )
    discord_shard_count: int = Field(
        0,
        ge=0,
        le=MAX_SHARDS,
        description="How many gateway connections (shards) the bot divides its servers among; 0: as many as Discord "
        "recommends.",
    )
    discord_api_base_url: BaseUrl = Field(
        "https://discord.com", description="Another server with Discord's API, such as the emulator; without /api."
    )


def read_settings(settings: Settings) -> DiscordSettings:
    """Return the settings; raise SettingError if one is invalid."""
    return settings.load(DiscordSettings)


def find_trusted_origin(settings: Settings) -> str:
    """Return the server that the operator has set instead of Discord; empty if none is set."""
    loaded = settings.load(DiscordSettings)
    return "" if loaded.is_default("discord_api_base_url") else loaded.discord_api_base_url


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts, intervals and sizes; times in seconds, sizes in bytes."""

    request_timeout: float = 30.0
    heartbeat_timeout: float = 60.0
    guild_ready_timeout: float = 2.0
    first_event_timeout: float = 60.0  # in which a new connection must bring an event
    queue_full_timeout: float = 10.0
    typing_interval: float = 8.0
    max_retry_delay: float = 60.0
    max_response_bytes: int = 1024 * 1024
    history_limit: int = 100
    probe_seconds: float = 45.0  # between two looks whether the gateway brings what is written
    max_queued_events: int = 2000
    identify_interval: float = 5.0  # between two gateway sessions that start, as Discord demands
    lease_interval: float = 0.5  # between two looks which shards this process connects
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
