"""Routes of plugins, under `/plugins/<plugin>`."""

import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from adapters.web.auth import GRANT, Access, Grant
from adapters.web.config import Limits
from adapters.web.files import read_form
from adapters.web.json_io import HttpProblem, JsonResponder, build_not_found, read_body
from adapters.web.messages import open_stream, run_shielded
from adapters.web.openapi import ACCESS_BY_SCOPE, Handler
from adapters.web.queries import AgentDirectory
from bot import PluginError, RouteRequest, RouteResponse, platform

logger = logging.getLogger(__name__)
CONTENT_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
UPLOAD_COPIES = 3  # in memory: the body, its parts, and what the plugin makes of them
RouteCandidate = tuple[platform.AgentHandle, platform.BoundRoute]


class PluginRoutes:
    """Calls the routes of plugins; if several agents have the same route, `?agent=` selects one."""

    def __init__(
        self, directory: AgentDirectory, requests: platform.TaskSet, responder: JsonResponder, limits: Limits
    ) -> None:
        self._directory = directory
        self._requests = requests
        self._responder = responder
        self._limits = limits

        self._uploads = asyncio.Semaphore(limits.max_uploads)

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
            strictest = max((bound_route.scope for _, bound_route in group), key=list(platform.RouteScope).index)
            access_by_route[route] = ACCESS_BY_SCOPE[strictest]
            if strictest is platform.RouteScope.PUBLIC:
                logger.info("%s %s of plugin %r needs no token", method, path, plugin)
        return access_by_route

    def _build_handler(self, candidates: Sequence[RouteCandidate]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            query = dict(request.query)
            route = self._select_route(candidates, query)
            route_response = await self.call(request, route, query)
            if isinstance(route_response, RouteResponse) and route_response.events is not None:
                return await self._stream_events(request, route, route_response.events)
            return self._build_response(route, route_response)

        return handle

    async def call(
        self, request: web.Request, route: platform.BoundRoute, query: Mapping[str, str] | None = None
    ) -> RouteResponse:
        """Return what a route answers to a request; it runs on if the client leaves. Raises HttpProblem."""
        route_request = RouteRequest(
            request.method,
            request.path,
            query or {},
            _forwarded_headers(request, route),
            parameters=dict(request.match_info),
            caller=None if route.is_public else _build_caller(GRANT.get()),
        )
        if not self._is_upload(route):
            route_request = await self._read_body(request, route, route_request)
            return await run_shielded(self._requests, self._call_plugin(route, route_request))
        size = UPLOAD_COPIES * min(request.content_length or route.max_body_bytes, route.max_body_bytes)
        try:
            async with route.memory.hold(size):
                async with self._uploads:
                    route_request = await self._read_body(request, route, route_request)
                return await run_shielded(self._requests, self._call_plugin(route, route_request))
        except platform.MemoryLimitReached as error:
            raise HttpProblem(413, "too_large", f"the upload is too large: {error}") from None

    def _is_upload(self, route: platform.BoundRoute) -> bool:
        return route.max_body_bytes > self._limits.max_body_bytes

    def _select_route(self, candidates: Sequence[RouteCandidate], query: dict[str, str]) -> platform.BoundRoute:
        if len(candidates) == 1 or "agent" not in query:
            return candidates[0][1]
        agent_handle = self._directory.find_agent(query.pop("agent"))
        for handle, route in candidates:
            if handle is agent_handle:
                return route
        raise build_not_found("such route of agent", agent_handle.character.name)

    async def _read_body(
        self, request: web.Request, route: platform.BoundRoute, route_request: RouteRequest
    ) -> RouteRequest:
        """Return the request with its body, or with the fields and files of its form."""
        seconds = self._limits.upload_seconds if self._is_upload(route) else self._limits.body_seconds
        if route.accepts_files and request.content_type == "multipart/form-data":
            async with platform.body_timeout(seconds):
                form, files = await read_form(request, route.max_body_bytes)
            return replace(route_request, form=form, files=files)
        return replace(route_request, body=await read_body(request, timeout=seconds, max_bytes=route.max_body_bytes))

    async def _stream_events(
        self, request: web.Request, route: platform.BoundRoute, events: AsyncIterable[platform.RouteEvent]
    ) -> web.StreamResponse:
        """Send events until they end, the client leaves, or the token is revoked."""
        grant = None if route.is_public else GRANT.get()
        response = await open_stream(request)
        queue: asyncio.Queue[platform.RouteEvent | None] = asyncio.Queue(maxsize=1)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_read_events(events, queue, f"{route.method} {request.path}"))
            while True:
                try:
                    async with asyncio.timeout(self._limits.keep_alive_seconds):
                        event = await queue.get()
                except TimeoutError:
                    event = platform.RouteEvent("")
                if event is None or (grant is not None and not grant.is_active):
                    break
                await response.write(self._format_event(event))
            reading.cancel()
        return response

    def _format_event(self, event: platform.RouteEvent) -> bytes:
        data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
        if not (data or event.name or event.id):
            return b": still here\n\n"
        lines = [
            f"{key}: {' '.join(value.split())}" for key, value in (("event", event.name), ("id", event.id)) if value
        ]
        lines += [f"data: {line}" for line in re.split(r"\r\n|\r|\n", self._responder.redact(data))]
        return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")

    async def _call_plugin(self, route: platform.BoundRoute, request: RouteRequest) -> RouteResponse:
        name = f"{route.method} /plugins/{route.plugin}{route.path}"
        try:
            async with asyncio.timeout(self._limits.plugin_seconds):
                return await route.handle(request)
        except TimeoutError:
            logger.warning("%s did not answer within %g seconds", name, self._limits.plugin_seconds)
            raise HttpProblem(504, "plugin_too_slow", f"the plugin {route.plugin!r} did not answer") from None
        except Exception as error:  # an error of a plugin fails only this request
            logger.warning("%s failed: %s", name, error, exc_info=error)
            raise _build_failure(route) from None

    def _build_response(self, route: platform.BoundRoute, response: RouteResponse) -> web.Response:
        try:
            _check_response(response)
            if response.json is None and response.body is not None:
                charset = "utf-8" if response.content_type.startswith("text/") else None
                return web.Response(
                    status=response.status, body=response.body, content_type=response.content_type, charset=charset
                )
            text = response.text if response.json is None else json.dumps(response.json, ensure_ascii=False)
            content_type = response.content_type if response.json is None else "application/json"
            return web.Response(status=response.status, text=self._responder.redact(text), content_type=content_type)
        except (AttributeError, TypeError, ValueError) as error:
            name = f"{route.method} /plugins/{route.plugin}{route.path}"
            logger.warning("%s returned an invalid response: %s", name, error, exc_info=error)
            raise _build_failure(route) from None


async def _read_events(
    events: AsyncIterable[platform.RouteEvent], queue: asyncio.Queue[platform.RouteEvent | None], label: str
) -> None:
    """Add the events into the queue, None at their end; an event that is none ends them."""
    try:
        async for event in events:
            if not isinstance(event, platform.RouteEvent):
                raise TypeError(f"{type(event).__name__} is not a RouteEvent")
            json.dumps(event.data)
            await queue.put(event)
    except (Exception, SystemExit):  # an error of a plugin ends only this stream
        logger.exception("the events of %s failed", label)
        await queue.put(platform.RouteEvent({"code": "plugin_failed"}, "error"))
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    await queue.put(None)


def _build_caller(grant: Grant) -> platform.RouteCaller:
    return platform.RouteCaller(grant.scope.value, grant.token_id, grant.name)


def _check_response(response: object) -> None:
    """Raise TypeError or ValueError for a response that cannot be sent."""
    if not isinstance(response, RouteResponse):
        raise TypeError(f"it is {type(response).__name__}, not RouteResponse")
    if not isinstance(response.status, int) or not 200 <= response.status <= 599:
        raise ValueError(f"its status is {response.status!r:.80}, not a number from 200 to 599")
    if not CONTENT_TYPE.fullmatch(response.content_type):
        raise ValueError(f"its content type is {response.content_type!r:.80}, not like text/plain")


def _build_failure(route: platform.BoundRoute) -> HttpProblem:
    return HttpProblem(500, "plugin_failed", f"the plugin {route.plugin!r} failed; the log has more")


def _forwarded_headers(request: web.Request, route: platform.BoundRoute) -> Mapping[str, str]:
    """Return the headers without the server's credentials."""
    headers = CIMultiDict(request.headers)
    headers.popall("Cookie", None)
    if not route.is_public:
        headers.popall("Authorization", None)
    return headers
