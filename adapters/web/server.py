"""The listening socket, and limits of its connections."""

import asyncio
import errno
import logging
import socket
from secrets import token_hex
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from adapters.web.clients import ConnectionPool
from adapters.web.config import Limits, WebSettings
from adapters.web.errors import REQUEST_ID, build_refusal
from adapters.web.json_io import JsonResponder
from adapters.web.middleware import set_security_headers
from bot import SettingError

SHUTDOWN_TIMEOUT, LINGER_SECONDS = 0.5, 2.0


class Server:
    """Listens and serves an application."""

    def __init__(self, app: web.Application, settings: WebSettings, limits: Limits, pool: ConnectionPool) -> None:
        self._settings = settings
        self._limits = limits
        self._pool = pool
        # `keepalive_timeout` also bounds the time for the headers: it runs from the connection, and from the
        # end of each response, until the next complete request.
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": limits.header_seconds,
            "lingering_time": LINGER_SECONDS,
            "auto_decompress": False,
            "logger": _ProtocolLogger(logging.getLogger(__name__), {}),
        }
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=SHUTDOWN_TIMEOUT)
        self._socket_server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and return the port. Raises SettingError if that fails."""
        host, port = self._settings.server_host, self._settings.server_port
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._socket_server = await loop.create_server(self._create_protocol, host, port, start_serving=False)
            await self._socket_server.start_serving()
        except asyncio.CancelledError:  # in the moment in which it begins to listen
            if self._socket_server is not None:
                self._socket_server.close()
            raise
        except OSError as error:
            await self._runner.cleanup()
            raise SettingError(_explain_error(error, host, port)) from None
        return int(self._socket_server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listening socket, then the remaining connections."""
        if self._socket_server is not None:
            self._socket_server.close()
        await self._runner.cleanup()

    def _create_protocol(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None  # it exists since `setup`
        return Connection(server, self._pool, write_seconds=self._limits.write_seconds, **self._options)


class _ProtocolLogger(logging.LoggerAdapter[logging.Logger]):
    """Logger for aiohttp; an invalid request is logged at level DEBUG, without its text: it may hold a token."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        if isinstance(exc_info, HttpProcessingError):
            self.debug("a request was not HTTP: %s, status %d", type(exc_info).__name__, exc_info.code)
        else:
            super().exception(msg, *args, exc_info=exc_info, **kwargs)


def _explain_error(error: OSError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"SERVER_HOST {host!r} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all"
    if error.errno == errno.EADDRINUSE:
        suggested_port = port + 1 if port < 65535 else 3000
        return (
            f"SERVER_PORT {port} is in use: another program or bot uses it; choose another, "
            f"e.g. SERVER_PORT={suggested_port}, or 0 for any"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"SERVER_PORT {port} may not be used by this user: choose one above 1023, or 0 for any"
    if error.errno == errno.EAFNOSUPPORT:
        return f"SERVER_HOST {host!r} has an address family that is disabled here: use 127.0.0.1"
    return f"SERVER_HOST {host!r}, SERVER_PORT {port}: listening there fails: {error.strerror or error}"


class Connection(web.RequestHandler):
    """A connection of the pool that is aborted if its client reads nothing for `write_seconds`.

    aiohttp waits for ever: a client that never reads would occupy a connection without any token.
    """

    __slots__ = ("_cut", "_pool", "_write_seconds")

    def __init__(self, server: Any, pool: ConnectionPool, *, write_seconds: float, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._pool = pool
        self._write_seconds = write_seconds
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
        return _build_refusal_response(status)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a response; aiohttp refuses an unsupported Expect header before the middleware runs."""
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = _build_refusal_response(resp.status)
        return await super().finish_response(request, resp, start_time)

    def pause_writing(self) -> None:
        """Start the timeout for the reader."""
        super().pause_writing()
        if self.transport is not None:
            loop = asyncio.get_running_loop()
            self._cut = loop.call_later(self._write_seconds, self.transport.abort)

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


def _build_refusal_response(status: int) -> web.Response:
    REQUEST_ID.set(token_hex(8))
    response = JsonResponder(()).respond_problem(build_refusal(status))
    set_security_headers(response)
    response.force_close()
    return response
