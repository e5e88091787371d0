"""Send requests to a server over pooled connections.

A library for OpenAI's API prepares and sends the same request for ten times the CPU time (2.0 ms, not 0.2), takes
half a second to import, and its types fit OpenAI's own server better than the others that speak the API.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from yarl import URL

from bot.fetch.addresses import Proxies

CONNECT_TIMEOUT = 10.0  # seconds; for the rest the router has deadlines
MAX_CONNECTIONS = 1000
IDLE_SECONDS = 5.0  # a server may close a connection that is idle for longer
FINISH_SECONDS = 0.1  # for the end of a response whose text is complete
MAX_REDIRECTS = 5
REDIRECT_STATUSES = (307, 308)  # these repeat the request
MAX_RESPONSE_BYTES = 64 << 20
MAX_ERROR_BYTES = 64 << 10  # the rest of a longer error is not read


class StatusError(Exception):
    """A server answered with an error status; the attributes are those of the API's error object."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(f"error code {status}")
        fields = body if isinstance(body, dict) else {}
        self.status_code, self.body, self.headers = status, body, headers
        self.code, self.type, self.param = fields.get("code"), fields.get("type"), fields.get("param")

    @property
    def message(self) -> str:
        """The message of the response, whether or not its body has the API's form."""
        body = self.body
        if isinstance(body, dict):
            body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), body)
        return body if isinstance(body, str) else json.dumps(body, default=str)


class RedirectError(Exception):
    """A server redirects to another server, `target`."""

    def __init__(self, target: str) -> None:
        super().__init__(f"redirect to {target}")
        self.target = target


class Requests:
    """Sends requests to one server, below `base_url`; its connections are opened when first needed."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        self._base_url = URL(base_url.rstrip("/") + "/")
        self._headers = headers
        self._proxy = Proxies.from_environment(os.environ).proxy_for(self._base_url)
        self._session: aiohttp.ClientSession | None = None

    @property
    def host(self) -> str:
        """The host name of the server, with its port where the URL names one."""
        return self._base_url.authority

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, form: aiohttp.FormData | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with a JSON body or a form; the response has no error status.

        `path` is relative to the base URL, or a URL. Raises StatusError, RedirectError, TimeoutError without a
        connection in time, and aiohttp.ClientError.
        """
        data: Any = form
        if body is not None:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} if body is not None else None
        session, url = self._open_session(), self._base_url.join(URL(path))
        for _ in range(MAX_REDIRECTS + 1):
            async with session.request(
                method, url, data=data, headers=headers, allow_redirects=False, proxy=self._proxy
            ) as response:
                target = _find_target(url, response)
                if target is not None and (method == "GET" or response.status in REDIRECT_STATUSES):
                    url = target
                    continue
                if response.status >= 300:
                    error = _parse_error((await _read_up_to(response, MAX_ERROR_BYTES))[:MAX_ERROR_BYTES])
                    raise StatusError(response.status, error, response.headers)
                yield response
                return
        raise aiohttp.ClientError("too many redirects")

    async def fetch(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Send a request and return the body of the response. Raises as `open` does."""
        async with self.open(method, path, body) as response:
            return await read_body(response)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            )
        return self._session


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response. Raises aiohttp.ClientPayloadError if it is larger than MAX_RESPONSE_BYTES."""
    body = await _read_up_to(response, MAX_RESPONSE_BYTES)
    if len(body) > MAX_RESPONSE_BYTES:
        raise aiohttp.ClientPayloadError(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
    return body


async def finish(response: aiohttp.ClientResponse) -> None:
    """Read what follows a stream's end, so that its connection can be used again; wait for it for a moment only."""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(FINISH_SECONDS):
            while not response.content.at_eof():
                await response.content.readany()


async def _read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body of a response, of a longer one a piece that is longer than `limit` bytes."""
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) > limit:
            break
    return bytes(received)


def _find_target(url: URL, response: aiohttp.ClientResponse) -> URL | None:
    """Return where a response redirects to. Raises RedirectError if that is another server."""
    if not 300 <= response.status < 400 or "Location" not in response.headers:
        return None
    try:
        target = url.join(URL(response.headers["Location"]))
        is_same = target.origin() == url.origin()
    except ValueError:  # no address of a server
        return None
    if not is_same:
        raise RedirectError(f"{target.scheme}://{target.host_port_subcomponent}")
    return target


def _parse_error(data: bytes) -> object:
    """Return the error of a response, else its whole body."""
    text = data.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return body.get("error", body) if isinstance(body, dict) else body
