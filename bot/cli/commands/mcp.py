"""Offer the running character to other agents: an MCP server on stdin and stdout.

Its tools ask the character, search what it remembers and list its rooms. They call the HTTP server of the running
bot with the token in MCP_TOKEN, whose scope decides what is allowed.
"""

import asyncio
import importlib.metadata
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

from pydantic import Field

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import CharacterFile, examples, new_command
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import ANY_STATUS, RunningBot, find_running_bot
from bot.errors import ConfigError, PluginError, TemporaryError
from bot.plugin_system.loading import missing_package_message

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

TOKEN = "MCP_TOKEN"
ANSWER_TIMEOUT = 300.0  # seconds; the bot's own limits are usually shorter
MAX_ROOMS = 200
USER = "mcp"  # of the messages, unless the token has a name of its own


app = new_command()


@app.command(epilog=examples("MCP_TOKEN=… bot mcp -c mine.json"))
def mcp(character: CharacterFile = None) -> int:
    """Offer the running character to other agents, as an MCP server on stdin and stdout."""
    config = load_character_config(character)
    token = config.settings.operator_only().get(TOKEN)
    if token is None:
        raise ConfigError(
            f"{TOKEN} is not set: create a token with `bot token new --scope chat` (read_only for searching), and put "
            "it into .env or into the environment that the other agent gives this program"
        )
    running_bot = find_running_bot(config, token)
    reply = running_bot.send("GET", "/api/rooms?limit=1", allowed=ANY_STATUS)
    if reply.status is HTTPStatus.UNAUTHORIZED:
        raise ConfigError(f"the running bot does not accept {TOKEN}: `bot token list` shows the valid ones")
    build_server(config, running_bot, can_read=reply.status is HTTPStatus.OK).run("stdio")
    return Exit.OK


def build_server(config: CharacterConfig, running_bot: RunningBot, *, can_read: bool) -> "MCPServer[Any]":
    """Return the server; only a token that may read everything gets the tools that search and list.

    Raises PluginError where the library is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # here, because help needs no second of imports
    except ModuleNotFoundError as error:
        raise PluginError(missing_package_message("mcp", str(error.name), "bot.cli.commands.mcp")) from error
    name = config.name
    server = MCPServer[Any](
        "greenroom",
        instructions=f"Talk with {name}, a chat character, and look up what it remembers.",
        version=importlib.metadata.version("greenroom"),
        log_level="ERROR",
    )

    @server.tool(structured_output=False)
    async def ask(
        text: Annotated[str, Field(description=f"What you say to {name}.", min_length=1, max_length=8_000)],
        conversation: Annotated[
            str, Field(description="A name of your choice; one name is one conversation.", max_length=64)
        ] = "mcp",
    ) -> str:
        """Send the character a message and return its answer."""
        body = {"text": text, "room": conversation, "user": USER}
        path = f"/api/agents/{quote(name, safe='')}/messages"
        reply = await _call(running_bot, "POST", path, body)
        texts = [str(message.get("text", "")) for message in reply.get("replies", ())]
        return "\n".join(filter(None, texts)) or f"no answer: {reply.get('reason') or reply.get('outcome')}"

    if not can_read:
        return server

    @server.tool(structured_output=False)
    async def search_memory(
        query: Annotated[str, Field(description="Words to search for.", min_length=1, max_length=500)],
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> str:
        """Search what the character remembers: facts and messages of all rooms that share words with the query."""
        path = f"/api/memories?{urlencode({'agent': name, 'query': query, 'limit': limit})}"
        return _format((await _call(running_bot, "GET", path))["memories"])

    @server.tool(structured_output=False)
    async def list_rooms() -> str:
        """List the rooms that the character is in, the most recently active first."""
        path = f"/api/rooms?{urlencode({'agent': name, 'limit': MAX_ROOMS})}"
        return _format((await _call(running_bot, "GET", path))["rooms"])

    return server


async def _call(running_bot: RunningBot, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
    """Return the body of a response. Raises ToolError with what the other agent can be told."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        reply = await asyncio.to_thread(running_bot.send, method, path, body, timeout=ANSWER_TIMEOUT)
    except (ConfigError, TemporaryError) as error:
        raise ToolError(str(error)) from None
    return reply.body


def _format(items: list[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(item, ensure_ascii=False) for item in items) or "nothing found"
