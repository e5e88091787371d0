"""Web sites, search services and a proxy on the loopback, by which the agent's own fetcher reaches names of sites."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.testing import AgentHarness, ManualClock, ScriptedModel, running_agent
from plugins.links import plugin

ARTICLE = """<!doctype html><html><head><title>Bees in town</title><meta property="og:site_name" content="Town News">
</head><body><nav>Home | About | Login</nav><article><h1>Bees in town</h1>
<p>Forty thousand bees have moved into the old mill, and the people of the town like them very much indeed.</p>
<p>The keeper, Mrs Miller, sells honey on Saturdays between nine and noon in the market hall by the river.</p>
{more}</article></body></html>"""
Answer = str | bytes | web.StreamResponse | Callable[[web.Request], Any]


@dataclass
class Web:
    """What is served by URL, or else by path; any other page is `otherwise`, if that is set.

    `asked` are the URLs that were requested, `requests` their headers and what was sent.
    """

    pages: dict[str, Answer] = field(default_factory=dict)
    otherwise: Callable[[web.Request], Any] | None = None
    asked: list[str] = field(default_factory=list)
    requests: list[tuple[Mapping[str, str], Any]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer as a proxy, and as a service under its own address."""
        host = request.headers["Host"]
        url = f"http://{host}{request.path}" + (f"?{request.query_string}" if request.query_string else "")
        self.asked.append(url)
        self.requests.append((request.headers, await request.json() if request.can_read_body else None))
        answer = self.pages.get(url, self.pages.get(request.path, self.otherwise))
        if callable(answer):
            answer = await answer(request)
        if answer is None:
            return web.Response(status=404)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(body=answer, content_type="text/html")

    def pages_asked(self) -> list[str]:
        """Return what was requested beside robots.txt."""
        return [url for url in self.asked if not url.endswith("/robots.txt")]


@asynccontextmanager
async def serve_web() -> AsyncIterator[Web]:
    """Serve sites and services while the block runs."""
    found = Web()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    async with TestServer(app) as server:
        found.url = str(server.make_url("")).rstrip("/")
        yield found


@asynccontextmanager
async def reading(
    found: Web, model: ScriptedModel | None = None, clock: ManualClock | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    """Run an agent that reads links by the proxy."""
    given = {"LINKS": "20", "HTTP_PROXY": found.url, "BURST_PAUSE": "0", **settings}
    clock = clock or ManualClock()
    async with running_agent(plugin, model=model, clock=clock.now, settings=given) as harness:
        yield harness
