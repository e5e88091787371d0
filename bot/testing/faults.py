"""What may go wrong with an emulated platform, on purpose: it refuses, is late or broken, or says nothing."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PIECE = b" " * 65536


@dataclass(slots=True)
class FaultyAnswer:
    """Goes wrong `times` times with those calls that `match` means on its platform.

    With `is_late` the call is carried out first. `status` answers with `body` and `headers`; without one the
    connection is reset. `is_endless` answers with a body that never ends, `is_hanging` with nothing.
    """

    match: str
    status: int = 0
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    is_late: bool = False
    is_endless: bool = False
    is_hanging: bool = False

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


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(PIECE)
