"""What people may be told of where their words go."""

from ipaddress import ip_address
from urllib.parse import urlsplit

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
