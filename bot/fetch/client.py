"""`Fetcher`: SSRF-safe HTTP GET of URLs that users or models supply; only the public web is reachable.

The resolver given to aiohttp checks every address that it returns, and the socket factory checks again.
Behind a proxy, a host that resolves here to a closed range is refused; any other host is left to the proxy.

Which URLs and addresses may be fetched, and through which proxy: pure rules.

The ranges are our own list: `ipaddress` calls tunnels such as `64:ff9b::7f00:1` and `2002:7f00:1::` global.
"""

import asyncio
import errno
import os
import re
import socket
import ssl
import zlib
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bot.errors import FetchError, SettingError, causes_of
from bot.fetch.response import FetchedBody, sniff_media_type

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_CLOSED_RANGES: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),  # Azure's host agent, at an address that looks public
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # with the broadcast address
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("2001::/23", "protocol assignments"),  # with Teredo, benchmarking and ORCHID
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# These contain an IPv4 address. Public ones behind 64:ff9b::/96 are allowed: on a host with IPv6 only,
# DNS64 returns nothing else for half of the internet.
_IPV4_CARRIERS: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))

# Below 1024 only the web's own ports; above, those on which browsers refuse to speak HTTP
# because another protocol would listen (https://fetch.spec.whatwg.org/#port-blocking).
_WEB_PORTS: Final = frozenset({80, 443})
_BLOCKED_PORTS: Final = frozenset(
    {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080}
)

_MAX_URL_LENGTH: Final = 8192
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def closed_range_of(address: Address, allowed: Iterable[Network] = ()) -> str | None:
    """Return the closed range of an address; None if it is public or in an allowed network."""
    if any(address in network for network in allowed):
        return None
    if isinstance(address, IPv6Address) and any(address in carrier for carrier in _IPV4_CARRIERS):
        return closed_range_of(IPv4Address(int(address) & 0xFFFFFFFF), allowed)
    for network, kind in _CLOSED_RANGES:
        if address in network:
            return kind
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None


def parse_ip_literal(host: str) -> Address | None:
    """Parse a host as the C library parses addresses (`127.1`, `0177.0.0.1`); None for a name.

    Raises ValueError for anything else, such as `256.1.1.1`, `fe80::1%eth0` or `a%2eb`.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError("the address names a network interface")
        return IPv6Address(host)
    if not _NAME.fullmatch(host):
        raise ValueError("the host is neither a name nor an address")
    name = host.rstrip(".")
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        # No top-level domain is a number, but some resolvers make an address of what ends in one.
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise ValueError("the host is neither a name nor an address") from None
        return None


def check_url(url: str | URL) -> URL:
    """Parse a URL. Raises FetchError for its scheme, credentials, port or host."""
    target = _parse_url(url)
    if target.scheme not in ("http", "https"):
        raise FetchError("only http and https are read")
    if "@" in target.raw_authority:
        raise FetchError("it carries credentials")
    host, port = target.raw_host, target.port
    if not host or port is None:
        raise FetchError("it names no host")
    if (port < 1024 and port not in _WEB_PORTS) or port in _BLOCKED_PORTS:
        raise FetchError(f"port {port} is not one of the web")
    try:
        address = parse_ip_literal(host)
    except ValueError as error:
        raise FetchError(str(error)) from None
    return target if address is None else target.with_host(str(address))


def redact_url(url: str | URL) -> str:
    """Return a URL for messages: origin and last segment only, since the rest may contain keys."""
    try:
        target = _parse_url(url)
    except FetchError:
        return "a URL"
    if target.scheme not in ("http", "https") or not target.raw_host:
        return f"a {target.scheme}: URL" if target.scheme else "a URL"
    directory, _, last = target.raw_path.rpartition("/")
    return f"{str(target.origin())[:120]}{'/…' if directory else ''}/{last[:60]}"


@dataclass(frozen=True, slots=True)
class Proxies:
    """Which proxy a URL goes through, as curl reads HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""

    by_scheme: tuple[tuple[str, URL], ...]
    exceptions: tuple[str, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        def value(name: str) -> str:
            return (environment.get(name.lower()) or environment.get(name) or "").strip()

        names = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY"}
        proxies = tuple((scheme, _parse_proxy(name, value(name))) for scheme, name in names.items() if value(name))
        entries = (entry.strip().lower() for entry in value("NO_PROXY").split(","))
        return cls(proxies, tuple(entry for entry in entries if entry))

    def proxy_for(self, target: URL) -> URL | None:
        """Return the proxy for a target, None for a direct connection."""
        if any(_is_exception(target, entry) for entry in self.exceptions):
            return None
        return dict(self.by_scheme).get(target.scheme)


def _parse_proxy(name: str, value: str) -> URL:
    try:
        proxy = URL(value if "://" in value else f"http://{value}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise SettingError(f"{name} is not the URL of an HTTP proxy: write it like http://proxy.example:3128")
    return proxy


def _is_exception(target: URL, entry: str) -> bool:
    host = target.host or ""
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        name, _, port = entry.rpartition(":")
        if name and port.isdigit():
            return int(port) == target.port and _is_exception(target, name)
        suffix = entry.lstrip("*.")
        return host == suffix or host.endswith(f".{suffix}") or entry == "*"


def _parse_url(url: str | URL) -> URL:
    if isinstance(url, URL):
        return url
    text = url.strip()
    if len(text) > _MAX_URL_LENGTH:
        raise FetchError("it is too long")
    if _CONTROLS.search(text):
        raise FetchError("it contains control characters")
    try:
        return URL(text)
    except ValueError:
        raise FetchError("it is malformed") from None


MEGABYTE: Final = 1024 * 1024
MAX_RATIO: Final = 100
_RATIO_FLOOR: Final = 64 * 1024  # below this size no decompression bomb is assumed
_CHUNK_BYTES: Final = 64 * 1024
_LOOKUP_TIMEOUT: Final = 2.0  # seconds; behind some proxies there is no DNS

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = (("User-Agent", "Greenroom"), ("Accept", "*/*"), ("Accept-Encoding", "gzip"))


class Fetcher:
    """An HTTP client for untrusted URLs: no cookies, no `.netrc`, proxies and CA file only as given.

    `environment` is read for HTTPS_PROXY, HTTP_PROXY, NO_PROXY and SSL_CERT_FILE; addresses in
    `allow_networks` count as public.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        max_bytes: int = 20 * MEGABYTE,
        timeout: float = 10.0,
        max_redirects: int = 3,
        allow_networks: Iterable[str] = (),
        resolver: AbstractResolver | None = None,
    ) -> None:
        environment = environment or {}
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._max_redirects = max_redirects
        self._allowed = tuple(ip_network(network) for network in allow_networks)
        self._resolver = resolver
        self._proxies = Proxies.from_environment(environment)
        self._ca_file = environment.get("SSL_CERT_FILE") or None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Without a file it is the context that aiohttp has built: reading all certificates again takes 30 ms.
        context = await asyncio.to_thread(build_tls_context, self._ca_file) if self._ca_file else True
        self._guard = _AddressGuard(self._resolver or aiohttp.ThreadedResolver(), self._allowed)
        guarded = aiohttp.TCPConnector(
            resolver=self._guard,
            use_dns_cache=False,
            socket_factory=self._guard.make_socket,
            ssl=context,
            force_close=True,
        )
        self._direct = await self._stack.enter_async_context(_open_session(guarded))
        # Used only for what the operator named: a proxy or an origin, which may be in a private network.
        unguarded = aiohttp.TCPConnector(ssl=context, force_close=True)
        self._unguarded = await self._stack.enter_async_context(_open_session(unguarded))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def get(
        self, url: str, *, max_bytes: int | None = None, trusted_origin: str = "", known: FetchedBody | None = None
    ) -> FetchedBody:
        """Return the body at a URL, or `known` if that is its version. Raises FetchError, also after the timeout.

        Addresses of `trusted_origin` need not be public: the operator named it. Redirects that leave it are
        checked as any other URL.
        """
        hops: list[str | URL] = [url]
        status = None
        try:
            async with asyncio.timeout(self._timeout):
                trusted = URL(trusted_origin).origin() if trusted_origin else None
                limit = self._max_bytes if max_bytes is None else max_bytes
                return await self._follow_redirects(hops, trusted, limit, known)
        except FetchError as error:
            cause, status = str(error), error.status
        except TimeoutError:
            cause = f"it took longer than {self._timeout:g} s"
        except (aiohttp.ClientError, OSError) as error:
            cause = describe_client_error(error)
        via = f" (sent on to {redact_url(hops[-1])})" if len(hops) > 1 else ""
        # Outside the handlers: aiohttp's messages hold the whole URL, and tracebacks end up in logs.
        raise FetchError(f"cannot fetch {redact_url(url)}{via}: {cause}", status)

    async def _follow_redirects(
        self, hops: list[str | URL], trusted: URL | None, max_bytes: int, known: FetchedBody | None
    ) -> FetchedBody:
        target = check_url(hops[0])
        for _ in range(self._max_redirects + 1):
            answer = await self._request(target, max_bytes, known, is_trusted=target.origin() == trusted)
            if isinstance(answer, FetchedBody):
                return answer
            hops.append(answer)
            if target.scheme == "https" and answer.scheme == "http":
                raise FetchError("a redirect leads from https to http")
            target = check_url(answer)
        raise FetchError(f"more than {self._max_redirects} redirects")

    async def _request(
        self, target: URL, max_bytes: int, known: FetchedBody | None, *, is_trusted: bool
    ) -> FetchedBody | URL:
        """Send one request; return the body, or the target of a redirect."""
        proxy = self._proxies.proxy_for(target)
        session = self._unguarded if is_trusted or proxy is not None else self._direct
        if not is_trusted:
            await self._guard.check_target(target, by_proxy=proxy is not None)
        versions = {"If-None-Match": known.etag, "If-Modified-Since": known.modified} if known is not None else {}
        headers = {name: value for name, value in versions.items() if value}
        async with session.get(target, proxy=proxy, allow_redirects=False, headers=headers) as response:
            if known is not None and response.status == 304:
                return replace(known, is_unchanged=True)
            if response.status in _REDIRECTS:
                return _redirect_target(target, response.headers.get("Location", ""))
            if not 200 <= response.status < 300:
                raise FetchError(f"the server answered {response.status}", response.status)
            if (response.content_length or 0) > max_bytes:
                raise FetchError(f"it is larger than {max_bytes} bytes")
            body = _Body(response.headers.get("Content-Encoding", ""), max_bytes)
            async for chunk in response.content.iter_any():
                body.feed(chunk)
            content = body.finish()
            declared = response.content_type.lower() if "Content-Type" in response.headers else ""
            etag, modified = (response.headers.get(name, "")[:200] for name in ("ETag", "Last-Modified"))
            media_type = sniff_media_type(content, declared)
            return FetchedBody(str(target), media_type, content, response.charset, etag, modified)


class _AddressGuard(AbstractResolver):
    """Allows only public addresses: resolved, literal, or about to be connected to."""

    def __init__(self, resolver: AbstractResolver, allowed: tuple[Network, ...]) -> None:
        self._resolver = resolver
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            answers = await self._resolver.resolve(host, port, family)
        except UnicodeError as error:  # a label too long for DNS
            raise OSError(None, str(error)) from error
        if not answers:
            raise OSError(None, "no addresses")
        # All are checked: any of them may be connected to.
        for answer in answers:
            self._check_address(answer["host"])
        return answers

    async def close(self) -> None:
        """Do nothing: the caller owns the inner resolver."""

    async def check_target(self, target: URL, *, by_proxy: bool) -> None:
        """Check targets that aiohttp does not resolve: literal addresses, and any host behind a proxy."""
        host = target.raw_host or ""
        if parse_ip_literal(host) is not None:
            self._check_address(host)
        elif by_proxy:
            try:
                async with asyncio.timeout(_LOOKUP_TIMEOUT):
                    await self.resolve(host, target.port or 0)
            except OSError:  # TimeoutError is one
                return  # a name that only the proxy knows

    def make_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Create the socket for an address that is still to be connected to."""
        family, kind, protocol, _, address = info
        try:
            self._check_address(str(address[0]))
        except FetchError as error:  # aiohttp knows how to clean up after an OSError only
            raise PermissionError(errno.EACCES, str(error)) from error
        return socket.socket(family, kind, protocol)

    def _check_address(self, address: str) -> None:
        reason = closed_range_of(ip_address(address), self._allowed)
        if reason is not None:
            raise FetchError(f"it leads to an address that is not public ({reason})")


class _Body:
    """Collects and decompresses a streamed body; raises FetchError beyond its limit."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise FetchError("it is compressed in a way that was not requested")
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding.endswith("gzip") else None
        self._max_bytes = max_bytes
        self._received = 0
        self._content = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes received."""
        # Received bytes count too: a stream of empty blocks decompresses to nothing for ever.
        self._received += len(chunk)
        if self._gzip is None:
            self._add(chunk)
            return
        try:
            while chunk and not self._gzip.eof:
                self._add(self._gzip.decompress(chunk, _CHUNK_BYTES))
                chunk = self._gzip.unconsumed_tail
        except zlib.error:
            raise FetchError("its gzip data is damaged") from None
        if self._gzip.unused_data or chunk:
            raise FetchError("its gzip data is followed by other data")

    def finish(self) -> bytes:
        """Return the whole body."""
        if self._gzip is not None and self._received:
            self._add(self._gzip.flush())
            if not self._gzip.eof:
                raise FetchError("its gzip data is incomplete")
        return bytes(self._content)

    def _add(self, piece: bytes) -> None:
        self._content += piece
        size = len(self._content)
        if max(size, self._received) > self._max_bytes:
            raise FetchError(f"it is larger than {self._max_bytes} bytes")
        if size > _RATIO_FLOOR and size > MAX_RATIO * self._received:
            raise FetchError(f"it unpacks to more than {MAX_RATIO} times its size")


def _redirect_target(target: URL, location: str) -> URL:
    if not location:
        raise FetchError("a redirect leads nowhere")
    try:
        return target.join(URL(location))
    except ValueError:
        raise FetchError("a redirect leads to a malformed URL") from None


def _open_session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,  # decompressed here, where the output is counted
        timeout=aiohttp.ClientTimeout(total=None),  # one timeout covers all redirects
        headers=dict(_HEADERS),
    )


@cache
def build_tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Return the context that verifies with the certificates of a file, by default with those of the system.

    All connections share it: loading the certificates takes 20 ms, and nearly 1 MB. Raises SettingError if the file has
    none.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise SettingError(f"SSL_CERT_FILE: no certificates in {ca_file!r} ({error}); name a PEM file") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def find_cause(error: BaseException) -> BaseException:
    """Return the error of aiohttp that caused an SDK's error, else the latter: SDKs take a refusal for a timeout."""
    return next((cause for cause in causes_of(error) if isinstance(cause, aiohttp.ClientError)), error)


def describe_client_error(error: Exception) -> str:
    """Return why aiohttp got no answer, without the text of the error: it may hold a password or a token."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "it timed out"
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not valid ({getattr(error.certificate_error, 'verify_message', '')})"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status}"
        case aiohttp.ClientProxyConnectionError():
            return "the proxy cannot be reached"
        case aiohttp.ClientConnectorDNSError():
            return "its host cannot be found"
        case aiohttp.ClientConnectorSSLError():
            return "TLS could not be agreed on"
        case aiohttp.ClientConnectorError():
            return f"no connection ({os.strerror(error.errno) if error.errno else 'refused'})"
        case _:
            return "the answer breaks off or is not proper HTTP"
