"""Bodies made to harm who reads them, as pages and as feeds: nothing closed is reached, and the bot goes on."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from bot import Role
from bot.testing import ManualClock, ScriptedModel, running_agent
from plugins.feeds import plugin as feeds
from plugins.feeds.feed import READ_FEED
from plugins.links import plugin as links
from tests.plugins.bootstrap.obeying import run_due
from tests.plugins.feeds.test_feeds import BOMB, ask
from tests.plugins.links.web import serve_web

pytestmark = pytest.mark.long
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
URL = "http://news.example/x"
MEBIBYTE = bytes(2**20)
RSS = '<rss version="2.0"><channel><title>News</title>{items}</channel></rss>'
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def redirect(location: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": location})

    return answer


def send(body: str, kind: str = "application/rss+xml") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body.encode(), headers={"Content-Type": kind})

    return answer


async def send_for_ever(request: web.Request) -> web.StreamResponse:
    """Send zeros until the other side has had enough."""
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    for _ in range(200):
        try:
            await response.write(MEBIBYTE)
        except ConnectionError:
            break
    return response


@cache
def compress(size: int, times: int) -> bytes:
    """Return so many zeros, compressed so many times."""
    data = bytes(size)
    for _ in range(times):
        data = gzip.compress(data)
    return data


def send_bomb(size: int, times: int, kind: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        encodings = {"Content-Type": kind, "Content-Encoding": ", ".join(["gzip"] * times)}
        return web.Response(body=compress(size, times), headers=encodings)

    return answer


def xml(declaration: str, title: str = "", body: str = "") -> Answer:
    items = f"<item><guid>1</guid><title>{title}</title></item>{body}"
    return send(f'<?xml version="1.0"?><!DOCTYPE r {declaration}>{RSS.format(items=items)}')


def list_answers(closed: str) -> Mapping[str, Answer]:
    """Return the answers of a hostile site; `closed` is the address of a server that must not be reached."""
    port = closed.rpartition(":")[2]
    return {
        "a redirect to loopback": redirect(f"{closed}/secret"),
        "a redirect to IPv6 loopback": redirect(f"http://[::1]:{port}/"),
        "a redirect to a number": redirect(f"http://2130706433:{port}/"),
        "a redirect to a mapped address": redirect(f"http://[::ffff:127.0.0.1]:{port}/"),
        "a redirect to metadata": redirect("http://169.254.169.254/latest/meta-data"),
        "a redirect to a file": redirect("file:///etc/passwd"),
        "a redirect to a script": redirect("javascript:alert(1)"),
        "a redirect to itself": redirect(URL),
        "a bomb of gzip": send_bomb(2**26, 1, "text/html"),
        "a bomb of bombs": send_bomb(2**27, 2, "application/rss+xml"),
        "an endless body": send_for_ever,
        "a bomb of entities": send(BOMB + f"]>{RSS.format(items='<item><title>&k;</title></item>')}"),
        "a bomb of one entity": xml(f'[<!ENTITY a "{"x" * 100_000}">]', "&a;" * 10_000),
        "an entity of a server": xml(f'[<!ENTITY x SYSTEM "{closed}/secret">]', "&x;"),
        "an entity of a file": xml('[<!ENTITY x SYSTEM "file:///etc/passwd">]', "&x;"),
        "a definition of a server": xml(f'SYSTEM "{closed}/x.dtd"', "x"),
        "a parameter entity": xml(f'[<!ENTITY % x SYSTEM "{closed}/x"> %x;]', "x"),
        "an inclusion": xml("[]", "x", f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{closed}/x"/>'),
        "a style sheet": send(f'<?xml-stylesheet href="{closed}/x.xsl"?>{RSS.format(items="")}'),
        "deep elements": send("<div>" * 200_000, "text/html"),
        "resources": send(
            f'<img src="{closed}/x"><iframe src="{closed}/x"></iframe><base href="{closed}/">', "text/html"
        ),
        "a refresh": send(f'<meta http-equiv="refresh" content="0; url={closed}/x"><p>words</p>', "text/html"),
    }


NAMES = list(list_answers("http://127.0.0.1:1"))


@pytest.fixture
async def closed() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve what must not be reached; return its address, and what was requested there."""
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(str(request.url))
        return web.Response(text="root:x:0:0")

    async with RawTestServer(answer) as server:
        yield str(server.make_url("")).rstrip("/"), asked


@pytest.mark.parametrize("name", NAMES)
async def test_a_hostile_body_reaches_nothing_closed_and_the_bot_goes_on(
    name: str, closed: tuple[str, list[str]]
) -> None:
    origin, reached = closed
    clock, model = ManualClock(NOW), ScriptedModel()
    async with serve_web() as sites:
        sites.pages[URL] = list_answers(origin)[name]
        settings = {"LINKS": "20", "FEEDS": "10", "HTTP_PROXY": sites.url, "BURST_PAUSE": "0"}
        async with running_agent(links, feeds, model=model, settings=settings, clock=clock.now) as harness:
            await harness.send(f"and {URL}?")
            await ask(harness, f"add {URL}", Role.OWNER)
            sites.pages[URL] = send(RSS.format(items=""))
            followed = await ask(harness, "add http://news.example/x every 1h", Role.OWNER)
            assert "I follow" in followed
            sites.pages[URL] = list_answers(origin)[name]
            clock.advance(3_601)
            await run_due(harness)
            sites.pages[URL] = send(RSS.format(items="<item><guid>good</guid><title>Good</title></item>"))
            clock.advance(3_601)
            await run_due(harness)
            assert "Good" in harness.texts
            await harness.send("still there?")
            assert len(await harness.agent.store.tasks.tasks(name=READ_FEED)) == 1
            assert not any("root:" in text for text in [*harness.texts, *read(model)])
    assert reached == []
    assert not any("169.254" in url or "[::" in url or "2130706433" in url for url in sites.asked)


def read(model: ScriptedModel) -> list[str]:
    """Return what the model has read."""
    return [request.prompt for request in model.requests]
