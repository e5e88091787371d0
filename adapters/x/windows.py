"""How often each endpoint may still be asked, by what X says with every answer."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

SHORTEST, LONGEST = 1.0, 86_400.0
WITHOUT_A_WORD = 5.0
TOO_MANY = 429
KINDS = ("x-rate-limit", "x-user-limit-24hour", "x-app-limit-24hour")
_NUMBER = re.compile(r"(?<=[a-z]/)\d+(?=/|$)")


class Windows:
    """The windows of all endpoints of one account; an endpoint that nothing is known of is open."""

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def note(self, endpoint: str, status: int, headers: Mapping[str, str], now: datetime) -> None:
        """Learn from an answer; the moment of renewal is believed from a second to a day ahead.

        A quarter of an hour and a day have windows of their own: the one that opens last counts.
        """
        told = [(_number(headers, f"{kind}-remaining"), _number(headers, f"{kind}-reset")) for kind in KINDS]
        closed = [reset for remaining, reset in told if remaining == 0]
        if status == TOO_MANY and not closed:
            closed = [told[0][1]]
        if closed:
            until = now + timedelta(seconds=max(_credible(reset, now) for reset in closed))
            self._until[endpoint] = until
        else:
            self._until.pop(endpoint, None)

    def wait(self, endpoint: str, now: datetime) -> float:
        """How many seconds an endpoint must be left alone; 0 where it may be asked."""
        until = self._until.get(endpoint)
        return 0.0 if until is None else max((until - now).total_seconds(), 0.0)

    def closed(self, now: datetime) -> dict[str, datetime]:
        """Give the endpoints that must be left alone, and until when."""
        return {name: until for name, until in self._until.items() if until > now}


def endpoint_of(method: str, path: str) -> str:
    """Name an endpoint: `GET /2/users/:id/mentions`."""
    return f"{method} {_NUMBER.sub(':id', path)}"


def _credible(reset: float | None, now: datetime) -> float:
    wait = WITHOUT_A_WORD if reset is None else reset - now.timestamp()
    return min(max(wait, SHORTEST), LONGEST)


def _number(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name, "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None
