"""`bot token`, `bot mcp`: tokens of the web page and the API, and the running character as an MCP server."""

import importlib.metadata
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer
from pydantic import Field

from bot.adapter.access_tokens import AccessToken, AccessTokens, TokenScope
from bot.characters import load_character
from bot.cli.characters import CharacterConfig, read_character_settings
from bot.cli.options import AsJson, CharacterFile, Output, examples, new_command, new_group, print_json
from bot.cli.process.shutdown import Exit, print_notice
from bot.cli.running_bot import ANY_STATUS, RunningBot, find_running_bot
from bot.concurrency.clock import system_clock
from bot.errors import ConfigError, PluginError, TemporaryError
from bot.plugin_system.loading import missing_package_message
from bot.settings import CoreSettings

SCOPES = {
    TokenScope.OPERATOR: "everything, as with the server's own token",
    TokenScope.READ_ONLY: "see everything, change nothing",
    TokenScope.CHAT: "have conversations of its own, under its name, and see nothing else",
}
SCOPE_HELP = "; ".join(f"{scope.value}: {meaning}" for scope, meaning in SCOPES.items())


token_app = new_group("Create, list or revoke tokens of the web page and the API; a running bot follows at once.")


@token_app.command(epilog=examples("bot token new --scope read_only --name dashboard"))
def new(
    scope: Annotated[TokenScope, typer.Option(help=SCOPE_HELP)],
    name: Annotated[str, typer.Option(help="Its name, for the list; a chat token's holder has it as user name.")] = "",
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Create a token and print it; it is shown only once."""
    token, text = _tokens(character).create(name.strip(), scope, system_clock())
    if as_json:
        print_json({**_describe(token), "token": text}, indent=None)
        return Exit.OK
    print(text)
    print_notice(
        f"{token.name} ({token.id}) may: {SCOPES[scope]}. It is not shown again. In a browser, open the page with "
        f"/?token=… once; `bot token revoke {token.id}` ends it."
    )
    return Exit.OK


@token_app.command("list", epilog=examples("bot token list", "bot token list --json"))
def list_tokens(character: CharacterFile = None) -> Output:
    """List the tokens; the tokens themselves are not stored."""
    found = _tokens(character).list()
    rows = [
        (token.id, token.scope.value, token.created_at.astimezone().strftime("%Y-%m-%d %H:%M"), token.name)
        for token in found
    ]
    lines = [f"{token_id}  {scope:<9}  {created}  {name}" for token_id, scope, created, name in rows]
    none = ["there are no tokens besides the server's own: `bot token new --scope …` creates one"]
    document = {"tokens": [_describe(token) for token in found]}
    return Output(document, lines or none, ("id", "scope", "created", "name"), rows)


@token_app.command(epilog=examples("bot token revoke dashboard"))
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID_OR_NAME", help="The token, as `bot token list` names it.")],
    character: CharacterFile = None,
) -> Output:
    """Make a token invalid."""
    revoked = _tokens(character).revoke(token)
    return Output(_describe(revoked), [f"{revoked.name} ({revoked.id}) is revoked"], indent=None)


def _tokens(character: Path | None) -> AccessTokens:
    """Return the tokens of the data folder that the settings name."""
    loaded = load_character(character) if character else None
    return AccessTokens(read_character_settings(loaded).load(CoreSettings).bot_data_dir)


def _describe(token: AccessToken) -> dict[str, str]:
    return {"id": token.id, "name": token.name, "scope": token.scope.value, "created_at": token.created_at.isoformat()}


if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

TOKEN = "MCP_TOKEN"
ANSWER_TIMEOUT = 300.0  # seconds; the bot's own limits are usually shorter
MAX_ROOMS = 200
USER = "mcp"  # of the messages, unless the token has a name of its own


mcp_app = new_command()


@mcp_app.command(epilog=examples("MCP_TOKEN=… bot mcp -c mine.json"))
def mcp(config: CharacterConfig) -> int:
    """Offer the running character to other agents, as an MCP server on stdin and stdout."""
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
        raise PluginError(missing_package_message("mcp", str(error.name), "bot.cli.commands.access")) from error
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
        return (await running_bot.ask(method, path, body, timeout=ANSWER_TIMEOUT)).body
    except (ConfigError, TemporaryError) as error:
        raise ToolError(str(error)) from None


def _format(items: list[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(item, ensure_ascii=False) for item in items) or "nothing found"
