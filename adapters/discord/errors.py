"""What went wrong with a request, and what that means for the part that was to be sent."""

import math
from collections.abc import Mapping
from typing import Any

import aiohttp
import discord

from bot.platform import Cause, DeliveryError, NotSent, Unclear, Undeliverable, cause_of
from bot.text import shorten

UNSAID_WAIT = 5.0  # where Discord says that it is too much, but not for how long
PAUSED_WAIT = 60.0
UNKNOWN_MESSAGE = 10008


class Answered(Exception):
    """Discord answered, and did not do what it was asked for."""

    def __init__(self, status: int, data: Any = None, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.code = data.get("code", 0) if isinstance(data, Mapping) else 0
        self.is_global = bool(data.get("global")) if isinstance(data, Mapping) else False
        self.retry_after = waiting_time(data, headers or {})
        text = data.get("message", "") if isinstance(data, Mapping) else ""
        super().__init__(f"Discord answered {status} {shorten(str(text), 200)}".rstrip())


class Unreadable(Exception):
    """Discord answered with something that is no answer: broken, endless, or cut off."""


class Paused(Exception):
    """Nothing is asked of Discord just now: it has refused too much."""


# What a request may end with other than an answer: who asks again later has to do with no more than these.
GONE = (OSError, aiohttp.ClientError, Answered, Unreadable, Paused, discord.DiscordException)


def waiting_time(data: Any, headers: Mapping[str, str]) -> float:
    """Read for how many seconds Discord wants to be left alone; five where that cannot be read."""
    told = data.get("retry_after") if isinstance(data, Mapping) else None
    for value in (told, headers.get("Retry-After"), headers.get("X-RateLimit-Reset-After")):
        try:
            seconds = float(value)  # type: ignore[arg-type]  # None and nonsense alike are what is caught
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return UNSAID_WAIT


def cause_of_gap(error: Exception) -> Cause:
    """Name why Discord was not to be had."""
    match error:
        case discord.RateLimited() | Paused() | Answered(status=429):
            return Cause.LIMITED
        case Answered() | Unreadable():
            return Cause.PLATFORM
    return cause_of(error)


def delivery_error(error: Exception) -> DeliveryError:
    """Tell what a failed request means for the part that it was to send."""
    match error:
        case DeliveryError():
            return error
        case discord.RateLimited():
            return NotSent("Discord asks to slow down", retry_after=error.retry_after)
        case Paused():
            return NotSent(str(error), retry_after=PAUSED_WAIT)
        case Answered():
            return _of_answer(error)
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return NotSent(f"Discord cannot be reached: {type(error).__name__}")
        case aiohttp.ClientError() | OSError() | TimeoutError() | Unreadable():
            return Unclear(f"the connection failed before Discord answered: {type(error).__name__}")
    return Unclear(f"{type(error).__name__}: {shorten(str(error), 200)}")


def _of_answer(error: Answered) -> DeliveryError:
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
        return Unclear(str(error))
    return Undeliverable(str(error))
