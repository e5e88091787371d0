"""Why a request came to nothing, by the error it ended with; apart from `link`, for it loads aiohttp."""

import socket
import ssl

import aiohttp

from bot.adapter.connection_status import Cause

CAUSES: tuple[tuple[tuple[type[BaseException], ...], Cause], ...] = (
    ((aiohttp.ClientConnectorDNSError, socket.gaierror), Cause.DNS),
    ((aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError), Cause.PROXY),
    ((aiohttp.ClientSSLError, ssl.SSLError), Cause.TLS),
    ((TimeoutError,), Cause.TIMEOUT),
    ((aiohttp.ClientError, OSError), Cause.UNREACHABLE),
)


def cause_of(error: BaseException) -> Cause:
    """Name why a platform was not reached, by the nearest of an error's causes that tells."""
    one: BaseException | None = error
    while one is not None:
        for kinds, cause in CAUSES:
            if isinstance(one, kinds):
                return cause
        one = one.__cause__ or one.__context__
    return Cause.PLATFORM
