"""What may go wrong, on purpose: answers that refuse, arrive late, broken, or not at all."""

import re
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from bot.testing import FaultyAnswer


@dataclass(slots=True)
class Fault(FaultyAnswer):
    """Goes wrong with requests whose method and path `match`, a regular expression."""

    def concerns(self, request: web.Request) -> bool:
        """Tell whether a request goes wrong."""
        return self.times > 0 and re.search(self.match, f"{request.method} {request.path}") is not None


def too_many(
    match: str, retry_after: Any, *, scope: str = "user", times: int = 1, is_global: bool = False
) -> Fault:
    """Answer as Discord does where it was asked too much."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": is_global}
    headers = {"X-RateLimit-Scope": "global" if is_global else scope, "Via": "1.1 google"}
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return Fault(match, 429, body, headers, times)
