"""What may go wrong, on purpose: answers that refuse, arrive late, broken, or not at all."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PIECE = b" " * 65536


@dataclass(slots=True)
class Fault:
    """Goes wrong `times` times with calls of a method; of all, where the method is `*`.

    With `is_late` the call is carried out first. `status` answers with `body`; without one the connection
    is reset. `is_endless` answers with a body that never ends, `is_hanging` with nothing.
    """

    method: str
    status: int = 0
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    is_late: bool = False
    is_endless: bool = False
    is_hanging: bool = False
    only_with: str = ""  # goes wrong with calls that have this parameter
    after: int = 0  # so many of them go well before

    def concerns(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Tell whether a call goes wrong; to be asked once a call."""
        is_meant = self.method in ("*", method) and (not self.only_with or self.only_with in parameters)
        if is_meant and self.after:
            self.after -= 1
            return False
        return self.times > 0 and is_meant

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
        body = self.body if is_text else json.dumps(self.body)
        kind = "text/html" if is_text else "application/json"
        return web.Response(
            status=self.status, body=body.encode(), headers={"Content-Type": kind, **self.headers}
        )


def refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Make a refusal as Telegram words it."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return {**body, "parameters": parameters} if parameters else body


def too_many(method: str, retry_after: Any, *, times: int = 1, after: int = 0) -> Fault:
    """Answer as Telegram does where it was asked too much."""
    text = f"Too Many Requests: retry after {retry_after}"
    return Fault(method, 429, refusal(429, text, retry_after=retry_after), times=times, after=after)


def markup_refused(method: str = "sendMessage", *, times: int = 1) -> Fault:
    """Answer as Telegram does where it cannot make sense of the entities."""
    text = "Bad Request: can't parse entities: unsupported start tag"
    return Fault(method, 400, refusal(400, text), times=times, only_with="entities")


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    while True:
        await answer.write(PIECE)
