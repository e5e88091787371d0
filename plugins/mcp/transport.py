"""Bounded transports: a server that floods or dies ends its own connection and nothing else."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

from bot.text import escape_line, shorten
from plugins.mcp.config import ServerConfig
from plugins.mcp.tool_schemas import repair_tools

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1_000_000  # of one message of a server
WINDOW_SECONDS, MAX_WINDOW_BYTES, MAX_WINDOW_MESSAGES = 10.0, 16_000_000, 2_000
EXIT_SECONDS, TERMINATE_SECONDS = 1.0, 1.0  # for the end of a process: by itself, then after SIGTERM
HTTP_CONNECT_TIMEOUT = 10.0
MAX_ERROR_LENGTH = 200
EVENT_STREAM = "text/event-stream"

ReadItem = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[ReadItem], MemoryObjectSendStream[SessionMessage]]


class ServerFlood(Exception):
    """A server has sent more than is taken."""


class ServerMonitor:
    """Counts what a server sends, and knows whether and why its connection is over.

    `on_close` is called when it is.
    """

    def __init__(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close
        self.is_closed = asyncio.Event()
        self.cause = ""
        self.last_error_line = ""
        self.received_at = time.monotonic()
        self._window_start = self.received_at
        self._bytes = self._messages = 0

    def count(self, size: int, messages: int = 1) -> None:
        """Count received data. Raises ServerFlood if it is more than is taken in ten seconds."""
        self.received_at = time.monotonic()
        if self.received_at - self._window_start > WINDOW_SECONDS:
            self._window_start, self._bytes, self._messages = self.received_at, 0, 0
        self._bytes += size
        self._messages += messages
        if self._bytes > MAX_WINDOW_BYTES or self._messages > MAX_WINDOW_MESSAGES:
            raise ServerFlood("it sends too much")

    def close(self, cause: str) -> None:
        """Mark the connection as over; the first cause counts."""
        self.cause = self.cause or cause
        self.is_closed.set()
        self._on_close()


def open_transport(config: ServerConfig, monitor: ServerMonitor) -> Transport:
    """Return the transport to a server; it is opened and closed as a context manager."""
    return _open_process(config, monitor) if config.command is not None else _open_http(config, monitor)


@asynccontextmanager
async def _open_process(config: ServerConfig, monitor: ServerMonitor) -> AsyncIterator[Streams]:
    """Start a server and exchange lines of JSON with it. Raises OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        str(config.command),
        *config.args,
        env=get_default_environment() | dict(config.env),
        cwd=config.cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,  # so that its children end with it
    )
    try:
        received, read_stream = anyio.create_memory_object_stream[ReadItem](0)
        write_stream, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        async with received, read_stream, write_stream, to_send, anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, received, monitor)
            tasks.start_soon(_write_messages, process, to_send, monitor)
            tasks.start_soon(_read_errors, process, monitor)
            try:
                yield read_stream, write_stream
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end_process(process)


async def _read_messages(
    process: asyncio.subprocess.Process, received: MemoryObjectSendStream[ReadItem], monitor: ServerMonitor
) -> None:
    assert process.stdout is not None
    async with received:  # it ends the session, which then finds the cause
        try:
            while line := await process.stdout.readline():
                monitor.count(len(line))
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await asyncio.sleep(0)  # some servers print; the loop goes on between the lines
                    continue
                await received.send(repair_listing(SessionMessage(message)))
        except ServerFlood as error:
            monitor.close(str(error))
        except ValueError:  # of readline
            monitor.close(f"it sends a message of more than {MAX_MESSAGE_BYTES:,} bytes")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has ended
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await process.wait()
            monitor.close(_describe_exit(process, monitor))


def repair_listing(item: ReadItem) -> ReadItem:
    """Return a message; the tools in it are repaired before the SDK refuses all of them for one."""
    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
        tools = item.message.result.get("tools")
        if isinstance(tools, list):
            item.message.result["tools"] = repair_tools(tools)
    return item


async def _forward_messages(source: Any, received: MemoryObjectSendStream[ReadItem]) -> None:
    async with received:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for item in source:
                await received.send(repair_listing(item))


def _describe_exit(process: asyncio.subprocess.Process, monitor: ServerMonitor) -> str:
    code = process.returncode
    exit_text = "it closed the connection" if code is None else f"it ended with exit code {code}"
    return f"{exit_text}: {monitor.last_error_line}" if monitor.last_error_line else exit_text


async def _write_messages(
    process: asyncio.subprocess.Process, to_send: MemoryObjectReceiveStream[SessionMessage], monitor: ServerMonitor
) -> None:
    assert process.stdin is not None
    try:
        async for item in to_send:
            process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()
    except OSError:  # it has closed its input
        monitor.close("it takes no more messages")


async def _read_errors(process: asyncio.subprocess.Process, monitor: ServerMonitor) -> None:
    """Keep the last line that the server writes for people, and log each at DEBUG."""
    assert process.stderr is not None
    while data := await process.stderr.read(4096):
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            monitor.last_error_line = escape_line(shorten(lines[-1], MAX_ERROR_LENGTH))
            logger.debug("an MCP server writes: %s", monitor.last_error_line)
        await asyncio.sleep(0)


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """End a server and its children: by the end of its input, then by SIGTERM, then by SIGKILL."""
    if process.stdin is not None:
        process.stdin.close()
    for stop, seconds in ((None, EXIT_SECONDS), (signal.SIGTERM, TERMINATE_SECONDS), (None, None)):
        with suppress(ProcessLookupError, PermissionError):
            if seconds is None:
                _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))
            elif stop is not None:
                _signal_group(process, stop)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
    with suppress(ProcessLookupError):
        process._transport.close()  # type: ignore[attr-defined]  # a child may hold the pipes open


def _signal_group(process: asyncio.subprocess.Process, signal_number: signal.Signals) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal_number)
    elif process.returncode is None:
        process.terminate()


class _CountedStream(httpx2.AsyncByteStream):
    """The body of a response, counted by a monitor; a body that is no stream of events is bounded as a whole."""

    def __init__(self, body: httpx2.AsyncByteStream, monitor: ServerMonitor, *, is_events: bool) -> None:
        self._body = body
        self._monitor = monitor
        self._is_events = is_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._body:
            total += len(chunk)
            if not self._is_events and total > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError(f"an answer has more than {MAX_MESSAGE_BYTES:,} bytes")
            try:
                self._monitor.count(len(chunk), messages=chunk.count(b"data:"))
            except ServerFlood as error:
                self._monitor.close(str(error))
                raise httpx2.ReadError(str(error)) from None
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def _open_http(config: ServerConfig, monitor: ServerMonitor) -> AsyncIterator[Streams]:
    """Connect to a server by streamable HTTP."""

    async def count_body(response: httpx2.Response) -> None:
        is_events = response.headers.get("content-type", "").startswith(EVENT_STREAM)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _CountedStream(response.stream, monitor, is_events=is_events)

    client = httpx2.AsyncClient(
        headers=dict(config.headers),
        timeout=httpx2.Timeout(None, connect=HTTP_CONNECT_TIMEOUT),
        event_hooks={"response": [count_body]},
    )
    async with (
        client,
        streamable_http_client(str(config.url), http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        messages, write_stream = streams
        received, read_stream = anyio.create_memory_object_stream[ReadItem](0)
        async with received, read_stream, anyio.create_task_group() as tasks:
            tasks.start_soon(_forward_messages, messages, received)
            try:
                yield read_stream, write_stream  # type: ignore[misc]  # the SDK's own streams have the same methods
            finally:
                tasks.cancel_scope.cancel()
