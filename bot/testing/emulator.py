"""What the page of an emulator shows, what people do there, fault injection, and the loopback guard."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.http import allowed_hosts, is_cross_site, parse_host_header

CHUNK = b" " * 65536
LOOPBACK = "127.0.0.1"
EMOJIS = ("👍", "❤", "😂", "🎉", "😮", "👎")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Send a message with files."""
        raise NotImplementedError

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
