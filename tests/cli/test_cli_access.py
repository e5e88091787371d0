"""`bot token` and `bot mcp`."""

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

Out = pytest.CaptureFixture[str]


def create(capsys: Out, *options: str) -> str:
    assert entry(["token", "new", *options]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    return text.strip()


@pytest.mark.parametrize("scope", ["operator", "read_only", "chat"])
def test_a_new_token_is_printed_once_and_stored_hashed(workdir: Path, capsys: Out, scope: str) -> None:
    text = create(capsys, "--scope", scope, "--name", "kim")
    token = AccessTokens(workdir / "data").find_by_text(text)
    assert token is not None
    assert (token.name, token.scope.value) == ("kim", scope)
    assert entry(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert listed.split() == [token.id, scope, *token.created_at.astimezone().strftime("%Y-%m-%d %H:%M").split(), "kim"]
    assert not [path for path in (workdir / "data").rglob("*.*") if text in path.read_text()]


def test_revoking_by_id_or_name_ends_a_token(workdir: Path, capsys: Out) -> None:
    tokens = AccessTokens(workdir / "data")
    first, second = create(capsys, "--scope", "chat"), create(capsys, "--scope", "chat", "--name", "kim")
    token = tokens.find_by_text(first)
    assert token is not None
    assert entry(["token", "revoke", token.id]) == 0
    assert entry(["token", "revoke", "kim"]) == 0
    assert (tokens.find_by_text(first), tokens.find_by_text(second)) == (None, None)
    capsys.readouterr()
    assert entry(["token", "list"]) == 0
    assert capsys.readouterr().out.startswith("there are no tokens besides the server's own")
    assert entry(["token", "revoke", "kim"]) == 78
    assert "there is no token 'kim'" in capsys.readouterr().err


def test_json_and_the_data_folder_of_the_settings(workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_DATA_DIR", str(workdir / "elsewhere"))
    assert entry(["token", "new", "--scope", "read_only", "--json"]) == 0
    created = json.loads(capsys.readouterr().out)
    assert AccessTokens(workdir / "elsewhere").find_by_text(created.pop("token")) is not None
    assert entry(["token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": [created]}
    assert created["name"] == f"read_only-{created['id'][:4]}"


def test_a_scope_is_required_and_names_are_unique(capsys: Out) -> None:
    assert entry(["token", "new"]) == 2
    create(capsys, "--scope", "chat", "--name", "kim")
    for name in ("kim", "a\nb", "x" * 65):
        assert entry(["token", "new", "--scope", "chat", "--name", name]) == 78


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
