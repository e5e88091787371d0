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
CHUNK = b" " * 65536
LOOPBACK = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class EmulatorUser:
    """A user of the page, or a character to mention; a character's `id` is the text of the mention."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class EmulatorRoom:
    """A room of the page and its users; `hint` explains when a character answers there."""

    id: str
    name: str
    people: tuple[EmulatorUser, ...]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class EmulatorMessage:
    """One message; `buttons` are pairs of id and label."""

    id: str
    by: str
    text: str
    is_bot: bool = False
    note: str = ""
    buttons: tuple[tuple[str, str], ...] = ()


class EmulatorView(Protocol):
    """What an emulated platform shows on its page, and the actions of its users."""

    platform: str
    max_length: int

    def rooms(self) -> Sequence[EmulatorRoom]:
        """Return the rooms; the page opens with the first one."""

    def bots(self) -> Sequence[EmulatorUser]:
        """Return the characters."""

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """Return the messages of a room, the newest last."""

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message, as a reply if `reply_to` is set; return an error message, or "" for success."""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button of a message."""


class EmulatorPage:
    """Serves the chat page of an emulator, behind `loopback_only`. Requests of HTML forms are refused."""

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
        """Return all routes."""
        return [
            web.get("/", self._serve_page),
            web.get("/page/shown", self._serve_state),
            web.post("/page/say", self._send_message),
            web.post("/page/press", self._press_button),
        ]

    async def _serve_page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=self._headers)

    async def _serve_state(self, request: web.Request) -> web.Response:
        """Respond with the state of a room, by default of the first."""
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
        problem = "the message is empty"
        if text:
            problem = await self._view.send_message(room_id, user_id, text, str(body.get("answers") or ""))
        return web.json_response({"problem": problem}, status=400 if problem else 200)

    async def _press_button(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request)
        message_id, button_id = str(body.get("message")), str(body.get("button"))
        target = next((candidate for candidate in self._view.messages(room_id) if candidate.id == message_id), None)
        if target is None or button_id not in dict(target.buttons):
            raise web.HTTPBadRequest
        await self._view.press_button(room_id, user_id, message_id, button_id)
        return web.json_response({})

    async def _read_request(self, request: web.Request) -> tuple[str, str, dict[str, Any]]:
        """Return room, user and body of a request; room and user default to the first ones."""
        if request.content_type != "application/json":
            raise web.HTTPForbidden
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest from None
        if not isinstance(body, dict) or not all(_is_text(value) for value in body.values()):
            raise web.HTTPBadRequest
        rooms = {item.id: item for item in self._view.rooms()}
        room = rooms.get(str(body.get("place") or next(iter(rooms), "")))
        users = {item.id: item for item in room.people} if room else {}
        user = users.get(str(body.get("person") or next(iter(users), "")))
        if room is None or user is None:
            raise web.HTTPBadRequest
        return room.id, user.id, body


def _is_text(value: object) -> bool:
    """Return whether a value is null or a text that can be sent on: without half a surrogate pair."""
    return value is None or (isinstance(value, str) and value.encode("utf-8", "replace").decode() == value)


def _content_security_policy(html: str) -> str:
    """Return a policy that allows only the page's own script and style."""
    hashes = {kind: _hash_element(html, kind) for kind in ("script", "style")}
    return (
        f"default-src 'none'; script-src '{hashes['script']}'; style-src '{hashes['style']}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash_element(html: str, tag: str) -> str:
    content = html.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


@dataclass(slots=True)
class FaultResponse:
    """A fault for the next `times` calls that match `match`, whose meaning the platform defines.

    It responds with `status`, `body` and `headers`, or resets the connection if `status` is 0. With `is_late`
    the call is carried out first; with `is_endless` the body never ends; with `is_hanging` nothing is sent.
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
        """Return the faulty response, or break the connection."""
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


def loopback_only(hosts: Iterable[str] = ()) -> Middleware:
    """Refuse requests whose host name is neither the loopback address nor one of `hosts`.

    This prevents DNS rebinding: a browser would treat a page of another site as same-origin if its name
    resolved to this machine. Cross-site requests are refused as well, and bodies that are not the JSON of the
    platform's API.
    """
    names = allowed_hosts(LOOPBACK, hosts)

    @web.middleware
    async def check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        if parse_host_header(request.headers.get("Host", "")) not in names:
            return web.Response(status=421, text="unknown host name")
        if is_cross_site(request.headers):
            return web.Response(status=403, text="cross-site requests are refused")
        try:
            return await handler(request)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            return web.Response(status=400, text="the body is not JSON, or nested too deeply")

    return check_request
