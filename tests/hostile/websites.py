"""Web pages, feeds and search results that attackers have written, behind a proxy on the loopback."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from xml.sax.saxutils import escape

from aiohttp import web

from tests.hostile.places import PAGE
from tests.plugins.links.web import Web, serve_web

MADE_UP = "made-up.example"  # the host of links that only the model writes
CLOSED = (
    "http://127.0.0.1:8080/admin",
    "http://169.254.169.254/latest/meta-data",
    "http://localhost/",
    "file:///etc/passwd",
)


@asynccontextmanager
async def serve_hostile_web(
    chance: random.Random, write_as: Callable[[str], str], titles: list[str]
) -> AsyncIterator[Web]:
    """Serve pages, feeds, rules for robots and search results with orders, redirects to closed addresses among them.

    The titles of the entries of feeds are added to `titles`.
    """

    async def show_page(request: web.Request) -> web.Response:
        if chance.random() < 0.1:
            return web.Response(status=302, headers={"Location": chance.choice(CLOSED)})
        return web.Response(text=write_as(PAGE))  # plain text takes no process of its own

    async def show_feed(request: web.Request) -> web.Response:
        entries = [
            (write_as(PAGE), chance.choice((*CLOSED, "http://news.example/", "javascript:alert(1)"))) for _ in "ab"
        ]
        titles.extend(title for title, _ in entries)
        items = "".join(f"<item><title>{escape(title)}</title><link>{link}</link></item>" for title, link in entries)
        return web.Response(
            text=f'<rss version="2.0"><channel><title>{escape(write_as(PAGE))}</title>{items}</channel></rss>'
        )

    async def show_robots(request: web.Request) -> web.Response:
        return web.Response(text=f"# {write_as(PAGE)}\nUser-agent: *\nAllow: /\n")

    async def search(request: web.Request) -> web.Response:
        urls = (chance.choice(CLOSED), f"http://found{chance.randrange(10**6)}.example/")
        return web.json_response(
            {"results": [{"url": url, "title": write_as(PAGE)[:80], "content": write_as(PAGE)} for url in urls]}
        )

    async with serve_web() as found:
        found.pages |= {"/robots.txt": show_robots, "/search": search, "/rss": show_feed}
        found.otherwise = show_page
        yield found
