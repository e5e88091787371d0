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

from bot.http import allowed_hosts, host_name, is_foreign

LAST = 200


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody one may be on the page, or a character to be mentioned: there `id` is how that is written."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where one may talk, and as whom; `hint` says when a character answers there."""

    id: str
    name: str
    people: tuple[Person, ...]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One message; `buttons` are what may be pressed below it, each with its id and what it says."""

    id: str
    by: str
    text: str
    is_bot: bool = False
    note: str = ""
    buttons: tuple[tuple[str, str], ...] = ()


class Scene(Protocol):
    """What an emulated platform shows on the page, and what a person may do there."""

    platform: str
    longest: int

    def places(self) -> Sequence[Place]:
        """List where one may talk; the first is where the page begins."""

    def bots(self) -> Sequence[Person]:
        """List the characters that are there."""

    def said(self, place: str) -> Sequence[Said]:
        """List what was said somewhere, the newest last."""

    async def say(self, place: str, person: str, text: str, answers: str) -> str:
        """Say something, as an answer to a message or to none; gives back what stands against it."""

    async def press(self, place: str, person: str, message: str, button: str) -> None:
        """Press a button below a message."""


class TalkPage:
    """Serves the page of a scene, behind `only_from_here`; what a form of another site sends is refused."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        text = files(__package__).joinpath("emulator.html").read_text(encoding="utf-8")
        self._text = text.replace("PLATFORM", scene.platform)
        self._headers = {
            "Content-Security-Policy": _policy(self._text),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }

    def routes(self) -> list[web.RouteDef]:
        """List all routes."""
        return [
            web.get("/", self._page),
            web.get("/page/shown", self._shown),
            web.post("/page/say", self._say),
            web.post("/page/press", self._press),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._text, content_type="text/html", headers=self._headers)

    async def _shown(self, request: web.Request) -> web.Response:
        """Tell what is where; without a place, of the first."""
        places = self._scene.places()
        if not places:
            raise web.HTTPNotFound
        place = next((one for one in places if one.id == request.query.get("place")), places[0])
        told = {
            "place": place.id,
            "places": [asdict(one) for one in places],
            "bots": [asdict(one) for one in self._scene.bots()],
            "said": [asdict(one) for one in self._scene.said(place.id)[-LAST:]],
            "longest": self._scene.longest,
        }
        return web.json_response(told, headers={"Cache-Control": "no-store"})

    async def _say(self, request: web.Request) -> web.Response:
        place, person, asked = await self._asked(request)
        text = str(asked.get("text", "")).strip()[: self._scene.longest]
        problem = "there is nothing to say"
        if text:
            problem = await self._scene.say(place, person, text, str(asked.get("answers") or ""))
        return web.json_response({"problem": problem}, status=400 if problem else 200)

    async def _press(self, request: web.Request) -> web.Response:
        place, person, asked = await self._asked(request)
        message, button = str(asked.get("message")), str(asked.get("button"))
        said = next((one for one in self._scene.said(place) if one.id == message), None)
        if said is None or button not in dict(said.buttons):
            raise web.HTTPBadRequest
        await self._scene.press(place, person, message, button)
        return web.json_response({})

    async def _asked(self, request: web.Request) -> tuple[str, str, dict[str, Any]]:
        """Read where and as whom something is to be done; where it is not said, the first."""
        if request.content_type != "application/json":
            raise web.HTTPForbidden
        try:
            asked = json.loads(await request.read())
        except ValueError:
            raise web.HTTPBadRequest from None
        if not isinstance(asked, dict):
            raise web.HTTPBadRequest
        places = {one.id: one for one in self._scene.places()}
        place = places.get(str(asked.get("place") or next(iter(places), "")))
        people = {one.id: one for one in place.people} if place else {}
        person = people.get(str(asked.get("person") or next(iter(people), "")))
        if place is None or person is None:
            raise web.HTTPBadRequest
        return place.id, person.id, asked


def _policy(page: str) -> str:
    """Let the page have its own script and style, and nothing else from anywhere."""
    own = {kind: _hash(page, kind) for kind in ("script", "style")}
    return (
        f"default-src 'none'; script-src '{own['script']}'; style-src '{own['style']}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(page: str, kind: str) -> str:
    content = page.partition(f"<{kind}>")[2].partition(f"</{kind}>")[0]
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


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


HERE = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def only_from_here(hosts: Iterable[str] = ()) -> Middleware:
    """Refuse whoever calls the server by another name than this machine's or one of `hosts`.

    A name of another site that leads here makes its page one of ours for a browser, which is then let in
    to everything. What a browser says is sent by another site is refused as well.
    """
    names = allowed_hosts(HERE, hosts)

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if host_name(request.headers.get("Host", "")) not in names:
            return web.Response(status=421, text="this server is not called so")
        if is_foreign(request.headers):
            return web.Response(status=403, text="another site's page has no business here")
        return await handler(request)

    return admit
