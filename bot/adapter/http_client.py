"""How an adapter's HTTP client reaches its platform: the operator's proxy and certificates, and bounded responses."""

import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Self

import aiohttp
from yarl import URL

from bot.adapter.adapter import DisconnectCause
from bot.concurrency.tasks import crash_point
from bot.errors import DeliveryUnknown, NotSent, causes_of
from bot.fetch.client import Proxies, build_tls_context, describe_client_error

# No byte of the request was sent.
NOT_SENT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)


CAUSE_BY_ERROR: tuple[tuple[tuple[type[BaseException], ...], DisconnectCause], ...] = (
    ((aiohttp.ClientConnectorDNSError, socket.gaierror), DisconnectCause.DNS),
    ((aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError), DisconnectCause.PROXY),
    ((aiohttp.ClientSSLError, ssl.SSLError), DisconnectCause.TLS),
    ((TimeoutError,), DisconnectCause.TIMEOUT),
    ((aiohttp.ClientError, OSError), DisconnectCause.UNREACHABLE),
)


@dataclass(frozen=True, slots=True)
class PlatformNetwork:
    """How a server is reached: through which proxy, if any, and what `ssl` a connector of aiohttp gets."""

    proxy: str | None
    certificates: ssl.SSLContext | bool

    def open_session(self, **options: Any) -> aiohttp.ClientSession:
        """Return a session that reaches the server; `options` are further ones of aiohttp's session."""
        connector = aiohttp.TCPConnector(ssl=self.certificates)
        return aiohttp.ClientSession(connector=connector, proxy=self.proxy, **options)


def find_network(base_url: str, environment: Mapping[str, str] | None = None) -> PlatformNetwork:
    """Return how a server is reached by HTTPS_PROXY, HTTP_PROXY, NO_PROXY and SSL_CERT_FILE.

    `environment` holds those that stand above the environment of the process. A server on this machine has no proxy.
    Raises SettingError if a variable is not valid.
    """
    variables, server = {**os.environ, **(environment or {})}, URL(base_url)
    proxy = None if _is_local(server.host or "") else Proxies.from_environment(variables).proxy_for(server)
    ca_file = variables.get("SSL_CERT_FILE", "") if server.scheme == "https" else ""
    return PlatformNetwork(str(proxy) if proxy is not None else None, build_tls_context(ca_file) if ca_file else True)


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class PlatformSession:
    """The HTTP session of one account, open while it is entered; `name` stands for the server in errors.

    Each request is made once: the caller decides whether to repeat it. `options` are those of aiohttp's session.
    """

    def __init__(self, base_url: str, environment: Mapping[str, str], name: str, **options: Any) -> None:
        self._network, self._name, self._options = find_network(base_url, environment), name, options
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = self._network.open_session(**self._options)
        return self

    async def __aexit__(self, *error: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def request(
        self, method: str, url: str | URL, **options: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return the context of a request, which follows no redirect. Raises NotSent if the session is not open."""
        if self._session is None:
            raise NotSent(f"{self._name} is not connected")
        return self._session.request(method, url, allow_redirects=False, **options)

    async def fetch(
        self, method: str, url: str | URL, max_bytes: int, **options: Any
    ) -> tuple[aiohttp.ClientResponse, bytes | None]:
        """Send one request; return its response and the body, None if that is larger than `max_bytes`.

        Raises NotSent if nothing was sent, and DeliveryUnknown if the result is unknown.
        """
        try:
            async with self.request(method, url, **options) as response:
                return response, await read_bounded(response, max_bytes)
        except NOT_SENT_ERRORS as error:
            raise NotSent(f"{self._name}: {describe_client_error(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DeliveryUnknown(f"{self._name}: {describe_client_error(error)}") from error


async def read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the body of a response; None if it is larger than `max_bytes`."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            return None
    return bytes(body)


async def write_body(body: bytes, label: str) -> AsyncIterator[bytes]:
    """Yield the body of a request that sends something, between the crash points of that label.

    The request needs the header Content-Length; asking for more than the body means that it was written.
    """
    crash_point(f"{label}.pre_write")
    yield body
    crash_point(f"{label}.post_write")


def disconnect_cause(error: BaseException) -> DisconnectCause:
    """Return why a platform was not reached, from the first known error in the chain of causes."""
    known = (
        cause
        for current in causes_of(error)
        for error_types, cause in CAUSE_BY_ERROR
        if isinstance(current, error_types)
    )
    return next(known, DisconnectCause.PLATFORM)
