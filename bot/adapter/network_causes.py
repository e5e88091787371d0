"""Maps an aiohttp error to a `DisconnectCause`; a module of its own because it loads aiohttp."""

import socket
import ssl

import aiohttp

from bot.adapter.connection_status import DisconnectCause

CAUSE_BY_ERROR: tuple[tuple[tuple[type[BaseException], ...], DisconnectCause], ...] = (
    ((aiohttp.ClientConnectorDNSError, socket.gaierror), DisconnectCause.DNS),
    ((aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError), DisconnectCause.PROXY),
    ((aiohttp.ClientSSLError, ssl.SSLError), DisconnectCause.TLS),
    ((TimeoutError,), DisconnectCause.TIMEOUT),
    ((aiohttp.ClientError, OSError), DisconnectCause.UNREACHABLE),
)


def disconnect_cause(error: BaseException) -> DisconnectCause:
    """Return why a platform was not reached, from the first known error in the chain of causes."""
    current: BaseException | None = error
    while current is not None:
        for error_types, cause in CAUSE_BY_ERROR:
            if isinstance(current, error_types):
                return cause
        current = current.__cause__ or current.__context__
    return DisconnectCause.PLATFORM
