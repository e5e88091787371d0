"""A proxy to PostgreSQL that a test can cut at any message of the driver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

SIZE = 1 << 20


class Proxy:
    """Forwards everything until it cuts: then a message arrives, but its answer does not."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._database = parts.path
        self.port = 0
        self._left = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_down = False
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres:hunter2@127.0.0.1:{self.port}{self._database}?sslmode=disable"

    def cut_at(self, number: int) -> None:
        """Cut after this many more messages of the driver."""
        self._left = number

    def hang_up(self) -> None:
        """Cut all connections now; refuse new ones while the proxy `is_down`."""
        for writer in self._writers:
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            self.hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self.is_down:
                await self._pass_on(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, questions = await asyncio.open_unix_connection(self._socket)
        except OSError:  # the server is being restarted
            return
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                passing = group.create_task(self._answer(answers, writer))
                while data := await _read(reader):
                    self._left -= 1
                    is_last = self._left == 0
                    if is_last:
                        passing.cancel()
                        await asyncio.wait({passing})
                    questions.write(data)
                    if is_last:
                        self.cuts += 1
                        await answers.read(SIZE)  # it has been done
                        break
                passing.cancel()
        questions.transport.abort()

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await answers.read(SIZE):
                writer.write(data)
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return what came; nothing where the other side was cut off."""
    try:
        return await reader.read(SIZE)
    except ConnectionError:
        return b""
