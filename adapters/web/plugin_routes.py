"""What plugins answer, under `/plugins/<plugin>`."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from adapters.web.config import Limits
from adapters.web.errors import Problem, not_found
from adapters.web.json_io import Answers, read_body
from adapters.web.messages import Errands
from adapters.web.queries import Doors
from bot import PluginError, RouteRequest, RouteResponse
from bot.platform import BoundRoute, Door

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Offer = tuple[Door, BoundRoute]


class PluginRoutes:
    """Calls the routes of plugins; where several agents have the same one, `?agent=` chooses."""

    def __init__(self, doors: Doors, errands: Errands, answers: Answers, limits: Limits) -> None:
        self._doors = doors
        self._errands = errands
        self._answers = answers
        self._limits = limits

    def add_to(self, router: web.UrlDispatcher) -> frozenset[web.AbstractRoute]:
        """Register every route; gives back those that need no token."""
        offers: defaultdict[tuple[str, str], list[Offer]] = defaultdict(list)
        for door in self._doors:
            for one in door.routes:
                offers[one.method, f"/plugins/{quote(one.plugin, safe='')}{one.path}"].append((door, one))
        public: set[web.AbstractRoute] = set()
        for (method, path), same in offers.items():
            plugin = same[0][1].plugin
            try:
                if not same[0][1].path.startswith("/"):
                    raise ValueError("it does not begin with a slash")
                route = router.add_route(method, path, self._handler(same))
            except ValueError as error:
                raise PluginError(f"plugin {plugin!r}: {method} {path} is no path: {error}") from None
            if all(one.is_public for _, one in same):
                logger.info("%s %s of plugin %r answers everybody, without the token", method, path, plugin)
                public.add(route)
        return frozenset(public)

    def _handler(self, offers: Sequence[Offer]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            query = dict(request.query)
            route = self._chosen(offers, query)
            body = await read_body(request, deadline=self._limits.body_seconds)
            asked = RouteRequest(request.method, request.path, query, _headers(request, route), body)
            answer = await self._errands.run(self._call(route, asked))
            return self._answer(route, answer)

        return handle

    def _chosen(self, offers: Sequence[Offer], query: dict[str, str]) -> BoundRoute:
        if len(offers) == 1:
            return offers[0][1]
        if "agent" not in query:
            return offers[0][1]
        wanted = self._doors.named(query.pop("agent"))
        for door, route in offers:
            if door is wanted:
                return route
        raise not_found("such route of agent", wanted.character.name)

    async def _call(self, route: BoundRoute, asked: RouteRequest) -> RouteResponse:
        name = f"{route.method} /plugins/{route.plugin}{route.path}"
        try:
            async with asyncio.timeout(self._limits.plugin_seconds):
                return await route.handle(asked)
        except TimeoutError:
            logger.warning("%s did not answer within %g seconds", name, self._limits.plugin_seconds)
            raise Problem(504, "plugin_too_slow", f"the plugin {route.plugin!r} did not answer") from None
        except Exception:  # a plugin's fault is not the server's: one request fails, with its name
            logger.exception("%s failed", name)
            raise _failed(route) from None

    def _answer(self, route: BoundRoute, answer: RouteResponse) -> web.Response:
        try:
            text = answer.text if answer.json is None else json.dumps(answer.json, ensure_ascii=False)
            kind = answer.content_type if answer.json is None else "application/json"
            return web.Response(status=answer.status, text=self._answers.cleared(text), content_type=kind)
        except (AttributeError, TypeError, ValueError):
            logger.exception("the plugin %s answered with what is no RouteResponse", route.plugin)
            raise _failed(route) from None


def _failed(route: BoundRoute) -> Problem:
    return Problem(500, "plugin_failed", f"the plugin {route.plugin!r} failed; the log says more")


def _headers(request: web.Request, route: BoundRoute) -> Mapping[str, str]:
    """Pass on the headers, but not what opens the server."""
    headers = CIMultiDict(request.headers)
    headers.popall("Cookie", None)
    if not route.is_public:
        headers.popall("Authorization", None)
    return headers
