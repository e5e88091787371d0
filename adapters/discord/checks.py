"""What can be said of a token before the bot is started: whose it is, what it may, and where to invite it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import aiohttp
from discord import ApplicationFlags, Permissions
from discord.http import Route

from adapters.discord.client import Http, http_of
from adapters.discord.config import DEVELOPERS, DiscordSettings, Limits, read_settings
from adapters.discord.connection import BAD_TOKEN
from adapters.discord.errors import GONE, Answered
from adapters.discord.rate_limits import Judge
from bot import SettingError, Settings, TryAgain
from bot.platform import ReadCursor
from bot.store import Checkup

NEEDED = Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    embed_links=True,
    attach_files=True,
    add_reactions=True,
)
MOST_SERVERS = 20
Server = tuple[str, set[str]]  # its name, and the ids of itself, its channels and its threads


async def check(settings: Settings, read: ReadCursor) -> Checkup:
    """Look at the token, its intents, where the bot is, and how it is invited; nobody notices."""
    limits, chosen, operator = Limits(), read_settings(settings), settings.of_operator()
    environment = {name: value for name in operator if (value := operator.get(name))}
    clock = asyncio.get_running_loop().time
    http = http_of(chosen, Judge(clock, longest=limits.answer), limits, environment)
    token = chosen.discord_api_token
    try:
        me = await http.static_login(token.get_secret_value() if token else "")
        application = await http.request(Route("GET", "/oauth2/applications/@me"))
        servers = await _servers(http)
    except GONE as error:
        if isinstance(error, Answered) and error.status == 401:
            raise SettingError(BAD_TOKEN) from None
        is_proxys = isinstance(error, aiohttp.ClientHttpProxyError)  # which would name its password
        cause = "" if is_proxys else str(error)
        raise TryAgain(f"{chosen.discord_api_base_url}: {cause or type(error).__name__}") from error
    finally:
        await http.close()
    problems = [*_intents(application, chosen), *_places(servers, chosen)]
    told = [f"{name} ({len(seen) - 1} channels)" for name, seen in servers]
    facts: dict[str, str | int] = {
        "servers": ", ".join(told) or "none",
        "permissions": NEEDED.value,
        "invitation": invite_link(str(application.get("id"))),
    }
    return Checkup(f"discord: {me.get('username')}", True, problems=tuple(problems), facts=facts)


def invite_link(application_id: str) -> str:
    """Give the address at which a server's owner lets the bot in, with the fewest permissions it needs."""
    asked = {"client_id": application_id, "scope": "bot applications.commands", "permissions": NEEDED.value}
    return f"https://discord.com/oauth2/authorize?{urlencode(asked)}"


def _intents(application: Mapping[str, Any], chosen: DiscordSettings) -> Iterator[str]:
    flags = ApplicationFlags._from_value(int(application.get("flags") or 0))
    wanted = {
        "Message Content Intent": flags.gateway_message_content or flags.gateway_message_content_limited
    }
    if chosen.discord_members_intent:
        wanted["Server Members Intent"] = flags.gateway_guild_members or flags.gateway_guild_members_limited
    place = f"{DEVELOPERS}, your application, Bot, Privileged Gateway Intents"
    for intent, is_on in wanted.items():
        if not is_on:
            yield f"{intent} is off: switch it on at {place}"


def _places(servers: Sequence[Server], chosen: DiscordSettings) -> Iterator[str]:
    if not servers:
        yield "the bot is in no server yet: open the invitation and choose one"
        return
    seen = set[str]().union(*(ids for _, ids in servers))
    for name in ("channel_ids", "discord_listen_channel_ids"):
        for missing in sorted(set(getattr(chosen, name)) - seen):
            yield f"{name.upper()} names {missing}, which is no channel that the bot can see: correct it"


async def _servers(http: Http) -> list[Server]:
    """Find the servers that the bot is in, each with what a variable may name there."""
    servers: list[Server] = []
    for guild in (await http.request(Route("GET", "/users/@me/guilds")))[:MOST_SERVERS]:
        name = {"guild_id": guild["id"]}
        channels = await http.request(Route("GET", "/guilds/{guild_id}/channels", **name))
        active = await http.request(Route("GET", "/guilds/{guild_id}/threads/active", **name))
        seen = {str(one["id"]) for one in (guild, *channels, *active.get("threads", ()))}
        servers.append((str(guild["name"]), seen))
    return servers
