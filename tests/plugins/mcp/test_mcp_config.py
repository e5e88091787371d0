"""The file of MCP servers: who may name it, and what is said about mistakes in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot import Effect, Role, SettingError, Settings
from bot.plugin_system.loading import PluginPurpose, bundled_plugins
from bot.settings import Layer
from plugins.mcp import plugin
from plugins.mcp.config import MCPSettings, load_servers
from plugins.mcp.connection import action_name


def settings(folder: Path, content: Any, **values: str) -> Settings:
    """Return the operator's settings with a file of this content."""
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return Settings([Layer(".env", {"MCP_SERVERS": str(path), **values})])


def test_the_form_of_other_clients_is_read(tmp_path: Path) -> None:
    files = {"command": "npx", "args": ["-y", "server-files", "/srv"], "type": "stdio", "autoApprove": ["x"]}
    web = {"url": "https://tools.example/mcp/", "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}}
    off = {"command": "off", "disabled": True}
    content = {"mcpServers": {"files": files, "web": web, "off": off}, "inputs": []}
    servers = load_servers(settings(tmp_path, content, WEB_TOKEN="a-token-of-the-tests"))

    assert list(servers) == ["files", "web"]
    assert servers["files"].args == ("-y", "server-files", "/srv")
    assert servers["web"].headers == {"Authorization": "Bearer a-token-of-the-tests"}
    policy = servers["files"].policy_for("anything")
    assert (policy.effect, policy.role, policy.must_confirm) == (Effect.UNSAFE, Role.OWNER, True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ({}, "mcpServers: Field required"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a: Value error, it needs either `command` or `url`"),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, "mcpServers.a.url: .* begins with http"),
        ({"mcpServers": {"a": {"command": "x", "tools": {"t": {"effect": "keyed"}}}}}, "pure, idempotent, unsafe"),
        ({"mcpServers": {"a": {"command": "x", "tools": {"t": {"role": "KING"}}}}}, "tools.t.role: .*OWNER"),
        ({"mcpServers": {"a": {"command": "x", "tools": {"t": {"efect": "pure"}}}}}, "tools.t.efect"),
        ({"mcpServers": {"a": {"command": "x", "env": {"T": "${NO_SUCH_TOKEN}"}}}}, "NO_SUCH_TOKEN is not set"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, content: Any, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        load_servers(settings(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"MCP_SERVERS: .*none\.json cannot be read: No such file"):
        load_servers(Settings([Layer(".env", {"MCP_SERVERS": str(tmp_path / "none.json")})]))


def test_a_character_file_starts_no_program(tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    path.write_text(json.dumps({"mcpServers": {"evil": {"command": "touch"}}}), encoding="utf-8")
    file = Layer("the character's settings", {"MCP_SERVERS": str(path)}, is_operator=False)
    both = Settings([file, Layer("the environment", {})])

    assert load_servers(both) == {}
    assert plugin.missing_settings(both) == "set MCP_SERVERS in .env"
    assert frozenset() == MCPSettings.CHARACTER_SETTINGS


def test_the_plugin_is_loaded_where_the_file_is_set() -> None:
    [row] = [row for row in bundled_plugins() if row.name == "mcp"]
    assert row.purpose is PluginPurpose.TOOLS
    assert row.is_enabled(Settings([Layer(".env", {"MCP_SERVERS": "mcp.json"})]))


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("files", "read_file", "FILES_READ_FILE"),
        ("Git Hub", "createIssue", "GIT_HUB_CREATE_ISSUE"),
        ("a", "x.y/z", "A_X_Y_Z"),
        ("a", "日本", "A"),
        ("a", "b" * 100, "A_" + "B" * 62),
    ],
)
def test_a_tool_is_named_as_an_action(server: str, tool: str, name: str) -> None:
    assert action_name(server, tool) == name
