"""Chat page, fault injection and loopback guard for emulators."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.http import allowed_hosts, is_cross_site, parse_host_header

MAX_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class EmulatorUser:
    """Somebody one may be on the page, or a character to be mentioned: there `id` is how that is written."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class EmulatorRoom:
    """Where one may talk, and as whom; `hint` says when a character answers there."""

    id: str
    name: str
    people: tuple[EmulatorUser, ...]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class EmulatorMessage:
    """One message; `buttons` are what may be pressed below it, each with its id and what it says."""

    id: str
    by: str
    text: str
    is_bot: bool = False
    note: str = ""
    buttons: tuple[tuple[str, str], ...] = ()


class EmulatorView(Protocol):
    """What an emulated platform shows on the page, and what a person may do there."""

    platform: str
    max_length: int

    def rooms(self) -> Sequence[EmulatorRoom]:
        """List where one may talk; the first is where the page begins."""

    def bots(self) -> Sequence[EmulatorUser]:
        """List the characters that are there."""

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """List what was said somewhere, the newest last."""

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Say something, as an answer to a message or to none; gives back what stands against it."""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button below a message."""


class EmulatorPage:
    """Serves the page of a scene, behind `only_from_here`; what a form of another site sends is refused."""

    def __init__(self, view: EmulatorView) -> None:
        self._view = view
        html = files(__package__).joinpath("emulator.html").read_text(encoding="utf-8")
        self._html = html.replace("PLATFORM", view.platform)
        self._headers = {
            "Content-Security-Policy": _content_security_policy(self._html),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }

    def routes(self) -> list[web.RouteDef]:
        """List all routes."""
        return [
            web.get("/", self._serve_page),
            web.get("/page/shown", self._serve_state),
            web.post("/page/say", self._send_message),
            web.post("/page/press", self._press_button),
        ]

    async def _serve_page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=self._headers)

    async def _serve_state(self, request: web.Request) -> web.Response:
        """Tell what is where; without a place, of the first."""
        rooms = self._view.rooms()
        if not rooms:
            raise web.HTTPNotFound
        room = next((item for item in rooms if item.id == request.query.get("place")), rooms[0])
        document = {
            "place": room.id,
            "places": [asdict(item) for item in rooms],
            "bots": [asdict(item) for item in self._view.bots()],
            "said": [asdict(item) for item in self._view.messages(room.id)[-MAX_MESSAGES:]],
            "longest": self._view.max_length,
        }
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    async def _send_message(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request)
        text = str(body.get("text", "")).strip()[: self._view.max_length]
        problem = "there is nothing to say"
        if text:
            problem = await self._view.send_message(room_id, user_id, text, str(body.get("answers") or ""))
        return web.json_response({"problem": problem}, status=400 if problem else 200)

    async def _press_button(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request)
        message_id, button_id = str(body.get("message")), str(body.get("button"))
        target = next(
            (candidate for candidate in self._view.messages(room_id) if candidate.id == message_id), None
        )
        if target is None or button_id not in dict(target.buttons):
            raise web.HTTPBadRequest
        await self._view.press_button(room_id, user_id, message_id, button_id)
        return web.json_response({})

    async def _read_request(self, request: web.Request) -> tuple[str, str, dict[str, Any]]:
        """Read where and as whom something is to be done; where it is not said, the first."""
        if request.content_type != "application/json":
            raise web.HTTPForbidden
        try:
            body = json.loads(await request.read())
        except ValueError:
            raise web.HTTPBadRequest from None
        if not isinstance(body, dict):
            raise web.HTTPBadRequest
        rooms = {item.id: item for item in self._view.rooms()}
        room = rooms.get(str(body.get("place") or next(iter(rooms), "")))
        users = {item.id: item for item in room.people} if room else {}
        user = users.get(str(body.get("person") or next(iter(users), "")))
        if room is None or user is None:
            raise web.HTTPBadRequest
        return room.id, user.id, body


def _content_security_policy(html: str) -> str:
    """Let the page have its own script and style, and nothing else from anywhere."""
    hashes = {kind: _hash_element(html, kind) for kind in ("script", "style")}
    return (
        f"default-src 'none'; script-src '{hashes['script']}'; style-src '{hashes['style']}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash_element(html: str, tag: str) -> str:
    content = html.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


CHUNK = b" " * 65536


@dataclass(slots=True)
class FaultResponse:
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

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Go wrong."""
        self.times -= 1
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.is_endless:
            return await _stream_endlessly(request)
        if not self.status:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        is_text = isinstance(self.body, str)
        body = self.body if is_text else json.dumps(self.body)
        content_type = "text/html" if is_text else "application/json"
        return web.Response(
            status=self.status, body=body.encode(), headers={"Content-Type": content_type, **self.headers}
        )


async def _stream_endlessly(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(CHUNK)


LOOPBACK = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def loopback_only(hosts: Iterable[str] = ()) -> Middleware:
    """Refuse whoever calls the server by another name than this machine's or one of `hosts`.

    A name of another site that leads here makes its page one of ours for a browser, which is then let in
    to everything. What a browser says is sent by another site is refused as well.
    """
    names = allowed_hosts(LOOPBACK, hosts)

    @web.middleware
    async def check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        if parse_host_header(request.headers.get("Host", "")) not in names:
            return web.Response(status=421, text="this server is not called so")
        if is_cross_site(request.headers):
            return web.Response(status=403, text="another site's page has no business here")
        return await handler(request)

    return check_request
