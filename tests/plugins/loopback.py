"""A server on the loopback with prepared answers, faults and cut streams included."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.concurrency.clock import TimeSource
from bot.models.handler import CallPolicy, ModelHandler, PendingCall
from bot.models.router import ModelRouter
from bot.plugin_system.components import Model
from bot.testing import AgentHarness


class Cut:
    """In a stream: the connection is cut here."""


class Hang:
    """In a stream: nothing more comes, until the other side goes away."""


Piece = str | dict[str, Any] | asyncio.Event | Cut | Hang


@dataclass
class Answer:
    """One answer: a body, or the events of a stream."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    events: tuple[Piece, ...] | None = None


@dataclass
class Asked:
    """One request."""

    path: str
    json: Any
    headers: Mapping[str, str]
    form: Mapping[str, Any] = field(default_factory=dict)
    client: Any = None  # the other end of its connection


Answering = Callable[[Asked], Answer]


class Loopback:
    """Returns the prepared answers, the last repeatedly, or what a function makes of a request."""

    def __init__(self) -> None:
        self.answers: list[Answer] | Answering = [Answer({})]
        self.asked: list[Asked] = []
        self.gone = asyncio.Event()
        self.streaming = asyncio.Event()
        self.url = ""

    @property
    def bodies(self) -> list[Any]:
        """What was sent, request by request."""
        return [request.json for request in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        asked = await _read(request)
        self.asked.append(asked)
        answer = self._next(asked)
        if answer.events is not None:
            return await self._stream(request, answer)
        body = answer.body if isinstance(answer.body, str | bytes) else json.dumps(answer.body)
        data = body.encode() if isinstance(body, str) else body
        return web.Response(body=data, status=answer.status, headers=answer.headers, content_type=answer.content_type)

    def _next(self, asked: Asked) -> Answer:
        if callable(self.answers):
            return self.answers(asked)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streaming.set()
        for piece in answer.events or ():
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, Cut):
                assert request.transport is not None
                request.transport.abort()
                return response
            elif isinstance(piece, Hang):
                try:
                    await asyncio.Event().wait()
                finally:
                    self.gone.set()
            else:
                line = piece if isinstance(piece, str) else f"data: {json.dumps(piece)}\n\n"
                await response.write(line.encode())
        return response


async def _read(request: web.Request) -> Asked:
    if request.content_type == "multipart/form-data":
        parts: dict[str, Any] = {}
        reader = await request.multipart()
        async for part in reader:
            name = getattr(part, "filename", None)
            data = await part.read()  # type: ignore[union-attr]  # the API nests no multiparts
            parts[str(part.name)] = (name, data) if name else data.decode()  # type: ignore[union-attr]
        return Asked(request.path, None, request.headers, parts, _client_of(request))
    return Asked(request.path, await request.json(), request.headers, client=_client_of(request))


def _client_of(request: web.Request) -> Any:
    return request.transport.get_extra_info("peername") if request.transport else None


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """Run a server as long as the block lasts."""
    found = Loopback()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.handle)
    async with TestServer(app) as server:  # it cancels a handler whose client has gone
        found.url = str(server.make_url("")).rstrip("/")
        yield found


def patient(harness: AgentHarness, model: Model, waits: list[float]) -> ModelRouter:
    """Make a router that asks this one model again and again, and notes how long it would have waited."""

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def reserve(handler: ModelHandler, pending: PendingCall[Any]) -> Any:
        return (lambda call: None), pending.request

    router = ModelRouter(reserve=reserve, policy=CallPolicy(time=TimeSource(sleep=wait)))
    router.register(ModelHandler(model.type, partial(model, harness.agent), "one"))
    return router


class Sink:
    """Remembers the pieces it is shown; `None` for a new beginning."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self.first = asyncio.Event()

    async def write(self, text: str) -> None:
        """Take the next piece."""
        if text:
            self.seen.append(text)
            self.first.set()

    async def restart(self) -> None:
        """Note the new beginning."""
        self.seen.append(None)
