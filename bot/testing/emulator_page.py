"""The page of an emulator: the web app's components over a small JSON API, and a WebSocket that tells what changes."""

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from importlib.resources.abc import Traversable
from mimetypes import guess_type
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from bot.concurrency.bounded import BoundedDict
from bot.inbound.emulated_platform import EmulatedOutcome
from bot.testing.emulator import Ability, ActionRefused, EmulatorActions, EmulatorMessage, EmulatorView, FileContent
from bot.testing.emulator_live import MAX_MESSAGES, EmulatorLive

PAGES = "adapters.web"  # the web app, whose files the page consists of
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_UPLOADS = 20
MAX_NAME_LENGTH = 60
RECEIPT_TIMEOUT = 10.0
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


class EmulatorPage:
    """Serves the page of an emulator, behind `loopback_only`. Requests of HTML forms are refused."""

    def __init__(self, view: EmulatorView) -> None:
        self._view = view
        self._actions = view if isinstance(view, EmulatorActions) else EmulatorActions()
        self._folder = files(PAGES).joinpath("pages")
        html = self._folder.joinpath("emulated.html").read_text(encoding="utf-8")
        self._html = html.replace("PLATFORM", view.platform)
        self._uploads: BoundedDict[str, FileContent] = BoundedDict(MAX_UPLOADS)
        self._live = EmulatorLive(view, self._actions)
        self._web_url = ""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/", self._serve_page),
            web.get("/pages/{path:.+}", self._serve_static),
            web.get("/page/shown", self._serve_state),
            web.get("/page/live", self._live.serve),
            web.get("/page/file", self._serve_file),
            web.post("/page/files", self._upload),
            web.post("/page/say", self._send_message),
            web.post("/page/press", self._press_button),
            web.post("/page/edit", self._edit_message),
            web.post("/page/delete", self._delete_message),
            web.post("/page/react", self._react),
            web.post("/page/people", self._add_person),
            web.post("/page/rooms", self._add_room),
            web.get("/api/session", self._serve_from_web),
            web.get("/api/receipts/{id:[0-9a-fA-F-]+}", self._serve_from_web),
            web.get("/api/receipts/{id:[0-9a-fA-F-]+}/prompts", self._serve_from_web),
        ]

    def connect_web(self, url: str) -> None:
        """Set the address of the web adapter, whose receipts the page shows to a browser that is signed in there."""
        self._web_url = self._live.web_url = url

    def show_outcome(self, outcome: EmulatedOutcome) -> None:
        """Show what a character made of a message, under it."""
        self._live.add_outcome(outcome)

    def changed(self) -> None:
        """Update the open pages; call it whenever something may have changed."""
        self._live.changed()

    async def close(self) -> None:
        """Close the connections of all open pages."""
        await self._live.close()

    async def _serve_page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=HEADERS)

    async def _serve_static(self, request: web.Request) -> web.Response:
        """Respond with a file of the web app."""
        path = request.match_info["path"]
        suffix = path[path.rfind(".") :]
        if suffix not in TYPES or any(part in ("", "..", ".") or "\\" in part for part in path.split("/")):
            raise web.HTTPNotFound
        file: Traversable = self._folder.joinpath(path)
        if not file.is_file():
            raise web.HTTPNotFound
        headers = {**HEADERS, "Cache-Control": "private, no-cache"}
        return web.Response(body=file.read_bytes(), content_type=TYPES[suffix], charset="utf-8", headers=headers)

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

    async def _upload(self, request: web.Request) -> web.Response:
        """Store a file until a message is sent with it; return its id."""
        if request.content_type != "application/octet-stream":
            raise web.HTTPForbidden
        self._check(Ability.FILES)
        if (request.content_length or 0) > MAX_FILE_BYTES or len(data := await request.read()) > MAX_FILE_BYTES:
            return _refuse(f"the file is longer than {MAX_FILE_BYTES // 1024**2} MB")
        name = unquote(request.headers.get("X-File-Name", "")).replace("/", "_").strip()[:200] or "file"
        if not _is_text(name):
            raise web.HTTPBadRequest
        content_type = request.headers.get("X-File-Type", "") or guess_type(name)[0] or "application/octet-stream"
        file_id = token_urlsafe(12)
        self._uploads[file_id] = FileContent(name, content_type.split(";")[0].strip().lower()[:100], data)
        return web.json_response({"id": file_id})

    async def _send_message(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request)
        text = str(body.get("text") or "").strip()[: self._view.max_length]
        reply_to = str(body.get("answers") or "")
        ids = str(body.get("files") or "").split(",") if body.get("files") else []
        sent = [file for file_id in ids if (file := self._uploads.get(file_id)) is not None]
        if len(sent) != len(ids):
            return _refuse("a file is no longer stored: attach it again")
        if sent:
            self._check(Ability.FILES)
            return await self._act(lambda: self._actions.send_files(room_id, user_id, text, reply_to, sent))
        problem = await self._view.send_message(room_id, user_id, text, reply_to) if text else "the message is empty"
        self.changed()
        return web.json_response({"problem": problem}, status=400 if problem else 200)

    async def _press_button(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request)
        target, button_id = self._find_message(room_id, body), str(body.get("button"))
        if button_id not in dict(target.buttons):
            raise web.HTTPBadRequest
        await self._view.press_button(room_id, user_id, target.id, button_id)
        self.changed()
        return web.json_response({})

    async def _edit_message(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request, Ability.EDIT)
        text = str(body.get("text") or "").strip()[: self._view.max_length]
        target = self._find_message(room_id, body)
        if target.is_bot or target.user_id != user_id:
            return _refuse("only its author can edit a message")
        if not text:
            return _refuse("the message is empty")
        return await self._act(lambda: self._actions.edit_message(room_id, target.id, text))

    async def _delete_message(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request, Ability.DELETE)
        target = self._find_message(room_id, body)
        if target.is_bot or target.user_id != user_id:
            return _refuse("only its author can delete a message")
        return await self._act(lambda: self._actions.delete_message(room_id, target.id))

    async def _react(self, request: web.Request) -> web.Response:
        room_id, user_id, body = await self._read_request(request, Ability.REACT)
        target, emoji = self._find_message(room_id, body), str(body.get("emoji") or "")
        if emoji not in self._actions.emojis:
            raise web.HTTPBadRequest
        return await self._act(lambda: self._actions.toggle_reaction(room_id, user_id, target.id, emoji))

    async def _add_person(self, request: web.Request) -> web.Response:
        _, _, body = await self._read_request(request, Ability.ADD_PERSON)
        name = str(body.get("name") or "").strip()[:MAX_NAME_LENGTH]
        if not name:
            return _refuse("the person needs a name")
        return await self._act(lambda: self._actions.add_person(name))

    async def _add_room(self, request: web.Request) -> web.Response:
        room_id, _, body = await self._read_request(request)
        kind, name = str(body.get("kind") or ""), str(body.get("name") or "").strip()[:MAX_NAME_LENGTH]
        if kind not in dict(self._actions.room_kinds):
            raise web.HTTPBadRequest
        if not name:
            return _refuse("the room needs a name")
        return await self._act(lambda: self._actions.add_room(kind, name, room_id))

    async def _act(self, action: Callable[[], Any]) -> web.Response:
        """Carry out an action; respond with its result, or with why the platform refuses."""
        try:
            result = await action()
        except ActionRefused as error:
            return _refuse(str(error))
        self.changed()
        return web.json_response({"id": result} if isinstance(result, str) else {})

    def _check(self, ability: Ability) -> None:
        if ability not in self._actions.abilities:
            raise web.HTTPNotFound

    def _find_message(self, room_id: str, body: dict[str, Any]) -> EmulatorMessage:
        wanted = str(body.get("message"))
        target = next((item for item in self._view.messages(room_id) if item.id == wanted), None)
        if target is None:
            raise web.HTTPBadRequest
        return target

    async def _read_request(
        self, request: web.Request, ability: Ability | None = None
    ) -> tuple[str, str, dict[str, Any]]:
        """Return room, user and body of a request; room and user default to the first ones."""
        if request.content_type != "application/json":
            raise web.HTTPForbidden
        if ability is not None:
            self._check(ability)
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


def _refuse(problem: str) -> web.Response:
    return web.json_response({"problem": problem}, status=400)


def _answer_error(status: int, code: str, message: str) -> web.Response:
    document = {"error": {"code": code, "message": message}}
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def _is_text(value: object) -> bool:
    """Return whether a value is null or a text that can be sent on: without half a surrogate pair."""
    return value is None or (isinstance(value, str) and value.encode("utf-8", "replace").decode() == value)
