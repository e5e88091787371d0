"""`bot doctor` for Discord: the token, its intents, the guilds of the bot and its invitation link."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import aiohttp
from discord import ApplicationFlags, Permissions
from discord.http import Route

from adapters.discord.adapter import DiscordHttp, build_http
from adapters.discord.config import DEVELOPER_PORTAL_URL, DiscordSettings, Limits, read_settings
from adapters.discord.errors import REQUEST_ERRORS, is_token_refused
from adapters.discord.gateway import INVALID_TOKEN_MESSAGE
from bot import SettingError, Settings, TemporaryError
from bot.platform import CursorReader, describe_client_error
from bot.store import CheckReport

REQUIRED_PERMISSIONS = Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    embed_links=True,
    attach_files=True,
)
MAX_GUILDS = 20
VisibleGuild = tuple[str, set[str]]  # name; ids of the guild, its channels and its threads


async def check(settings: Settings, read_cursor: CursorReader) -> CheckReport:
    """Check token, intents and guilds without connecting; raise SettingError or TemporaryError."""
    limits, discord_settings, environment = Limits(), read_settings(settings), settings.network_environment()
    http = build_http(discord_settings, limits, environment)
    token = discord_settings.discord_api_token
    try:
        user = await http.static_login(token.get_secret_value() if token else "")
        application = await http.request(Route("GET", "/oauth2/applications/@me"))
        guilds = await _fetch_guilds(http)
    except REQUEST_ERRORS as error:
        if is_token_refused(error):
            raise SettingError(INVALID_TOKEN_MESSAGE) from None
        cause = describe_client_error(error) if isinstance(error, aiohttp.ClientError) else str(error)
        raise TemporaryError(f"{discord_settings.discord_api_base_url}: {cause or type(error).__name__}") from error
    finally:
        await http.close()
    problems = [
        *_intent_problems(application, discord_settings),
        *_install_problems(application, discord_settings),
        *_guild_problems(guilds, discord_settings),
    ]
    guild_texts = [f"{name} ({len(visible_ids) - 1} channels)" for name, visible_ids in guilds]
    facts: dict[str, str | int] = {
        "servers": ", ".join(guild_texts) or "none",
        "permissions": find_permissions(discord_settings).value,
        "invitation": invite_link(str(application.get("id")), find_permissions(discord_settings)),
    }
    if discord_settings.discord_user_install:
        facts["for people to install"] = install_link(str(application.get("id")))
    return CheckReport(f"discord: {user.get('username')}", True, problems=tuple(problems), facts=facts)


def find_permissions(settings: DiscordSettings) -> Permissions:
    """Return the fewest permissions that the bot needs."""
    shared = Permissions(manage_webhooks=True) if settings.discord_faces else Permissions.none()
    return REQUIRED_PERMISSIONS | shared


def invite_link(application_id: str, permissions: Permissions = REQUIRED_PERMISSIONS) -> str:
    """Return the URL with which the owner of a guild adds the bot, with the permissions it needs."""
    query = {"client_id": application_id, "scope": "bot applications.commands", "permissions": permissions.value}
    return f"https://discord.com/oauth2/authorize?{urlencode(query)}"


def install_link(application_id: str) -> str:
    """Return the URL with which a person installs the bot for themselves."""
    query = {"client_id": application_id, "scope": "applications.commands", "integration_type": 1}
    return f"https://discord.com/oauth2/authorize?{urlencode(query)}"


def _install_problems(application: Mapping[str, Any], settings: DiscordSettings) -> Iterator[str]:
    if settings.discord_user_install and "1" not in (application.get("integration_types_config") or {}):
        page = f"{DEVELOPER_PORTAL_URL}, your application, Installation"
        yield f"DISCORD_USER_INSTALL is on, and User Install is off: switch it on at {page}"


def _intent_problems(application: Mapping[str, Any], settings: DiscordSettings) -> Iterator[str]:
    flags = ApplicationFlags._from_value(int(application.get("flags") or 0))
    required = {"Message Content Intent": flags.gateway_message_content or flags.gateway_message_content_limited}
    if settings.discord_members_intent:
        required["Server Members Intent"] = flags.gateway_guild_members or flags.gateway_guild_members_limited
    portal_page = f"{DEVELOPER_PORTAL_URL}, your application, Bot, Privileged Gateway Intents"
    for intent, is_enabled in required.items():
        if not is_enabled:
            yield f"{intent} is off: switch it on at {portal_page}"


def _guild_problems(guilds: Sequence[VisibleGuild], settings: DiscordSettings) -> Iterator[str]:
    if not guilds and not settings.discord_user_install:
        yield "the bot is in no server yet: open the invitation link and choose one"
    if not guilds:
        return
    visible_ids = set[str]().union(*(ids for _, ids in guilds))
    for name in ("channel_ids", "discord_listen_channel_ids"):
        for missing in sorted(set(getattr(settings, name)) - visible_ids):
            yield f"{name.upper()} contains {missing}, which the bot cannot see: correct it"


async def _fetch_guilds(http: DiscordHttp) -> list[VisibleGuild]:
    """Return the guilds that the bot is in, each with the ids that a variable may name."""
    guilds: list[VisibleGuild] = []
    for guild in (await http.request(Route("GET", "/users/@me/guilds")))[:MAX_GUILDS]:
        path_ids = {"guild_id": guild["id"]}
        channels = await http.request(Route("GET", "/guilds/{guild_id}/channels", **path_ids))
        active_threads = await http.request(Route("GET", "/guilds/{guild_id}/threads/active", **path_ids))
        visible_ids = {str(item["id"]) for item in (guild, *channels, *active_threads.get("threads", ()))}
        guilds.append((str(guild["name"]), visible_ids))
    return guilds
