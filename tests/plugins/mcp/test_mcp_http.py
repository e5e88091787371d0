"""Servers that misbehave over streamable HTTP: they end their own connection and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import Role
from bot.testing import make_turn
from plugins.mcp.service import MCPServers
from tests.plugins.mcp.conftest import Open
from tests.plugins.mcp.servers import ANYBODY, describe_tool

TOOLS = ("echo", "huge_body", "huge_event", "flood", "hang", "cut", "redirect", "no_json")


class RawHttpServer:
    """Answers JSON-RPC by HTTP, well or badly as the called tool is named."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.authorizations: set[str] = set()
        self.gone = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.authorizations.add(request.headers.get("Authorization", ""))
        message = await request.json()
        method = message.get("method")
        if "id" not in message:
            return web.Response(status=202)
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info, capabilities = {"name": "raw", "version": "1"}, {"tools": {}}
            return self._result(message, protocolVersion=version, capabilities=capabilities, serverInfo=info)
        if method == "tools/list":
            return self._result(message, tools=[describe_tool(name) for name in TOOLS])
        if method == "tools/call":
            self.calls.append(message["params"]["name"])
            return await self._misbehave(request, message, message["params"]["name"])
        error = {"code": -32601, "message": "no such method"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _result(self, message: Any, **result: Any) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _misbehave(self, request: web.Request, message: Any, name: str) -> web.StreamResponse:
        if name == "redirect":
            return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"})
        if name == "no_json":
            return web.Response(text="<html>out of order</html>", content_type="application/json")
        if name == "hang":
            await self.gone.wait()
        if name == "echo":
            return self._result(message, content=[{"type": "text", "text": "here"}])
        if name == "huge_body":
            return self._result(message, content=[{"type": "text", "text": "x" * 3_000_000}])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        notification = (
            b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n\n'
        )
        piece = {"flood": notification * 50, "huge_event": b"x" * 65_536}.get(name, b": nothing\n\n")
        while name != "cut":
            await response.write(piece)
        assert request.transport is not None
        request.transport.abort()
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[RawHttpServer, str]]:
    raw = RawHttpServer()
    app = web.Application()
    app.router.add_post("/mcp", raw.handle)
    async with TestServer(app) as running:
        yield raw, str(running.make_url("/mcp"))
        raw.gone.set()


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", [name for name in TOOLS if name != "echo"])
async def test_a_bad_answer_is_an_unknown_outcome_and_the_next_call_works(
    name: str, server: tuple[RawHttpServer, str], open_agent: Open
) -> None:
    raw, url = server
    config = {"url": url, "headers": {"Authorization": "Bearer t"}, "timeout": 1, "tools": {"*": ANYBODY}}
    async with open_agent({"raw": config}) as agent_harness:
        [connection] = agent_harness.agent.services[MCPServers].connections.values()
        connection.wait_seconds = 20.0
        actions, turn = agent_harness.agent_runtime.registry.actions, make_turn(agent_harness.agent, role=Role.OWNER)
        calling = asyncio.create_task(actions[f"RAW_{name.upper()}"].run(turn, {}))
        answered = 0
        while not calling.done():
            await agent_harness.send("hello", room="other", author="Bob")
            answered += 1
        bad, good = await calling, await actions["RAW_ECHO"].run(turn, {})

    assert bad is not None
    assert not bad.success
    assert bad.is_outcome_unknown, bad.error
    assert good is not None
    assert good.success, good.error
    assert answered > 1 or name != "hang"  # the others answer at once
    assert raw.calls == [name, "echo"]
    assert raw.authorizations == {"Bearer t"}
