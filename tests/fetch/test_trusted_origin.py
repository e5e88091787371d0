"""The origin that the operator named is read although it is not public; nothing else of that machine is."""

import pytest
from aiohttp import web

from bot.errors import FetchError
from bot.fetch.client import Fetcher
from tests.fetch.test_client import site


async def serve_text(request: web.Request) -> web.StreamResponse:
    """Answer with a text."""
    return web.Response(text="hello")


async def test_a_trusted_origin_on_this_machine_is_read() -> None:
    async with site(serve_text) as here, Fetcher() as fetcher:
        origin = f"http://127.0.0.1:{here.port}"
        assert (await fetcher.get(f"{origin}/file", trusted_origin=f"{origin}/")).text() == "hello"
        with pytest.raises(FetchError, match="not public"):
            await fetcher.get(f"{origin}/file")
    assert len(here.requests) == 1


async def test_another_port_of_a_trusted_host_is_refused() -> None:
    async with site(serve_text) as here, site(serve_text) as other, Fetcher() as fetcher:
        with pytest.raises(FetchError, match="not public"):
            await fetcher.get(f"http://127.0.0.1:{other.port}/", trusted_origin=f"http://127.0.0.1:{here.port}")
    assert other.requests == []


async def test_a_redirect_away_from_a_trusted_origin_is_checked() -> None:
    async with site(serve_text) as other:

        async def redirect(request: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(f"http://127.0.0.1:{other.port}/secret")

        async with site(redirect) as here, Fetcher() as fetcher:
            origin = f"http://127.0.0.1:{here.port}"
            with pytest.raises(FetchError, match="not public"):
                await fetcher.get(f"{origin}/file", trusted_origin=origin)
        assert other.requests == []
