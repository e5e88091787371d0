"""One connection: what aiohttp refuses by itself is told in our words, and who does not read is cut off."""

import asyncio
from secrets import token_hex
from typing import Any

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.guards import secure
from adapters.web.problems import REQUEST_ID, refused


class Connection(web.RequestHandler):
    """A connection; `write_seconds` is how long what was written to it may wait for its reader.

    aiohttp waits for ever: whoever asks and asks and never reads would hold a place without any token.
    """

    __slots__ = ("_cut", "_write_seconds")

    def __init__(self, server: Any, *, write_seconds: float, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._write_seconds = write_seconds
        self._cut: asyncio.TimerHandle | None = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or what failed past all of our own code."""
        super().handle_error(request, status, exc, message)  # it logs, and knows when it is too late
        return _refusal(status)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer; what a client expects in vain is refused before any of our code is asked."""
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = _refusal(resp.status)
        return await super().finish_response(request, resp, start_time)

    def pause_writing(self) -> None:
        """Begin to wait for the reader."""
        super().pause_writing()
        if self.transport is not None:
            loop = asyncio.get_running_loop()
            self._cut = loop.call_later(self._write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it has read."""
        super().resume_writing()
        self._wait_no_more()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of what belonged to it."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_no_more(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


def _refusal(status: int) -> web.Response:
    REQUEST_ID.set(token_hex(8))
    response = Answers(()).refusal(refused(status))
    secure(response)
    response.force_close()
    return response
