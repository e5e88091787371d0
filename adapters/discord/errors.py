"""What went wrong with a request, and what that means for the part that was to be sent."""

import math
from collections.abc import Mapping
from typing import Any

import aiohttp
import discord

from bot.platform import (
    DeliveryError,
    DeliveryUnknown,
    DisconnectCause,
    NotSent,
    Undeliverable,
    disconnect_cause,
)
from bot.text import shorten

DEFAULT_RETRY_SECONDS = 5.0  # where Discord says that it is too much, but not for how long
PAUSED_RETRY_SECONDS = 60.0
UNKNOWN_MESSAGE = 10008


class ErrorResponse(Exception):
    """Discord answered, and did not do what it was asked for."""

    def __init__(self, status: int, data: Any = None, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.code = data.get("code", 0) if isinstance(data, Mapping) else 0
        self.is_global = bool(data.get("global")) if isinstance(data, Mapping) else False
        self.retry_after = parse_retry_after(data, headers or {})
        text = data.get("message", "") if isinstance(data, Mapping) else ""
        super().__init__(f"Discord answered {status} {shorten(str(text), 200)}".rstrip())


class InvalidResponse(Exception):
    """Discord answered with something that is no answer: broken, endless, or cut off."""


class RequestsPaused(Exception):
    """Nothing is asked of Discord just now: it has refused too much."""


# What a request may end with other than an answer: who asks again later has to do with no more than these.
REQUEST_ERRORS = (
    OSError,
    aiohttp.ClientError,
    ErrorResponse,
    InvalidResponse,
    RequestsPaused,
    discord.DiscordException,
)


def parse_retry_after(data: Any, headers: Mapping[str, str]) -> float:
    """Read for how many seconds Discord wants to be left alone; five where that cannot be read."""
    body_value = data.get("retry_after") if isinstance(data, Mapping) else None
    for value in (body_value, headers.get("Retry-After"), headers.get("X-RateLimit-Reset-After")):
        try:
            seconds = float(value)  # type: ignore[arg-type]  # None and nonsense alike are what is caught
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return DEFAULT_RETRY_SECONDS


def disconnect_cause_of(error: Exception) -> DisconnectCause:
    """Name why Discord was not to be had."""
    match error:
        case discord.RateLimited() | RequestsPaused() | ErrorResponse(status=429):
            return DisconnectCause.LIMITED
        case ErrorResponse() | InvalidResponse():
            return DisconnectCause.PLATFORM
    return disconnect_cause(error)


def to_delivery_error(error: Exception) -> DeliveryError:
    """Tell what a failed request means for the part that it was to send."""
    match error:
        case DeliveryError():
            return error
        case discord.RateLimited():
            return NotSent("Discord asks to slow down", retry_after=error.retry_after)
        case RequestsPaused():
            return NotSent(str(error), retry_after=PAUSED_RETRY_SECONDS)
        case ErrorResponse():
            return _from_response(error)
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return NotSent(f"Discord cannot be reached: {type(error).__name__}")
        case aiohttp.ClientError() | OSError() | TimeoutError() | InvalidResponse():
            return DeliveryUnknown(f"the connection failed before Discord answered: {type(error).__name__}")
    return DeliveryUnknown(f"{type(error).__name__}: {shorten(str(error), 200)}")


def _from_response(error: ErrorResponse) -> DeliveryError:
    if error.status == 429:
        return NotSent("Discord asks to slow down", retry_after=error.retry_after)
    if error.status == 401:
        return NotSent("Discord does not accept the token any more")
    if error.status == 403:
        return Undeliverable(
            f"{error}: the bot may not write there; give it the permissions View Channel, "
            "Send Messages and, in threads, Send Messages in Threads"
        )
    if error.status >= 500 or error.status == 408:
        return DeliveryUnknown(str(error))
    return Undeliverable(str(error))
