"""A chat platform on this machine that records what it handed out and what it was sent.

It speaks a small protocol: `GET /updates?offset=` hands out messages and takes the offset as an
acknowledgement of all before it, `POST /send` posts, `POST /edit` changes what was posted, `GET /sent` gives
back what the bot has posted where the platform can be asked, `POST /effects` counts the side effects of
actions. `/file` is served as to a proxy, by any name of a host.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from tests.chaos.wire import ASKED, Wire, unhurt

LONG_POLL = 2.0
MOST_UPDATES = 100


class Ability(StrEnum):
    """What the platform does about a message that is sent twice."""

    NONCE = "nonce"
    REFUSING = "refusing"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Update:
    """A message of a user to the bot."""

    id: int
    name: str
    room: str
    text: str
    is_private: bool = True
    file: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as the protocol has it."""
        return {
            "id": self.id,
            "name": self.name,
            "room": self.room,
            "text": self.text,
            "private": self.is_private,
            "file": self.file,
        }


@dataclass(frozen=True, slots=True)
class Post:
    """One request to post: `key` names the delivery, for the record; `is_new` if it was posted."""

    key: str
    room: str
    text: str
    reply_to: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Edit:
    """One request to change a post; without a text the post is taken away."""

    key: str
    post: str
    text: str


@dataclass(slots=True)
class PlatformRecord:
    """All that went over the wire, in order."""

    updates: list[Update] = field(default_factory=list)
    handed_out: list[int] = field(default_factory=list)
    acknowledged: int = 0
    posts: list[Post] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    effects: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def posted(self) -> list[Post]:
        """What can be read in the rooms."""
        return [post for post in self.posts if post.is_new]


class Platform:
    """The server; to be entered."""

    def __init__(self, ability: Ability, wire: Wire) -> None:
        self.ability = ability
        self.record = PlatformRecord()
        self.url = ""
        self._wire = wire
        self.hands_out_again = False
        self._rooms: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._nonces: dict[str, str] = {}
        self._fed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "Platform":
        app = web.Application(middlewares=[unhurt])
        app.router.add_get("/updates", self._updates)
        app.router.add_post("/send", self._send)
        app.router.add_post("/edit", self._edit)
        app.router.add_get("/sent", self._sent)
        app.router.add_post("/effects", self._effects)
        app.router.add_get("/file", self._file)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fed.set()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def readable(self) -> list[str]:
        """What can be read in all rooms now, each post as it was edited last."""
        return [text for room in self._rooms.values() for _, text in room if text]

    def feed(self, room: str, text: str, *, is_private: bool = True, file: str = "") -> Update:
        """Add a message of a user."""
        number = len(self.record.updates) + 1
        update = Update(number, f"m{number}", room, text, is_private, file)
        self.record.updates.append(update)
        self._fed.set()
        self._fed = asyncio.Event()
        return update

    async def _updates(self, request: web.Request) -> web.Response:
        offset = int(request.query["offset"])
        if self.hands_out_again:
            self.hands_out_again, offset = False, 1
        self.record.acknowledged = max(self.record.acknowledged, offset - 1)
        self._wire.note(ASKED)
        if len(self.record.updates) < offset:
            fed = self._fed
            try:
                async with asyncio.timeout(LONG_POLL):
                    await fed.wait()
            except TimeoutError:
                return web.json_response([])
        batch = self.record.updates[max(offset - 1, 0) :][:MOST_UPDATES]
        self.record.handed_out += [update.id for update in batch]
        self._wire.note("updates handed out")
        return web.json_response([update.as_json() for update in batch])

    async def _send(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        room, text, nonce = wanted["room"], wanted["text"], wanted["nonce"]
        known = self._known(room, text, nonce)
        post_id = known or f"p{len(self.record.posts) + 1}"
        post = Post(wanted["key"], room, text, wanted["reply_to"], is_new=not known)
        self.record.posts.append(post)
        if post.is_new:
            self._rooms[room].append((post_id, text))
            self._nonces[nonce] = post_id
        self._wire.note("post")
        if known and self.ability is Ability.REFUSING:
            return web.json_response({"error": "duplicate", "id": known}, status=409)
        return web.json_response({"id": post_id})

    async def _edit(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        edit = Edit(wanted["key"], wanted["id"], wanted["text"])
        self.record.edits.append(edit)
        for room in self._rooms.values():
            room[:] = [(post_id, edit.text if post_id == edit.post else text) for post_id, text in room]
        self._wire.note("edit")
        return web.json_response({})

    def _known(self, room: str, text: str, nonce: str) -> str | None:
        if self.ability is Ability.NONCE:
            return self._nonces.get(nonce)
        if self.ability is Ability.REFUSING:
            return next((post_id for post_id, text_of_post in self._rooms[room] if text_of_post == text), None)
        return None

    async def _sent(self, request: web.Request) -> web.Response:
        if self.ability is not Ability.REFUSING:
            return web.json_response({"error": "not here"}, status=404)
        posts = self._rooms[request.query["room"]]
        return web.json_response([{"id": post_id, "text": text} for post_id, text in posts])

    async def _file(self, request: web.Request) -> web.Response:
        self._wire.note("file")
        return web.Response(text="what stands in the file")

    async def _effects(self, request: web.Request) -> web.Response:
        effect = await request.json()
        self.record.effects.append((effect["kind"], effect["name"], effect["key"]))
        self._wire.note("effect")
        return web.json_response({})
