"""Routes of plugins, under `/plugins/<plugin>`."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from adapters.web.auth import Access
from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.json_io import JsonResponder, read_body
from adapters.web.messages import run_shielded
from adapters.web.openapi import Handler
from adapters.web.queries import AgentDirectory
from bot import PluginError, RouteRequest, RouteResponse
from bot.platform import AgentHandle, BoundRoute, TaskSet

logger = logging.getLogger(__name__)
RouteCandidate = tuple[AgentHandle, BoundRoute]


class PluginRoutes:
    """Calls the routes of plugins; if several agents have the same route, `?agent=` selects one."""

    def __init__(self, directory: AgentDirectory, requests: TaskSet, responder: JsonResponder, limits: Limits) -> None:
        self._directory = directory
        self._requests = requests
        self._responder = responder
        self._limits = limits

    def register(self, router: web.UrlDispatcher) -> dict[web.AbstractRoute, Access]:
        """Register every route; return what each needs: one by GET must change nothing.

        Raises PluginError for an invalid path.
        """
        candidates: defaultdict[tuple[str, str], list[RouteCandidate]] = defaultdict(list)
        for handle in self._directory:
            for bound_route in handle.routes:
                candidates[
                    bound_route.method, f"/plugins/{quote(bound_route.plugin, safe='')}{bound_route.path}"
                ].append((handle, bound_route))
        access_by_route: dict[web.AbstractRoute, Access] = {}
        for (method, path), group in candidates.items():
            plugin = group[0][1].plugin
            try:
                if not group[0][1].path.startswith("/"):
                    raise ValueError("it does not start with a slash")
                route = router.add_route(method, path, self._build_handler(group))
            except ValueError as error:
                raise PluginError(f"plugin {plugin!r}: {method} {path} is an invalid path: {error}") from None
            access_by_route[route] = Access.READ if method.upper() == "GET" else Access.CHANGE
            if all(bound_route.is_public for _, bound_route in group):
                logger.info("%s %s of plugin %r needs no token", method, path, plugin)
                access_by_route[route] = Access.PUBLIC
        return access_by_route

    def _build_handler(self, candidates: Sequence[RouteCandidate]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            query = dict(request.query)
            route = self._select_route(candidates, query)
            body = await read_body(request, timeout=self._limits.body_seconds)
            route_request = RouteRequest(request.method, request.path, query, _forwarded_headers(request, route), body)
            route_response = await run_shielded(self._requests, self._call_plugin(route, route_request))
            return self._build_response(route, route_response)

        return handle

    def _select_route(self, candidates: Sequence[RouteCandidate], query: dict[str, str]) -> BoundRoute:
        if len(candidates) == 1 or "agent" not in query:
            return candidates[0][1]
        agent_handle = self._directory.find_agent(query.pop("agent"))
        for handle, route in candidates:
            if handle is agent_handle:
                return route
        raise build_not_found("such route of agent", agent_handle.character.name)

    async def _call_plugin(self, route: BoundRoute, request: RouteRequest) -> RouteResponse:
        name = f"{route.method} /plugins/{route.plugin}{route.path}"
        try:
            async with asyncio.timeout(self._limits.plugin_seconds):
                return await route.handle(request)
        except TimeoutError:
            logger.warning("%s did not answer within %g seconds", name, self._limits.plugin_seconds)
            raise HttpProblem(504, "plugin_too_slow", f"the plugin {route.plugin!r} did not answer") from None
        except Exception:  # an error of a plugin fails only this request
            logger.exception("%s failed", name)
            raise _build_failure(route) from None

    def _build_response(self, route: BoundRoute, response: RouteResponse) -> web.Response:
        try:
            text = response.text if response.json is None else json.dumps(response.json, ensure_ascii=False)
            content_type = response.content_type if response.json is None else "application/json"
            return web.Response(status=response.status, text=self._responder.redact(text), content_type=content_type)
        except (AttributeError, TypeError, ValueError):
            logger.exception("the plugin %s returned an invalid RouteResponse", route.plugin)
            raise _build_failure(route) from None


def _build_failure(route: BoundRoute) -> HttpProblem:
    return HttpProblem(500, "plugin_failed", f"the plugin {route.plugin!r} failed; the log has more")


def _forwarded_headers(request: web.Request, route: BoundRoute) -> Mapping[str, str]:
    """Return the headers without the server's credentials."""
    headers = CIMultiDict(request.headers)
    headers.popall("Cookie", None)
    if not route.is_public:
        headers.popall("Authorization", None)
    return headers
