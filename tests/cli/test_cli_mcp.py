"""`bot mcp`: other agents ask, search and list through the running bot, as far as their token allows."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot import AgentConfig, Character, Runtime, Settings
from bot.cli.main import entry
from bot.platform import AccessTokens, TokenScope
from bot.settings import Layer
from bot.store import InMemoryStore
from plugins.bootstrap import plugin as bootstrap
from plugins.offline import plugin as offline

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def running_bot(folder: Path) -> AsyncIterator[int]:
    """Run a character with its HTTP server; yield the port."""
    (folder / "marlo.json").write_text(json.dumps({"name": "Marlo"}), encoding="utf-8")
    values = {"BOT_DATA_DIR": str(folder), "SERVER_PORT": "0"}
    settings = Settings([Layer("the test", values)])
    config = AgentConfig(Character(name="Marlo"), (bootstrap, offline), settings, InMemoryStore())
    async with Runtime([config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        yield adapter.port


@asynccontextmanager
async def other_agent(folder: Path, port: int, token: str) -> AsyncIterator[Client]:
    """Connect to `bot mcp` as another agent does."""
    environment = {"MCP_TOKEN": token, "SERVER_PORT": str(port), "BOT_DATA_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "bot", "mcp", "-c", str(folder / "marlo.json")], env=environment, cwd=folder
    )
    async with Client(parameters) as client:
        yield client


async def call(client: Client, tool: str, **arguments: str) -> tuple[str, bool]:
    """Call a tool; return its text, and whether it is an error."""
    result = await client.call_tool(tool, dict(arguments))
    return "\n".join(getattr(block, "text", "") for block in result.content), result.is_error


def new_token(folder: Path, scope: TokenScope) -> str:
    """Return a new token of this scope."""
    return AccessTokens(folder).create(scope.value, scope, datetime.now(UTC))[1]


@pytest.mark.long
async def test_a_token_for_chats_asks_and_sees_no_rooms(tmp_path: Path) -> None:
    async with (
        running_bot(tmp_path) as port,
        other_agent(tmp_path, port, new_token(tmp_path, TokenScope.CHAT)) as client,
    ):
        tools = {tool.name for tool in (await client.list_tools()).tools}
        answer, is_error = await call(client, "ask", text="What is 2+2?")

    assert tools == {"ask"}
    assert not is_error
    assert "4" in answer


@pytest.mark.long
async def test_a_token_for_reading_searches_and_lists_but_does_not_ask(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as port:
        async with other_agent(tmp_path, port, new_token(tmp_path, TokenScope.CHAT)) as client:
            await call(client, "ask", text="My lighthouse has a green door.", conversation="keeper")
        async with other_agent(tmp_path, port, new_token(tmp_path, TokenScope.READ_ONLY)) as client:
            found, _ = await call(client, "search_memory", query="lighthouse door")
            nothing, _ = await call(client, "search_memory", query="zeppelin")
            rooms, _ = await call(client, "list_rooms")
            refused, is_error = await call(client, "ask", text="hello")

    assert "My lighthouse has a green door." in [json.loads(line)["text"] for line in found.splitlines()]
    assert nothing == "nothing found"
    assert len(rooms.splitlines()) == 1
    assert is_error
    assert "a token of the scope read_only does not allow this" in refused


@pytest.mark.long
async def test_the_other_agent_is_notified_of_a_bot_that_has_stopped(tmp_path: Path) -> None:
    token = new_token(tmp_path, TokenScope.OPERATOR)
    async with running_bot(tmp_path) as port:
        client_context = other_agent(tmp_path, port, token)
        client = await client_context.__aenter__()
    try:
        text, is_error = await call(client, "list_rooms")
    finally:
        await client_context.__aexit__(None, None, None)
    assert is_error
    assert "no bot answers at" in text


def test_without_a_token_the_error_says_how_to_create_a_token(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(["mcp"]) == 78
    assert "MCP_TOKEN is not set: create a token with `bot token new --scope chat`" in capsys.readouterr().err
