"""Create, list and revoke tokens of the web page and the API; a running bot follows at once."""

from pathlib import Path
from typing import Annotated

import typer

from bot.adapter.access_tokens import AccessToken, AccessTokens, TokenScope
from bot.characters import load_character
from bot.cli.characters import read_character_settings
from bot.cli.options import AsJson, CharacterFile, examples, new_group, print_json, print_result
from bot.cli.process.shutdown import Exit, print_notice
from bot.concurrency.clock import system_clock
from bot.settings import CoreSettings

SCOPES = {
    TokenScope.OPERATOR: "everything, as with the server's own token",
    TokenScope.READ_ONLY: "see everything, change nothing",
    TokenScope.CHAT: "have conversations of its own, under its name, and see nothing else",
}
SCOPE_HELP = "; ".join(f"{scope.value}: {meaning}" for scope, meaning in SCOPES.items())


app = new_group("Create, list or revoke tokens of the web page and the API; a running bot follows at once.")


@app.command(epilog=examples("bot token new --scope read_only --name dashboard"))
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


@app.command("list", epilog=examples("bot token list", "bot token list --json"))
def list_tokens(character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the tokens; the tokens themselves are not stored."""
    found = _tokens(character).list()
    rows = [
        (token.id, token.scope.value, token.created_at.astimezone().strftime("%Y-%m-%d %H:%M"), token.name)
        for token in found
    ]
    lines = [f"{token_id}  {scope:<9}  {created}  {name}" for token_id, scope, created, name in rows]
    none = ["there are no tokens besides the server's own: `bot token new --scope …` creates one"]
    document, header = {"tokens": [_describe(token) for token in found]}, ("id", "scope", "created", "name")
    return print_result(document, lines or none, as_json=as_json, header=header, rows=rows)


@app.command(epilog=examples("bot token revoke dashboard"))
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID_OR_NAME", help="The token, as `bot token list` names it.")],
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Make a token invalid."""
    revoked = _tokens(character).revoke(token)
    lines = [f"{revoked.name} ({revoked.id}) is revoked"]
    return print_result(_describe(revoked), lines, as_json=as_json, indent=None)


def _tokens(character: Path | None) -> AccessTokens:
    """Return the tokens of the data folder that the settings name."""
    loaded = load_character(character) if character else None
    return AccessTokens(read_character_settings(loaded).load(CoreSettings).bot_data_dir)


def _describe(token: AccessToken) -> dict[str, str]:
    return {"id": token.id, "name": token.name, "scope": token.scope.value, "created_at": token.created_at.isoformat()}
