"""The server of every port that the bot listens on, with limits of connections, requests and wrong tokens."""

import asyncio
import errno
import logging
import socket
import time
from asyncio import BaseProtocol, BaseTransport, Transport
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from bot.concurrency.tasks import BoundedDict
from bot.errors import SettingError
from bot.http import HttpProblem, ServerLimits

logger = logging.getLogger(__name__)

WINDOW_SECONDS, BLOCK_SECONDS, MAX_CLIENTS = 60.0, 300.0, 1024
RETRY_HEADERS = {"Retry-After": "5"}
SHUTDOWN_TIMEOUT, LINGER_SECONDS = 0.5, 2.0
TOKEN_SECONDS = 2.0  # what a new connection has to send its token before it counts for the limit of its client


def client_network(address: str | None) -> str:
    """Return the key of a client's limits: the address, or the /64 network of an IPv6 address."""
    try:
        ip6_address = IPv6Address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(ip6_address.ipv4_mapped or IPv6Network((ip6_address, 64), strict=False))


class TrustedProxies:
    """The proxies whose `X-Forwarded-For` header is believed, by address or network."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(
            ip_network(network, strict=False) for network in networks
        )

    def is_trusted(self, address: str | None) -> bool:
        """Return whether an address is one of a trusted proxy."""
        try:
            parsed = ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._networks)

    def find_client(self, remote: str | None, headers: MultiMapping[str]) -> str:
        """Return the client's network: of the last address before the trusted proxies."""
        forwarded = [item.strip() for line in headers.getall("X-Forwarded-For", ()) for item in line.split(",")]
        address = remote
        while forwarded and self.is_trusted(address):
            try:
                address = str(ip_address(forwarded.pop()))
            except ValueError:
                break
        return client_network(address)


@dataclass(slots=True)
class _GuessRecord:
    failures: deque[float] = field(default_factory=deque)
    blocked_until: float = 0.0


class GuessLimiter:
    """Counts wrong tokens, by client and in total; too many within a minute block further wrong ones for five minutes.

    A right token is never blocked. `label` names what is guessed, in the plural. `clock` is monotonic, in seconds.
    The latest 1024 clients are remembered.
    """

    def __init__(
        self,
        max_guesses: int = 10,
        max_total: int = 200,
        *,
        label: str = "tokens",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_guesses = max_guesses
        self._max_total = max_total
        self._label = label
        self._clock = clock
        self._records = BoundedDict[Hashable, _GuessRecord](MAX_CLIENTS, _GuessRecord)
        self._total = _GuessRecord()

    def blocked_seconds(self, client: Hashable) -> float:
        """Return for how many seconds wrong tokens of a client are still refused unread."""
        record = self._records.get(client)
        until = max(record.blocked_until if record else 0.0, self._total.blocked_until)
        return max(0.0, until - self._clock())

    def record_failure(self, client: Hashable) -> None:
        """Record a wrong token."""
        if self._is_too_many(self._records[client], self._max_guesses):
            logger.warning("%d wrong %s within a minute from %s", self._max_guesses, self._label, client)
        if self._is_too_many(self._total, self._max_total):
            logger.warning("%d wrong %s within a minute from all addresses", self._max_total, self._label)

    def refuse(self, client: Hashable, problem: HttpProblem) -> NoReturn:
        """Record a wrong token and raise the problem, or HttpProblem (429) while wrong tokens are blocked."""
        if blocked_seconds := self.blocked_seconds(client):
            headers = {"Retry-After": str(int(blocked_seconds) + 1)}
            raise HttpProblem(429, "too_many_attempts", f"too many wrong {self._label}; wait a few minutes", headers)
        self.record_failure(client)
        raise problem

    def _is_too_many(self, record: _GuessRecord, max_failures: int) -> bool:
        now = self._clock()
        record.failures.append(now)
        while record.failures[0] < now - WINDOW_SECONDS:
            record.failures.popleft()
        if len(record.failures) < max_failures:
            return False
        record.blocked_until = now + BLOCK_SECONDS
        record.failures.clear()
        return True


@dataclass(slots=True)
class _Entry:
    client: str
    transport: Transport
    opened_at: float
    is_running: bool = False


class ConnectionPool:
    """The open connections of the server: those that have shown a valid token, and the anonymous ones.

    Each has its own limit, so neither takes the other's room. An anonymous connection that has no request of
    a public plugin route in progress makes room for a new one, so the health check is always answered.
    """

    def __init__(
        self, limits: ServerLimits, proxies: TrustedProxies, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._proxies = proxies
        self._clock = clock
        self._anonymous: dict[BaseProtocol, _Entry] = {}  # the longest inactive first
        self._authenticated: set[BaseProtocol] = set()

    def admit(self, connection: BaseProtocol, transport: BaseTransport) -> None:
        """Add a new connection; abort the longest inactive one, or the new one if there is no room."""
        assert isinstance(transport, Transport)
        remote = (transport.get_extra_info("peername") or ("",))[0]
        client = "" if self._proxies.is_trusted(remote) else client_network(remote)
        now = self._clock()
        counts = Counter(entry.client for entry in self._anonymous.values())
        idle_count = sum(
            entry.client == client and now - entry.opened_at >= TOKEN_SECONDS for entry in self._anonymous.values()
        )
        crowded = None
        if client and idle_count >= self.limits.max_client_connections:
            crowded = client
        elif len(self._anonymous) >= self.limits.max_anonymous_connections:
            crowded = max(counts, key=lambda name: counts[name])
        if crowded is None or self._abort_inactive(crowded):
            self._anonymous[connection] = _Entry(client, transport, now)
        else:
            transport.abort()

    def remove(self, connection: BaseProtocol) -> None:
        """Remove a connection that has ended."""
        self._anonymous.pop(connection, None)
        self._authenticated.discard(connection)

    def authenticate(self, request: web.BaseRequest) -> None:
        """Record that a connection has shown a valid token. Raises HttpProblem if too many have."""
        connection: BaseProtocol = request.protocol
        if connection in self._authenticated:
            return
        if len(self._authenticated) >= self.limits.max_connections:
            raise HttpProblem(503, "too_many_connections", "there are too many connections", RETRY_HEADERS)
        if self._anonymous.pop(connection, None) is not None:
            self._authenticated.add(connection)

    @contextmanager
    def run_public(self, request: web.BaseRequest) -> Iterator[None]:
        """Keep an anonymous connection during the block. Raises HttpProblem if too many are in progress."""
        entry = self._anonymous.get(request.protocol)
        if entry is None:
            yield
            return
        if sum(other.is_running for other in self._anonymous.values()) >= self.limits.max_public_requests:
            raise HttpProblem(503, "too_many_requests", "there are too many requests without a token", RETRY_HEADERS)
        entry.is_running = True
        try:
            yield
        finally:
            entry.is_running = False

    def record_activity(self, request: web.BaseRequest) -> None:
        """Record that a connection has sent a complete request."""
        if (entry := self._anonymous.pop(request.protocol, None)) is not None:
            self._anonymous[request.protocol] = entry

    def _abort_inactive(self, client: str) -> bool:
        for connection, entry in self._anonymous.items():
            if entry.client == client and not entry.is_running:
                del self._anonymous[connection]
                entry.transport.abort()
                return True
        return False


@asynccontextmanager
async def body_timeout(seconds: float) -> AsyncIterator[None]:
    """Bound the time for reading a body. Raises HttpProblem after it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise HttpProblem(408, "too_slow", f"the body did not arrive within {seconds:g} seconds") from None


RefusalBuilder = Callable[[int], web.Response]


def _build_refusal(status: int) -> web.Response:
    response = web.Response(status=status)
    response.force_close()
    return response


class HttpServer:
    """Listens and serves an application to the connections of a pool, within its limits.

    `settings_prefix` begins the names of the settings of its address, as SERVER in SERVER_HOST and SERVER_PORT.
    `build_refusal` builds the response to a request that reaches no handler, from its status. A handler is cancelled
    when its client leaves, if `cancels_handlers`.
    """

    def __init__(
        self,
        app: web.Application,
        pool: ConnectionPool,
        *,
        host: str,
        port: int,
        settings_prefix: str,
        build_refusal: RefusalBuilder = _build_refusal,
        cancels_handlers: bool = False,
    ) -> None:
        self._host, self._port, self._settings_prefix = host, port, settings_prefix
        self._pool = pool
        self._build_refusal = build_refusal
        # `keepalive_timeout` also bounds the time for the headers: it runs from the connection, and from the
        # end of each response, until the next complete request.
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": pool.limits.header_seconds,
            "lingering_time": LINGER_SECONDS,
            "auto_decompress": False,
            "logger": _ProtocolLogger(logging.getLogger(__name__), {}),
        }
        self._runner = web.AppRunner(app, handler_cancellation=cancels_handlers, shutdown_timeout=SHUTDOWN_TIMEOUT)
        self._socket_server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and return the port. Raises SettingError if that fails."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._socket_server = await loop.create_server(
                self._create_protocol, self._host, self._port, start_serving=False
            )
            await self._socket_server.start_serving()
        except asyncio.CancelledError:  # in the moment in which it begins to listen
            if self._socket_server is not None:
                self._socket_server.close()
            raise
        except OSError as error:
            await self._runner.cleanup()
            raise SettingError(_explain_error(error, self._host, self._port, self._settings_prefix)) from None
        return int(self._socket_server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listening socket, then the remaining connections."""
        if self._socket_server is not None:
            self._socket_server.close()
        await self._runner.cleanup()

    def _create_protocol(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None  # it exists since `setup`
        return Connection(server, self._pool, self._build_refusal, **self._options)


class _ProtocolLogger(logging.LoggerAdapter[logging.Logger]):
    """Logger for aiohttp; an invalid request is logged at level DEBUG, without its text: it may hold a token."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        if isinstance(exc_info, HttpProcessingError):
            self.debug("a request was not HTTP: %s, status %d", type(exc_info).__name__, exc_info.code)
        else:
            super().exception(msg, *args, exc_info=exc_info, **kwargs)


def _explain_error(error: OSError, host: str, port: int, prefix: str) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{prefix}_HOST {host!r} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all"
    if error.errno == errno.EADDRINUSE:
        suggested_port = port + 1 if port < 65535 else 3000
        return (
            f"{prefix}_PORT {port} is in use: another program or bot uses it; choose another, "
            f"e.g. {prefix}_PORT={suggested_port}, or 0 for any"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{prefix}_PORT {port} may not be used by this user: choose one above 1023, or 0 for any"
    if error.errno == errno.EAFNOSUPPORT:
        return f"{prefix}_HOST {host!r} has an address family that is disabled here: use 127.0.0.1"
    return f"{prefix}_HOST {host!r}, {prefix}_PORT {port}: listening there fails: {error.strerror or error}"


class Connection(web.RequestHandler):
    """A connection of the pool that is aborted if its client reads nothing for the pool's `write_seconds`.

    aiohttp waits for ever: a client that never reads would occupy a connection without any token.
    """

    __slots__ = ("_build_refusal", "_cut", "_pool")

    def __init__(self, server: Any, pool: ConnectionPool, build_refusal: RefusalBuilder, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._pool = pool
        self._build_refusal = build_refusal
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool; it may abort the connection."""
        super().connection_made(transport)
        self._pool.admit(self, transport)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Respond to invalid HTTP, and to errors outside of the middleware."""
        super().handle_error(request, status, exc, message)  # logs; raises if the response has started
        return self._build_refusal(status)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a response; aiohttp refuses an unsupported Expect header before the middleware runs."""
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = self._build_refusal(resp.status)
        return await super().finish_response(request, resp, start_time)

    def pause_writing(self) -> None:
        """Start the timeout for the reader."""
        super().pause_writing()
        if self.transport is not None:
            loop = asyncio.get_running_loop()
            self._cut = loop.call_later(self._pool.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timeout: the client has read."""
        super().resume_writing()
        self._cancel_abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Leave the pool and cancel the timeout."""
        self._pool.remove(self)
        self._cancel_abort()
        super().connection_lost(exc)

    def _cancel_abort(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None
