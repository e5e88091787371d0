"""Which URLs and addresses may be fetched, and through which proxy: pure rules.

The ranges are our own list: `ipaddress` calls tunnels such as `64:ff9b::7f00:1` and `2002:7f00:1::` global.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self

from yarl import URL

from bot.errors import FetchError, SettingError

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
