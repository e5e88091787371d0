"""The page of an emulator: what it shows, what people do there, and the web app's components over a JSON API."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.resources import files
from mimetypes import guess_type
from secrets import token_urlsafe
from typing import Any, Protocol
from urllib.parse import quote, unquote

from aiohttp import ClientError, ClientSession, ClientTimeout, WSCloseCode, WSMsgType, web

from bot.concurrency.tasks import BoundedDict
from bot.inbound.agent_handle import EmulatedOutcome

PAGES = "adapters.web"  # the web app, whose files the page consists of
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_UPLOADS = 20
MAX_NAME_LENGTH = 60
MAX_MESSAGES = 200
MAX_OUTCOMES = 10_000
MAX_FRAME_BYTES = 4096
RECEIPT_TIMEOUT = 10.0
UPDATE_INTERVAL = 0.04  # seconds between two updates of a page, such as of a text that is being written
HEARTBEAT = 30.0
CLOSED_ERRORS = (ConnectionError, RuntimeError)
EMOJIS = ("👍", "❤", "😂", "🎉", "😮", "👎")
SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SHOWN_KINDS = ("audio/", "video/")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
FILE_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json"}
Json = dict[str, Any]
Action = Callable[[str, str, Json], Awaitable[Json | None]]  # of a room, a user and the body of a request


@dataclass(frozen=True, slots=True)
class EmulatorUser:
    """A user of the page, or a character to mention; a character's `id` is the text of the mention."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class EmulatorRoom:
    """A room of the page and its users; `hint` explains when a character answers there.

    The page lists it below the heading `group`. `newest` is the id of its newest message.
    """

    id: str
    name: str
    people: tuple[EmulatorUser, ...]
    hint: str = ""
    group: str = ""
    newest: str = ""


@dataclass(frozen=True, slots=True)
class EmulatorFile:
    """A file of a message; `id` is what `EmulatorActions.read_file` takes."""

    id: str
    name: str
    content_type: str = "application/octet-stream"
    size: int = 0


@dataclass(frozen=True, slots=True)
class EmulatorMessage:
    """One message; `buttons` are pairs of id and label.

    `at` is its time in ISO format, `reply_to` the id of the message that it answers. `reactions` are pairs of an emoji
    and the ids of those who chose it. `spans` mark formatted ranges of the text as (kind, start, length, detail),
    counted in UTF-16 units. `thread` is the adapter's id of the room, where that is not the room of the page.
    """

    id: str
    by: str
    text: str
    is_bot: bool = False
    note: str = ""
    buttons: tuple[tuple[str, str], ...] = ()
    user_id: str = ""
    at: str = ""
    reply_to: str = ""
    is_edited: bool = False
    files: tuple[EmulatorFile, ...] = ()
    reactions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    spans: tuple[tuple[str, int, int, str], ...] = ()
    thread: str = ""


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


class Ability(StrEnum):
    """What people can do on a platform beside writing and replying."""

    EDIT = "edit"
    DELETE = "delete"
    REACT = "react"
    FILES = "files"
    ADD_PERSON = "add person"


class ActionRefused(Exception):
    """The platform refuses what a person does; the text is its explanation."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file that a person sends."""

    name: str
    content_type: str
    data: bytes = field(repr=False)


class EmulatorActions:
    """What a view may offer beyond `EmulatorView`: it derives from this class and overrides what its platform has.

    `dialect` is how the platform shows formatted text: "discord", "spans" or "plain". `abilities` are the actions that
    are overridden, `emojis` those offered for reactions, `room_kinds` pairs of a kind of room that people can add and
    its name. Each action raises ActionRefused where the platform would refuse.
    """

    dialect = "plain"
    abilities: frozenset[Ability] = frozenset()
    emojis: Sequence[str] = EMOJIS
    room_kinds: Sequence[tuple[str, str]] = ()

    def typing(self, room_id: str) -> Sequence[str]:
        """Return the names of the characters that are typing in a room."""
        return ()

    def read_file(self, file_id: str) -> FileContent | None:
        """Return a file of a message."""
        return None

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message, by default as one without files; return an error message, or "" for success."""
        await self.send_files(room_id, user_id, text, reply_to, ())
        return ""

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Send a message with files."""
        raise NotImplementedError

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button of a message; do nothing where the platform has no buttons."""

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        """Edit a message of a person."""
        raise NotImplementedError

    async def delete_message(self, room_id: str, message_id: str) -> None:
        """Delete a message of a person."""
        raise NotImplementedError

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Add a reaction of a person, or remove it."""
        raise NotImplementedError

    async def add_person(self, name: str) -> None:
        """Add a person, with a direct chat with each character where the platform has such chats."""
        raise NotImplementedError

    async def add_room(self, kind: str, name: str, near: str) -> str:
        """Add a room of a kind beside or below the room `near`; return its id."""
        raise NotImplementedError


class EmulatorPage:
    """Serves the page of an emulator, behind `loopback_only`. Requests of HTML forms are refused.

    Each open page is sent the room that it shows, and then what has changed in it: an update compares the messages
    with those that were sent, so the emulator has only to call `changed` when something may have changed.
    """

    def __init__(self, view: EmulatorView) -> None:
        self.view = view
        self.listeners: list[Callable[[], None]] = []  # called by `changed`
        self._actions = view if isinstance(view, EmulatorActions) else EmulatorActions()
        self._folder = files(PAGES).joinpath("pages")
        html = self._folder.joinpath("emulated.html").read_text(encoding="utf-8")
        self._html = html.replace("PLATFORM", view.platform)
        self._uploads: BoundedDict[str, FileContent] = BoundedDict(MAX_UPLOADS)
        self._outcomes: BoundedDict[tuple[str, str], dict[str, EmulatedOutcome]] = BoundedDict(MAX_OUTCOMES)
        self._tabs: set[_Tab] = set()
        self._web_url = ""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/", self._serve_page),
            web.get("/pages/{path:.+}", self._serve_static),
            web.get("/page/shown", self._serve_state),
            web.get("/page/live", self._serve_updates),
            web.get("/page/file", self._serve_file),
            web.post("/page/files", self._upload),
            self._action("say", self._send_message),
            self._action("press", self._press_button),
            self._action("edit", self._edit_message, Ability.EDIT),
            self._action("delete", self._delete_message, Ability.DELETE),
            self._action("react", self._react, Ability.REACT),
            self._action("people", self._add_person, Ability.ADD_PERSON),
            self._action("rooms", self._add_room),
            web.get("/api/session", self._serve_from_web),
            web.get("/api/receipts/{id:[0-9a-fA-F-]+}", self._serve_from_web),
            web.get("/api/receipts/{id:[0-9a-fA-F-]+}/prompts", self._serve_from_web),
        ]

    def connect_web(self, url: str) -> None:
        """Set the address of the web adapter, whose receipts the page shows to a browser that is signed in there."""
        self._web_url = url

    def show_outcome(self, outcome: EmulatedOutcome) -> None:
        """Show what a character made of a message, under it; it replaces what that character made of it before."""
        key = (outcome.room, outcome.message)
        self._outcomes[key] = {**(self._outcomes.get(key) or {}), outcome.agent: outcome}
        self.changed()

    def changed(self) -> None:
        """Update the open pages; call it whenever something may have changed."""
        for tab in self._tabs:
            tab.is_stale.set()
        for listener in self.listeners:
            listener()

    async def close(self) -> None:
        """Close the connections of all open pages."""
        for tab in list(self._tabs):
            with suppress(*CLOSED_ERRORS):
                await tab.socket.close(code=WSCloseCode.GOING_AWAY)

    async def _serve_page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=HEADERS)

    async def _serve_static(self, request: web.Request) -> web.Response:
        """Respond with a file of the web app."""
        path = request.match_info["path"]
        suffix = path[path.rfind(".") :]
        if suffix not in TYPES or any(part in ("", "..", ".") or "\\" in part for part in path.split("/")):
            raise web.HTTPNotFound
        file = self._folder.joinpath(path)
        if not file.is_file():
            raise web.HTTPNotFound
        headers = {**HEADERS, "Cache-Control": "private, no-cache"}
        return web.Response(body=file.read_bytes(), content_type=TYPES[suffix], charset="utf-8", headers=headers)

    async def _serve_state(self, request: web.Request) -> web.Response:
        """Respond with the state of a room, by default of the first."""
        rooms = self.view.rooms()
        if not rooms:
            raise web.HTTPNotFound
        room = next((item for item in rooms if item.id == request.query.get("place")), rooms[0])
        document = {
            "place": room.id,
            "places": [asdict(item) for item in rooms],
            "bots": [asdict(item) for item in self.view.bots()],
            "said": [asdict(item) for item in self.view.messages(room.id)[-MAX_MESSAGES:]],
            "longest": self.view.max_length,
        }
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    async def _serve_file(self, request: web.Request) -> web.Response:
        """Respond with a file of a message; only pictures and recordings are shown in place."""
        file = self._actions.read_file(request.query.get("id", ""))
        if file is None:
            raise web.HTTPNotFound
        is_shown = file.content_type in SHOWN_TYPES or file.content_type.startswith(SHOWN_KINDS)
        disposition = "inline" if is_shown else "attachment"
        headers = {
            **HEADERS,
            "Content-Security-Policy": FILE_POLICY,
            "Content-Type": file.content_type if is_shown else "application/octet-stream",
            "Content-Disposition": f"{disposition}; filename*=UTF-8''{quote(file.name, safe='')}",
        }
        return web.Response(body=file.data, headers=headers)

    async def _serve_updates(self, request: web.Request) -> web.StreamResponse:
        """Serve the WebSocket of a page. It names the room that it shows by the frame `{"place": ID}`."""
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_FRAME_BYTES)
        await socket.prepare(request)
        tab = _Tab(socket)
        self._tabs.add(tab)
        updates = asyncio.create_task(self._send_updates(tab), name="updates of an emulator's page")
        try:
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT or not tab.choose(frame.data):
                    break
        finally:
            self._tabs.discard(tab)
            updates.cancel()
            await asyncio.gather(updates, return_exceptions=True)
        await socket.close()
        return socket

    async def _send_updates(self, tab: "_Tab") -> None:
        with suppress(*CLOSED_ERRORS):
            while True:
                await tab.is_stale.wait()
                tab.is_stale.clear()
                for frame in (self._platform_frame(tab), self._room_frame(tab)):
                    if frame is not None:
                        await tab.socket.send_str(json.dumps(frame))
                await asyncio.sleep(UPDATE_INTERVAL)

    def _platform_frame(self, tab: "_Tab") -> Json | None:
        """Return rooms, people and characters, if they are others than those sent."""
        frame = {
            "type": "platform",
            "places": [asdict(room) for room in self.view.rooms()],
            "bots": [asdict(bot) for bot in self.view.bots()],
            "platform": self.view.platform,
            "dialect": self._actions.dialect,
            "abilities": sorted(self._actions.abilities),
            "kinds": [list(kind) for kind in self._actions.room_kinds],
            "emojis": list(self._actions.emojis),
            "longest": self.view.max_length,
            "web": self._web_url,
        }
        if frame == tab.platform:
            return None
        tab.platform = frame
        return frame

    def _room_frame(self, tab: "_Tab") -> Json | None:
        """Return the messages of the room that a page shows: all at first, then those that have changed."""
        rooms = [room.id for room in self.view.rooms()]
        if not rooms:
            return None
        place = tab.place if tab.place in rooms else rooms[0]
        is_first = place != tab.sent_place
        if is_first:
            tab.sent_place, tab.sent, tab.typing = place, {}, []
        messages: dict[str, Json] = {}
        for message in self.view.messages(place)[-MAX_MESSAGES:]:
            outcomes = (self._outcomes.get((message.thread or place, message.id)) or {}).values()
            messages[message.id] = {**asdict(message), "outcomes": [outcome.describe() for outcome in outcomes]}
        changed = [document for key, document in messages.items() if tab.sent.get(key) != document]
        gone = [key for key in tab.sent if key not in messages]
        typing = list(self._actions.typing(place))
        if not (is_first or changed or gone or typing != tab.typing):
            return None
        tab.sent, tab.typing = messages, typing
        kind = "room" if is_first else "changed"
        return {"type": kind, "place": place, "messages": changed, "gone": gone, "typing": typing}

    def _action(self, name: str, carry_out: Action, ability: Ability | None = None) -> web.RouteDef:
        """Return the route of an action of a person; it responds with its result, or with why it is refused."""

        async def act(request: web.Request) -> web.Response:
            if request.content_type != "application/json":
                raise web.HTTPForbidden
            self._check(ability)
            room_id, user_id, body = await self._read_request(request)
            try:
                result = await carry_out(room_id, user_id, body)
            except ActionRefused as error:
                return web.json_response({"problem": str(error)}, status=400)
            self.changed()
            return web.json_response(result or {})

        return web.post(f"/page/{name}", act)

    async def _upload(self, request: web.Request) -> web.Response:
        """Store a file until a message is sent with it; return its id."""
        if request.content_type != "application/octet-stream":
            raise web.HTTPForbidden
        self._check(Ability.FILES)
        if (request.content_length or 0) > MAX_FILE_BYTES or len(data := await request.read()) > MAX_FILE_BYTES:
            problem = f"the file is longer than {MAX_FILE_BYTES // 1024**2} MB"
            return web.json_response({"problem": problem}, status=400)
        name = unquote(request.headers.get("X-File-Name", "")).replace("/", "_").strip()[:200] or "file"
        if not _is_text(name):
            raise web.HTTPBadRequest
        content_type = request.headers.get("X-File-Type", "") or guess_type(name)[0] or "application/octet-stream"
        file_id = token_urlsafe(12)
        self._uploads[file_id] = FileContent(name, content_type.split(";")[0].strip().lower()[:100], data)
        return web.json_response({"id": file_id})

    async def _send_message(self, room_id: str, user_id: str, body: Json) -> Json | None:
        text, reply_to = self._text_of(body), str(body.get("answers") or "")
        ids = str(body["files"]).split(",") if body.get("files") else []
        sent = [file for file_id in ids if (file := self._uploads.get(file_id)) is not None]
        if len(sent) != len(ids):
            raise ActionRefused("a file is no longer stored: attach it again")
        if sent:
            self._check(Ability.FILES)
            await self._actions.send_files(room_id, user_id, text, reply_to, sent)
            return None
        if not text:
            raise ActionRefused("the message is empty")
        if problem := await self.view.send_message(room_id, user_id, text, reply_to):
            raise ActionRefused(problem)
        return {"problem": ""}

    async def _press_button(self, room_id: str, user_id: str, body: Json) -> None:
        target, button_id = self._find_message(room_id, body), str(body.get("button"))
        if button_id not in dict(target.buttons):
            raise web.HTTPBadRequest
        await self.view.press_button(room_id, user_id, target.id, button_id)

    async def _edit_message(self, room_id: str, user_id: str, body: Json) -> None:
        target, text = self._find_message(room_id, body), self._text_of(body)
        if target.is_bot or target.user_id != user_id:
            raise ActionRefused("only its author can edit a message")
        if not text:
            raise ActionRefused("the message is empty")
        await self._actions.edit_message(room_id, target.id, text)

    async def _delete_message(self, room_id: str, user_id: str, body: Json) -> None:
        target = self._find_message(room_id, body)
        if target.is_bot or target.user_id != user_id:
            raise ActionRefused("only its author can delete a message")
        await self._actions.delete_message(room_id, target.id)

    async def _react(self, room_id: str, user_id: str, body: Json) -> None:
        target, emoji = self._find_message(room_id, body), str(body.get("emoji") or "")
        if emoji not in self._actions.emojis:
            raise web.HTTPBadRequest
        await self._actions.toggle_reaction(room_id, user_id, target.id, emoji)

    async def _add_person(self, room_id: str, user_id: str, body: Json) -> None:
        await self._actions.add_person(_name_of(body, "person"))

    async def _add_room(self, room_id: str, user_id: str, body: Json) -> Json:
        kind = str(body.get("kind") or "")
        if kind not in dict(self._actions.room_kinds):
            raise web.HTTPBadRequest
        return {"id": await self._actions.add_room(kind, _name_of(body, "room"), room_id)}

    def _check(self, ability: Ability | None) -> None:
        if ability is not None and ability not in self._actions.abilities:
            raise web.HTTPNotFound

    def _text_of(self, body: Json) -> str:
        return str(body.get("text") or "").strip()[: self.view.max_length]

    def _find_message(self, room_id: str, body: Json) -> EmulatorMessage:
        wanted = str(body.get("message"))
        target = next((item for item in self.view.messages(room_id) if item.id == wanted), None)
        if target is None:
            raise web.HTTPBadRequest
        return target

    async def _read_request(self, request: web.Request) -> tuple[str, str, Json]:
        """Return room, user and body of a request; room and user default to the first ones."""
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest from None
        if not isinstance(body, dict) or not all(_is_text(value) for value in body.values()):
            raise web.HTTPBadRequest
        rooms = {item.id: item for item in self.view.rooms()}
        room = rooms.get(str(body.get("place") or next(iter(rooms), "")))
        users = {item.id: item for item in room.people} if room else {}
        user = users.get(str(body.get("person") or next(iter(users), "")))
        if room is None or user is None:
            raise web.HTTPBadRequest
        return room.id, user.id, body

    async def _serve_from_web(self, request: web.Request) -> web.Response:
        """Respond with what the web adapter says to this browser: the cookie of its operator decides.

        Browsers send the cookies of a host to all of its ports, so who is signed in there is known here.
        """
        if not self._web_url:
            return _answer_error(404, "not_found", "The web page is off in this run, and receipts are shown by it.")
        headers = {"Accept": "application/json", "Cookie": request.headers.get("Cookie", "")}
        try:
            async with (
                ClientSession(timeout=ClientTimeout(RECEIPT_TIMEOUT)) as session,
                session.get(f"{self._web_url}{request.path}", headers=headers, allow_redirects=False) as answer,
            ):
                body, status = await answer.read(), answer.status
        except (ClientError, TimeoutError):
            return _answer_error(502, "unavailable", "The web page does not answer.")
        if status == 401:
            text = "Receipts are for the operator: open the link with the token that bot run prints, then try again."
            return _answer_error(403, "forbidden", text)
        return web.Response(body=body, status=status, content_type="application/json", headers=HEADERS)


def _name_of(body: Json, what: str) -> str:
    name = str(body.get("name") or "").strip()[:MAX_NAME_LENGTH]
    if not name:
        raise ActionRefused(f"the {what} needs a name")
    return name


def _answer_error(status: int, code: str, message: str) -> web.Response:
    document = {"error": {"code": code, "message": message}}
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def _is_text(value: object) -> bool:
    """Return whether a value is null or a text that can be sent on: without half a surrogate pair."""
    return value is None or (isinstance(value, str) and value.encode("utf-8", "replace").decode() == value)


class _Tab:
    """One open page: the room that it shows, and what it was sent."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.is_stale = asyncio.Event()
        self.is_stale.set()
        self.place = ""
        self.sent_place: str | None = None
        self.sent: Mapping[str, Json] = {}
        self.typing: list[str] = []
        self.platform: Json = {}

    def choose(self, text: str) -> bool:
        """Show the room that a frame names; return whether the frame is valid."""
        try:
            frame = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(frame, dict) or not isinstance(frame.get("place"), str):
            return False
        self.place = frame["place"]
        self.sent_place = None
        self.is_stale.set()
        return True
