"""HTTP values shared by the web adapter and plugins: routes, requests, Host and Origin checks."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY_ADDRESS = frozenset({"0.0.0.0", "::", "", "*"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?")
_ORIGIN = re.compile(r"https?://([^/?#@\s]+)", re.IGNORECASE)


def allowed_hosts(server_host: str, named: Iterable[str]) -> frozenset[str]:
    """List the names by which the server may be called, as they stand in a Host header without a port."""
    own = [] if server_host in ANY_ADDRESS else [server_host]
    return LOOPBACK | {host_name(name) or f"[{name.strip().lower()}]" for name in (*own, *named)}


def host_name(header: str) -> str:
    """Take the name out of a Host header; empty where it is malformed."""
    found = _HOST.fullmatch(header.strip().lower())
    return found[1] if found else ""


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Tell whether a browser says that another site's page sent this."""
    if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("Origin")
    return origin is not None and not _is_own(origin, headers.get("Host", ""))


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Tell whether a browser vouches that a page of ours sent this."""
    return _is_own(headers.get("Origin", ""), headers.get("Host", "")) and not is_foreign(headers)


def _is_own(origin: str, host: str) -> bool:
    found = _ORIGIN.fullmatch(origin)
    return found is not None and found[1].lower() == host.strip().lower()


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One HTTP request to a plugin's route; `body` is at most 1 MiB."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a route answers: `json` if given, else `text`."""

    status: int = 200
    json: Any = None
    text: str = ""
    content_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class BoundRoute:
    """A plugin's route, ready to be called; it lies under `/plugins/<plugin>`."""

    plugin: str
    method: str
    path: str
    is_public: bool
    handle: Callable[[RouteRequest], Awaitable[RouteResponse]]


OWN = "a server of whoever runs me"
PRIVATE = (".local", ".localhost", ".internal", ".lan", ".home", ".home.arpa", ".intranet", ".corp")


def told_host(url: str) -> str:
    """Name the host of an address to a stranger; one that only its owner can reach is not named."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        ip_address(host)
    except ValueError:
        return OWN if "." not in host or host.endswith(PRIVATE) else host
    return OWN
