"""Routes: HTTP addresses that a plugin answers, under `/plugins/<plugin>`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.agent import Agent
from bot.errors import PluginError
from bot.platform.routes import RouteRequest, RouteResponse

Answer = Callable[[Agent, RouteRequest], Awaitable[RouteResponse]]
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Route:
    """A route: method and path, whether it needs no token, and the function that answers."""

    method: str
    path: str
    handler: Answer
    is_public: bool = False

    async def __call__(self, agent: Agent, request: RouteRequest, /) -> RouteResponse:
        return await self.handler(agent, request)


def route(method: str, path: str, *, public: bool = False) -> Callable[[Answer], Route]:
    """Make a route of an async function that takes the agent and the request.

    Raises PluginError for an unknown method or a path that does not begin with a slash.
    """

    def decorate(handler: Answer) -> Route:
        if method.upper() not in METHODS or not path.startswith("/") or ".." in path:
            raise PluginError(
                f"route {method} {path!r}: give one of {sorted(METHODS)} and a path like /status"
            )
        return Route(method.upper(), path, handler, public)

    return decorate
