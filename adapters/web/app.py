"""The application: what stands at which address, and what guards it."""

from collections.abc import Collection, Sequence

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.api import Api
from adapters.web.auth import Lock
from adapters.web.books import Doors
from adapters.web.config import Limits
from adapters.web.costs import CostsApi
from adapters.web.errands import Errands
from adapters.web.files import add_files
from adapters.web.guards import Guards, add_headers
from adapters.web.health import HealthApi
from adapters.web.hub import Hub
from adapters.web.operations import OPERATIONS
from adapters.web.outbox import OutboxApi
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.sockets import Sockets
from adapters.web.stream import Streams
from adapters.web.talk import Talk
from adapters.web.throttle import Throttle
from bot import Door


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
