"""The library's client, at a base of our own choosing, with all that happens handed on in one line."""

import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

import discord
from discord.http import HTTPClient
from discord.state import ConnectionState

from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.gateway import BEFORE_EVENT, session_of
from adapters.discord.http import Http
from adapters.discord.judging import Judge
from adapters.discord.session import Session


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that happened, as the library names it, and how far the gateway's session is read with it."""

    name: str
    args: tuple[Any, ...]
    session: Session | None = None


class Client(discord.Client):
    """Keeps the library's knowledge of servers and channels; connecting is another's work.

    `heard` is called with everything that happens, in its order.
    """

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        limits: Limits,
        *,
        heard: Callable[[Heard], None],
        before: Callable[[str, Any], Coroutine[Any, Any, None]],
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody here speaks aloud
        self._asks = http
        self._heard = heard
        super().__init__(
            intents=intents_of(settings),
            max_messages=None,
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat,
            guild_ready_timeout=limits.ready,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._hooks[BEFORE_EVENT] = before

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = self._asks
        return super()._get_state(**options)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Hand on what happened, while it is known how far the session is read with it."""
        super().dispatch(event, *args, **kwargs)
        self._heard(Heard(event, args, session_of(self.ws)))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Begin a session at once: its budget was looked at before."""


def intents_of(settings: DiscordSettings) -> discord.Intents:
    """Give what we want to be told: messages, signs on them, places, and people if that is asked for."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.members = settings.discord_members_intent
    return intents


def http_of(settings: DiscordSettings, judge: Judge, limits: Limits, environment: Mapping[str, str]) -> Http:
    """Make the way to Discord's REST interface, through the operator's proxy where there is one."""
    base = settings.discord_api_base_url
    return Http(
        base, judge, limits, certificates=_certificates(base, environment), proxy=_proxy(base, environment)
    )


def _certificates(base: str, environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    if not base.startswith("https:"):
        return True  # none are needed, and reading them takes a moment
    return ssl.create_default_context(cafile=environment.get("SSL_CERT_FILE"))


def _proxy(base: str, environment: Mapping[str, str]) -> str | None:
    parts = urlsplit(base)
    proxy = environment.get(f"{parts.scheme}_proxy".upper()) or None
    bypassed = proxy_bypass_environment(parts.hostname or "", {"no": environment.get("NO_PROXY", "")})
    return None if bypassed else proxy
