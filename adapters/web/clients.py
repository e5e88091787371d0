"""Clients without a valid token: their addresses, and limits of their connections, requests and wrong tokens."""

import logging
import time
from asyncio import BaseProtocol, BaseTransport, Transport
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NoReturn

from aiohttp import web
from multidict import MultiMapping

from adapters.web.config import Limits
from adapters.web.errors import HttpProblem
from bot.platform import BoundedDict

logger = logging.getLogger(__name__)

WINDOW_SECONDS, BLOCK_SECONDS, MAX_CLIENTS = 60.0, 300.0, 1024
RETRY_HEADERS = {"Retry-After": "5"}
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

    A right token is never blocked. `clock` is monotonic, in seconds. The latest 1024 clients are remembered.
    """

    def __init__(
        self, max_guesses: int = 10, max_total: int = 200, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_guesses = max_guesses
        self._max_total = max_total
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
            logger.warning("%d wrong tokens within a minute from %s", self._max_guesses, client)
        if self._is_too_many(self._total, self._max_total):
            logger.warning("%d wrong tokens within a minute from all addresses", self._max_total)

    def refuse(self, client: Hashable) -> NoReturn:
        """Record a wrong token and raise HttpProblem: 401, or 429 while wrong tokens are blocked."""
        if blocked_seconds := self.blocked_seconds(client):
            headers = {"Retry-After": str(int(blocked_seconds) + 1)}
            raise HttpProblem(429, "too_many_attempts", "too many wrong tokens; wait a few minutes", headers)
        self.record_failure(client)
        raise HttpProblem(401, "unauthorized", "this is not the token", {"WWW-Authenticate": "Bearer"})

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

    def __init__(self, limits: Limits, proxies: TrustedProxies, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
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
        if client and idle_count >= self._limits.max_client_connections:
            crowded = client
        elif len(self._anonymous) >= self._limits.max_anonymous_connections:
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
        if len(self._authenticated) >= self._limits.max_connections:
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
        if sum(other.is_running for other in self._anonymous.values()) >= self._limits.max_public_requests:
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
