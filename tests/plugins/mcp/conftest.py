"""Servers of the tests, and agents that are connected to them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.store import Store
from bot.testing import AgentHarness, ScriptedModel, running_agent
from plugins.mcp import plugin
from tests.plugins.mcp.servers import RawServer, describe_tool

Open = Callable[..., AbstractAsyncContextManager[AgentHarness]]


@pytest.fixture
def raw_server(tmp_path: Path) -> RawServer:
    """Return the raw server with the tool `record`."""
    server = RawServer(tmp_path)
    server.offer(describe_tool("record", "key"))
    return server


@pytest.fixture
def open_agent(tmp_path: Path) -> Open:
    """Return a function that runs an agent with these servers, by name."""

    @asynccontextmanager
    async def open_agent(
        servers: dict[str, Any], *, model: ScriptedModel | None = None, store: Store | None = None, **settings: str
    ) -> AsyncIterator[AgentHarness]:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        given = {"MCP_SERVERS": str(path), **settings}
        async with running_agent(plugin, settings=given, model=model, store=store) as agent_harness:
            yield agent_harness

    return open_agent
