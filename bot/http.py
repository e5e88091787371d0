"""HTTP values shared by adapters and plugins: routes, requests, limits of servers, Host and Origin checks."""

import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from bot.concurrency.tasks import MemorySemaphore
from bot.errors import BotError

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::", "", "*"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?")
_ORIGIN = re.compile(r"https?://([^/?#@\s]+)", re.IGNORECASE)


def allowed_hosts(server_host: str, extra_hosts: Iterable[str]) -> frozenset[str]:
    """Return the names under which the server may be called, as in a Host header without a port."""
    server_names = [] if server_host in WILDCARD_HOSTS else [server_host]
    return LOOPBACK_HOSTS | {
        parse_host_header(name) or f"[{name.strip().lower()}]" for name in (*server_names, *extra_hosts)
    }


def parse_host_header(header: str) -> str:
    """Return the name in a Host header; empty where it is malformed."""
    match = _HOST.fullmatch(header.strip().lower())
    return match[1] if match else ""


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Return whether the browser's headers say that a page of another site sent this."""
    if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("Origin")
    return origin is not None and not _is_host_of(origin, headers.get("Host", ""))


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the browser's headers confirm that a page of this server sent this."""
    return _is_host_of(headers.get("Origin", ""), headers.get("Host", "")) and not is_cross_site(headers)


def _is_host_of(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and match[1].lower() == host.strip().lower()


class HttpProblem(BotError):
    """Raised to refuse a request; the message is sent to the client."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a port on which the bot listens; times in seconds."""

    header_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 60.0
    max_guesses: int = 10
    max_total_guesses: int = 200
    max_connections: int = 300  # with a valid token; the others have their own room:
    max_anonymous_connections: int = 100
    max_client_connections: int = 20  # anonymous ones of one address
    max_public_requests: int = 50  # to plugin routes that need no token, in progress


DEFAULT_BODY_BYTES = 1024 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class RouteScope(StrEnum):
    """Who may call a plugin's route."""

    PUBLIC = "public"  # everybody, without a token
    CHAT = "chat"  # a token for conversations, or the operator's
    READ_ONLY = "read_only"  # a token that may read, or the operator's
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class RouteCaller:
    """Whose token a request has: its scope, and its id and name, blank for the server's own token."""

    scope: str
    token_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a form: the name of its field, and its name and type as the client says, which prove nothing."""

    field_name: str
    name: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """A server-sent event: its data, a text or JSON, and optionally its name and id."""

    data: Any
    name: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One HTTP request to a plugin's route; `body` is at most as long as the route allows.

    `parameters` are those of the path, which may hold any characters. `form` and `files` are those of a form, for
    a route that accepts files. `caller` is None for a public route.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[UploadedFile] = ()
    caller: RouteCaller | None = None


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """The response of a route: `events` if set, else `json`, else the bytes of `body`, else `text`.

    `events` are sent as they come, as server-sent events, until they end or the client leaves.
    """

    status: int = 200
    json: Any = None
    text: str = ""
    content_type: str = "text/plain"
    body: bytes | None = field(default=None, repr=False)
    events: AsyncIterable[RouteEvent] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class BoundRoute:
    """A plugin's route, ready to be called under `/plugins/<plugin>`; `memory` is that of its agent."""

    plugin: str
    method: str
    path: str
    is_public: bool
    handle: Callable[[RouteRequest], Awaitable[RouteResponse]]
    scope: RouteScope = RouteScope.OPERATOR
    max_body_bytes: int = DEFAULT_BODY_BYTES
    accepts_files: bool = False
    summary: str = ""
    memory: MemorySemaphore = field(default_factory=MemorySemaphore, repr=False)


PRIVATE_HOST_LABEL = "a server of the person who runs me"
PRIVATE_SUFFIXES = (".local", ".localhost", ".internal", ".lan", ".home", ".home.arpa", ".intranet", ".corp")


def host_label(url: str) -> str:
    """Return the host of an address for a notice to users; one that only its owner can reach is not named."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        ip_address(host)
    except ValueError:
        return PRIVATE_HOST_LABEL if "." not in host or host.endswith(PRIVATE_SUFFIXES) else host
    return PRIVATE_HOST_LABEL
