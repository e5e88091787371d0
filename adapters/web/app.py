"""aiohttp application: routes, static pages."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from adapters.web.api import Api, CostsApi, HealthApi, OutboxApi
from adapters.web.auth import Lock, Throttle
from adapters.web.config import Limits
from adapters.web.json_io import Answers
from adapters.web.messages import Errands, Streams, Talk
from adapters.web.middleware import Guards, add_headers
from adapters.web.openapi import OPERATIONS
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.queries import Doors
from adapters.web.room_updates import Hub
from adapters.web.websocket import Sockets
from bot.platform import Door


class Front:
    """Everything behind the listening socket; `secrets` are values that never leave."""

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        lock: Lock,
        hosts: frozenset[str],
        secrets: Collection[str],
        limits: Limits,
    ) -> None:
        self.doors = Doors(doors)
        self.hub = Hub()
        self._errands = Errands()
        answers = Answers(secrets)
        talk = Talk(self.hub, self._errands)
        streams = Streams(talk, self.hub, answers, keep_alive=limits.keep_alive_seconds)
        api = Api(self.doors, talk, streams, answers, limits)
        outbox = OutboxApi(self.doors, self._errands, answers)
        self._sockets = Sockets(self.doors, talk, self.hub, answers, limits)
        plugins = PluginRoutes(self.doors, self._errands, answers, limits)
        self._guards = Guards(answers, lock, hosts, Throttle(limits.guesses))
        self.app = web.Application(
            client_max_size=limits.body, middlewares=[self._guards.explain, self._guards.admit]
        )
        self.app.on_response_prepare.append(add_headers)
        handlers = {
            "costs": CostsApi(self.doors, answers).costs,
            "health": HealthApi(doors, answers).health,
            "agents": api.agents,
            "say": api.say,
            "rooms": api.rooms,
            "messages": api.messages,
            "receipts": api.receipts,
            "receipt": api.receipt,
            "outbox": outbox.outbox,
            "send": outbox.send,
            "drop": outbox.drop,
            "openapi": api.openapi,
            "socket": self._sockets.handle,
        }
        router = self.app.router
        for operation in OPERATIONS:
            add = router.add_get if operation.method == "GET" else router.add_post
            add(operation.path, handlers[operation.name])
        add_files(router)
        for route in plugins.add_to(router):
            self._guards.open(route)

    async def stop(self) -> None:
        """End the conversations, and whatever was begun for them."""
        await self._sockets.close()
        await self._errands.stop()


FOLDER = Path(__file__).with_name("pages")
PAGES = {"/": "chat.html"}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is served; `etag` changes with what is in it."""

    body: bytes
    content_type: str
    etag: str

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer with the file, or with the news that the client has it."""
        is_page = self.content_type == "text/html"
        caching = "no-store" if is_page else "private, no-cache"
        known = request.if_none_match or ()
        if not is_page and any(one.value == self.etag for one in known):
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type, charset="utf-8")
        if not is_page:
            response.etag = self.etag
        response.headers["Cache-Control"] = caching
        return response


def add_files(router: web.UrlDispatcher) -> None:
    """Serve every page under its address and everything else under `/pages/`."""
    for address, name in PAGES.items():
        router.add_get(address, _read(FOLDER / name).serve)
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES and path.name not in PAGES.values():
            router.add_get(f"/pages/{path.name}", _read(path).serve)


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(body, TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])
