"""What may go wrong, on purpose: answers that refuse, arrive late, broken, or not at all."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PIECE = b" " * 65536


@dataclass(slots=True)
class Fault:
    """Goes wrong `times` times with requests whose method and path match.

    With `is_late` the request is carried out first. `status` answers with `body` and `headers`; without one
    the connection is reset. `is_endless` answers with a body that never ends, `is_hanging` with nothing.
    """

    match: str
    status: int = 0
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    is_late: bool = False
    is_endless: bool = False
    is_hanging: bool = False

    def concerns(self, request: web.Request) -> bool:
        """Tell whether a request goes wrong."""
        return self.times > 0 and re.search(self.match, f"{request.method} {request.path}") is not None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Go wrong."""
        self.times -= 1
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.is_endless:
            return await _endless(request)
        if not self.status:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        is_text = isinstance(self.body, str)
        body = (
            self.body if is_text else json.dumps(self.body if self.body is not None else {"message": "fault"})
        )
        kind = "text/html" if is_text else "application/json"
        return web.Response(
            status=self.status, body=body.encode(), headers={"Content-Type": kind, **self.headers}
        )


def too_many(
    match: str, retry_after: Any, *, scope: str = "user", times: int = 1, is_global: bool = False
) -> Fault:
    """Answer as Discord does where it was asked too much."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": is_global}
    headers = {"X-RateLimit-Scope": "global" if is_global else scope, "Via": "1.1 google"}
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return Fault(match, 429, body, headers, times)


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(PIECE)
