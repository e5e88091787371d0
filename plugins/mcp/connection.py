"""`ServerConnection`: keeps one MCP server connected, lists what it offers, and calls its tools."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.client import Client, IncomingMessage

from bot.platform import Backoff, TimeSource
from bot.text import escape_line, shorten
from plugins.mcp.config import ServerConfig
from plugins.mcp.transport import MAX_ERROR_LENGTH, ServerMonitor, open_transport

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 20.0  # seconds until a server has listed its tools
WAIT_SECONDS = 5.0  # how long a call waits for a server that is starting
LIST_TIMEOUT = 10.0
STABLE_SECONDS = 60.0  # a connection that lasted longer begins the delays anew
RELIST_SECONDS = 1.0  # the least time between two listings
MAX_TOOLS, MAX_PAGES = 128, 20
MAX_CALLS = 8  # at once
BACKOFF = Backoff(1.0, 300.0)
# The server has refused the request and done nothing. Other codes may come from the SDK instead of the server: it
# makes PARSE_ERROR of an answer that it cannot read, though the call may have been carried out.
REFUSALS = frozenset({types.INVALID_PARAMS, types.HEADER_MISMATCH})


class ServerUnavailable(Exception):
    """A server is not connected: nothing was sent to it."""


class CallRefused(Exception):
    """A server has refused a call: nothing was done."""


class OutcomeUnknown(Exception):
    """A call was sent, and no valid answer came: it may have been carried out."""


class ServerConnection:
    """One server: its process or address, connected again with growing delays whenever it fails.

    `on_tools` is called with the tools after each listing, `on_resource` with the text of each configured
    resource. `run` must be running; the other methods may be called from any task.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        on_tools: Callable[[Sequence[types.Tool]], Awaitable[None]],
        on_resource: Callable[[str, str], None],
        time_source: TimeSource | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.cause = "it has not started yet"
        self.is_listed = asyncio.Event()
        self.wait_seconds = WAIT_SECONDS  # how long a call waits for a connection
        self._on_tools = on_tools
        self._on_resource = on_resource
        self._time = time_source or TimeSource()
        self._client: Client | None = None
        self._tool_count = 0
        self._is_connected = asyncio.Event()
        self._monitor = ServerMonitor(self._is_connected.clear)
        self._has_changed = asyncio.Event()
        self._calls = asyncio.Semaphore(MAX_CALLS)

    async def run(self) -> None:
        """Connect, wait until the connection is over, and connect again; until it is cancelled."""
        failures = 0
        while True:
            self._monitor = ServerMonitor(self._is_connected.clear)
            started_at = self._time.monotonic()
            try:
                await self._run_once()
            except Exception as error:  # a server's behaviour, or the SDK's on it, must not end the service
                self._monitor.close(_describe(error))
                logger.debug("MCP server %s failed", self.name, exc_info=True)
            finally:
                self._client = None
                self._is_connected.clear()
            failures = 1 if self._time.monotonic() - started_at > STABLE_SECONDS else failures + 1
            delay = BACKOFF.delay(failures)
            self.cause = self._monitor.cause or "the connection is over"
            logger.warning("MCP server %s: %s; connecting again in %.0f s", self.name, self.cause, delay)
            await self._time.sleep(delay)

    async def _run_once(self) -> None:
        info = types.Implementation(name="greenroom", version=version("greenroom"))
        client = Client(
            open_transport(self.config, self._monitor),
            client_info=info,
            read_timeout_seconds=LIST_TIMEOUT,
            message_handler=self._handle_message,
            cache=None,
        )
        async with asyncio.timeout(CONNECT_TIMEOUT) as limit, client:
            await self._load(client)
            limit.reschedule(None)
            self._client, self.cause = client, ""
            self._is_connected.set()
            logger.info("MCP server %s is connected and has %d tools", self.name, self._tool_count)
            while not self._monitor.is_closed.is_set():
                await self._wait_for_change()
                if not self._monitor.is_closed.is_set():
                    await self._time.sleep(RELIST_SECONDS)
                    await self._load(client)

    async def _wait_for_change(self) -> None:
        """Wait until the server has changed what it offers, the resources are due, or the connection is over."""
        events = [asyncio.create_task(event.wait()) for event in (self._has_changed, self._monitor.is_closed)]
        try:
            timeout = self.config.refresh if self.config.resources else None
            await asyncio.wait(events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()

    async def _load(self, client: Client) -> None:
        """List the tools and read the configured resources."""
        self._has_changed.clear()
        tools: list[types.Tool] = []
        if client.server_capabilities.tools is not None:
            cursor: str | None = None
            for _ in range(MAX_PAGES):
                page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or len(tools) > MAX_TOOLS:
                    break
        if len(tools) > MAX_TOOLS:
            logger.warning(
                "MCP server %s has more than %d tools; the others are left out",
                self.name,
                MAX_TOOLS,
                extra={"once": True},
            )
        self._tool_count = len(tools[:MAX_TOOLS])
        await self._on_tools(tools[:MAX_TOOLS])
        self.is_listed.set()
        for resource in self.config.resources:
            try:
                read = await client.session.read_resource(resource.uri)
            except MCPError as error:
                logger.warning("MCP server %s: %s cannot be read: %s", self.name, resource.uri, _describe(error))
                continue
            texts = [item.text for item in read.contents if isinstance(item, types.TextResourceContents)]
            self._on_resource(resource.uri, "\n".join(texts))

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.ResourceListChangedNotification):
            self._has_changed.set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool once.

        Raises ServerUnavailable if nothing was sent, CallRefused if nothing was done, OutcomeUnknown if no
        valid answer came in time or the connection ended before it.
        """
        async with self._calls:
            client = await self._wait_connected()
            monitor, received_at = self._monitor, self._monitor.received_at
            request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)))
            try:
                # Not `call_tool`, which checks the result by the server's own schema: that may take for ever.
                return await client.session.send_request(
                    request, types.CallToolResult, request_read_timeout_seconds=self.config.timeout
                )
            except MCPError as error:
                if error.error.code in REFUSALS:
                    raise CallRefused(_describe(error)) from error
                if error.error.code == types.REQUEST_TIMEOUT and monitor.received_at == received_at:
                    monitor.close(f"it said nothing for {self.config.timeout:g} s")  # it hangs: start it again
                raise OutcomeUnknown(monitor.cause or _describe(error)) from error
            except Exception as error:  # what the SDK raises on a broken connection or an invalid answer
                raise OutcomeUnknown(monitor.cause or _describe(error)) from error

    async def _wait_connected(self) -> Client:
        try:
            async with asyncio.timeout(self.wait_seconds):
                await self._is_connected.wait()
        except TimeoutError:
            pass
        if self._client is None or not self._is_connected.is_set():
            raise ServerUnavailable(f"MCP server {self.name} is not running: {self.cause or self._monitor.cause}")
        return self._client


def _describe(error: BaseException) -> str:
    """Return an error in one short line; of a group of one, that of its member."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        [error] = error.exceptions
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT:g} s"
    text = error.error.message if isinstance(error, MCPError) else f"{type(error).__name__}: {error}"
    return escape_line(shorten(text, MAX_ERROR_LENGTH))
