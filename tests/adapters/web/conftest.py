"""A real server on a free port, with a scripted model."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from aiohttp import ClientResponse, ClientSession, ClientWebSocketResponse
from jsonschema import Draft202012Validator

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from bot import AgentConfig, Character, Clock, Plugin, Runtime, Settings, model, system_clock
from bot.models import ModelBusy, ModelRefused, ModelType, TextRequest, TextResult, Usage
from bot.platform import AccessTokens
from bot.prompts import parse_history
from bot.settings import Layer
from plugins.bootstrap import plugin as bootstrap

TOKEN = "a-token-for-tests"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def show_drafts_whole(nothing_held_back: None) -> None:
    """Show texts while they are written to their end."""


class EchoModel:
    """A model that echoes; "hold" waits for `go`, "silence" is kept, "refuse" fails with `refusal`.

    To an "overload" it answers at the second attempt.

    Of a "story" the beginning is written first, and the rest after `go`.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Semaphore(0)
        self.released = asyncio.Event()
        self.prompts: list[str] = []
        self.refusal = "the provider refuses"
        self.reply = "You said: {}"
        self.action = "REPLY"
        self.stops_writing = False
        self.was_busy = False
        self.retry_after = 0

    async def answer(self, request: TextRequest) -> TextResult:
        self.prompts.append(request.prompt)
        last_line = [line.text for line in parse_history(request.prompt) if not line.is_agent][-1]
        self.requested.release()
        if "story" in last_line:
            return TextResult(await self._stream_story(request), "scripted")
        if "hold" in last_line:
            await self.released.wait()
        if "overload" in last_line and not self.was_busy:
            self.was_busy = True
            raise ModelBusy("503", retry_after=self.retry_after)
        if "refuse" in last_line:
            raise ModelRefused(self.refusal)
        action = "IGNORE" if "silence" in last_line else self.action
        text = escape(self.reply.format(last_line))
        written = f"<thought>quiet is best</thought><actions>{action}</actions><text>{text}</text>"
        return TextResult(f"<response>{written}</response>", "scripted", Usage(120, 30))

    async def _stream_story(self, request: TextRequest) -> str:
        pieces = ["<response><actions>REPLY</actions><text>Once upon", " a time.</text></response>"]
        assert request.sink is not None
        await request.sink.write(pieces[0])
        await self.released.wait()
        if self.stops_writing:
            return "<response><thought>no</thought><actions>IGNORE</actions></response>"
        await request.sink.write(pieces[1])
        return "".join(pieces)

    @property
    def plugin(self) -> Plugin:
        @model(ModelType.TEXT_LARGE)
        async def large(agent: Any, request: TextRequest) -> TextResult:
            return await self.answer(request)

        return Plugin("script", models=[large])


class RunningServer:
    """A running server and a client of it; every JSON response is validated against the OpenAPI document."""

    def __init__(self, runtime: Runtime, adapter: WebAdapter, script: EchoModel, session: ClientSession) -> None:
        self.runtime, self.adapter, self.script, self.session = runtime, adapter, script, session
        self.origin = f"http://127.0.0.1:{adapter.port}"
        self.description: dict[str, Any] = {}

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKEN}"}

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **details: Any
    ) -> ClientResponse:
        """Send a request without added headers."""
        return await self.session.request(method, self.origin + path, headers=headers, allow_redirects=False, **details)

    async def get(self, path: str, status: int = 200) -> Any:
        answer = await self.request("GET", path, headers=self.bearer)
        return await self.check_response("GET", path, answer, status)

    async def post(self, path: str, body: object, status: int = 200, **headers: str) -> Any:
        named_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.request("POST", path, headers={**self.bearer, **named_headers}, json=body)
        return await self.check_response("POST", path, answer, status)

    async def send(self, text: str, status: int = 200, *, agent: str = "ada", **fields: Any) -> Any:
        return await self.post(f"/api/agents/{agent}/messages", {"text": text, **fields}, status)

    async def check_response(self, method: str, path: str, answer: ClientResponse, status: int) -> Any:
        body = await answer.json()
        assert answer.status == status, body
        if not self.description:
            response = await self.request("GET", "/api/openapi.json", headers=self.bearer)
            self.description = await response.json()
        paths = self.description["paths"]
        for template in sorted(paths, key=lambda template: template.count("{")):
            operations = paths[template]
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path.partition("?")[0]) and not template.startswith("/plugins/"):
                content = operations[method.lower()]["responses"][str(status)]["content"]
                schema = {**content["application/json"]["schema"], "components": self.description["components"]}
                Draft202012Validator(schema).validate(body)
                break
        return body

    async def open_socket(self, **hello: str) -> "SocketClient":
        """Open a WebSocket and join a room."""
        ws = await self.session.ws_connect(f"{self.origin}/api/ws", headers=self.bearer)
        client = SocketClient(ws)
        await client.send(type="hello", **hello)
        client.ready = await client.wait_for("ready")
        return client


class SocketClient:
    """A WebSocket client that checks the numbers of the frames."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self.ws = ws
        self.seq = 0
        self.ready: dict[str, Any] = {}

    async def send(self, **frame: Any) -> None:
        await self.ws.send_str(json.dumps(frame))

    async def next_frame(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            frame: dict[str, Any] = json.loads(await self.ws.receive_str())
        if "seq" in frame:  # updates of topics have an event_id instead
            assert frame["seq"] == self.seq + 1
            self.seq += 1
        return frame

    async def wait_for(self, kind: str) -> dict[str, Any]:
        while (frame := await self.next_frame())["type"] != kind:
            pass
        return frame

    async def send_message(self, text: str, client_id: str) -> list[dict[str, Any]]:
        """Send a message; return the frames up to its outcome."""
        await self.send(type="message", text=text, client_id=client_id)
        frames = [await self.next_frame()]
        while frames[-1]["type"] not in ("outcome", "error"):
            frames.append(await self.next_frame())
        return frames


async def narrow_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a small receive buffer, so that the server soon waits for the reader."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=narrow, limit=1024)


async def send_endlessly(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send the same data repeatedly and read nothing."""
    while True:
        writer.write(data)
        await writer.drain()


ServerFactory = Callable[..., AbstractAsyncContextManager[RunningServer]]


@asynccontextmanager
async def run_server(
    *plugins: Plugin,
    names: tuple[str, ...] = ("Ada",),
    settings: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    stores: Mapping[str, Any] | None = None,
    access_tokens: AccessTokens | None = None,
    character: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    clock: Clock = system_clock,
) -> AsyncIterator[RunningServer]:
    """Run a server for agents with these names during the block."""
    layers = [Layer("the test", {"SERVER_PORT": "0", "SERVER_TOKEN": TOKEN, "AI_NOTICE": "off", **(settings or {})})]
    script = EchoModel()
    configs = [
        AgentConfig(
            Character.model_validate({"name": name, "bio": [f"{name} listens."], **(character or {})}),
            (bootstrap, script.plugin, *plugins),
            Settings(layers),
            (stores or {}).get(name),
            folder=folder,
            clock=clock,
        )
        for name in names
    ]
    async with Runtime(configs) as runtime, ClientSession() as session:
        loaded = Settings(layers).load(WebSettings)
        assert loaded.server_token is not None
        token = loaded.server_token.get_secret_value()
        adapter = WebAdapter(runtime.handles, loaded, token, access_tokens=access_tokens, limits=limits)
        await runtime.connect(adapter)
        yield RunningServer(runtime, adapter, script, session)


@pytest.fixture
def open_server() -> ServerFactory:
    return run_server


@pytest.fixture
async def web_server() -> AsyncIterator[RunningServer]:
    async with run_server() as server:
        yield server


@pytest.fixture
def pages() -> Path:
    return Path(__file__).parents[3] / "adapters" / "web" / "pages"
