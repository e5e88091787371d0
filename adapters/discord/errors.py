"""Errors of requests, and what they mean for a delivery."""

import math
from collections.abc import Mapping
from typing import Any

import aiohttp
import discord
from discord.http import Route

import bot.platform as bp
from bot.text import shorten

DEFAULT_RETRY_SECONDS = 5.0  # if Discord limits requests without naming a time
PAUSED_RETRY_SECONDS = 60.0
UNKNOWN_MESSAGE, UNKNOWN_EMOJI = 10008, 10014
MISSING_PERMISSIONS = 50013
THREAD_ARCHIVED, THREAD_LOCKED, THREAD_EXISTS = 50083, 160005, 160004
NO_MESSAGE_HISTORY = 160002  # a reply needs the permission to read it
SLOW_MODE_CODES = (20016, 20028)
ALREADY_ACKNOWLEDGED = 40060
# The codes of a 401 that is about the bot's token; others are about the token of an interaction or a webhook.
TOKEN_CODES = (0, 40001, 50014)


class ErrorResponse(Exception):
    """Discord, or with `is_foreign` a server in front of it, answered with an error status."""

    def __init__(self, status: int, data: Any = None, headers: Mapping[str, str] | None = None) -> None:
        fields = data if isinstance(data, Mapping) else {}
        self.status = status
        self.is_foreign = not isinstance(fields.get("code"), int)
        self.code = 0 if self.is_foreign else fields["code"]
        self.is_global = bool(fields.get("global"))
        self.retry_after = parse_retry_after(data, headers or {})
        answerer = "a server in front of Discord" if self.is_foreign else "Discord"
        super().__init__(f"{answerer} answered {status} {shorten(str(fields.get('message', '')), 200)}".rstrip())

    @property
    def is_final(self) -> bool:
        """Whether Discord would refuse the same request again."""
        if self.is_foreign:
            return self.status == 413
        return 400 <= self.status < 500 and self.status not in (401, 408, 429)


def is_token_refused(error: Exception, route: Route | None = None) -> bool:
    """Return whether an error says that the bot's token is invalid; on a route with a token of its own none does."""
    if not isinstance(error, ErrorResponse) or error.is_foreign or (route is not None and route.webhook_token):
        return False
    return error.status == 401 and error.code in TOKEN_CODES


class InvalidResponse(Exception):
    """Discord's response cannot be read: malformed, too long or cut off."""


class RequestsPaused(Exception):
    """Requests are suspended: Discord has refused too many."""


# Every way in which a request can fail.
REQUEST_ERRORS = (
    OSError,
    aiohttp.ClientError,
    ErrorResponse,
    InvalidResponse,
    RequestsPaused,
    discord.DiscordException,
)


def parse_retry_after(data: Any, headers: Mapping[str, str]) -> float:
    """Return the seconds Discord asks to wait; DEFAULT_RETRY_SECONDS if it names none."""
    body_value = data.get("retry_after") if isinstance(data, Mapping) else None
    for value in (body_value, headers.get("Retry-After"), headers.get("X-RateLimit-Reset-After")):
        try:
            seconds = float(value)  # type: ignore[arg-type]  # TypeError is caught
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return DEFAULT_RETRY_SECONDS


def disconnect_cause_of(error: Exception) -> bp.DisconnectCause:
    """Return why Discord could not be reached."""
    match error:
        case discord.RateLimited() | RequestsPaused() | ErrorResponse(status=429):
            return bp.DisconnectCause.LIMITED
        case ErrorResponse() | InvalidResponse():
            return bp.DisconnectCause.PLATFORM
    return bp.disconnect_cause(error)


def to_delivery_error(error: Exception) -> bp.DeliveryError:
    """Return the DeliveryError that a failed request means for its part."""
    match error:
        case bp.DeliveryError():
            return error
        case discord.RateLimited():
            return bp.NotSent("Discord limits requests", retry_after=error.retry_after)
        case RequestsPaused():
            return bp.NotSent(str(error), retry_after=PAUSED_RETRY_SECONDS)
        case ErrorResponse():
            return _from_response(error)
        case _ if isinstance(error, bp.NOT_SENT_ERRORS):
            return bp.NotSent(f"Discord cannot be reached: {bp.describe_client_error(error)}")
        case aiohttp.ClientError() | OSError() | TimeoutError() | InvalidResponse():
            return bp.DeliveryUnknown(f"the connection failed before Discord answered: {type(error).__name__}")
    return bp.DeliveryUnknown(f"{type(error).__name__}: {shorten(str(error), 200)}")


def _from_response(error: ErrorResponse) -> bp.DeliveryError:
    if error.code in SLOW_MODE_CODES:
        return bp.NotSent("the channel's slow mode lets the bot wait", retry_after=error.retry_after)
    if error.status == 429:
        return bp.NotSent("Discord limits requests", retry_after=error.retry_after)
    if error.status >= 500 or error.status == 408:
        return bp.DeliveryUnknown(str(error))
    if not error.is_final:
        return bp.NotSent(str(error))
    if error.status == 403:
        return bp.Undeliverable(
            f"{error}: the bot may not write there; give it the permissions View Channel, "
            "Send Messages and, in threads, Send Messages in Threads"
        )
    return bp.Undeliverable(str(error))
