"""Create, list and revoke tokens of the web page and the API; a running bot follows at once."""

import argparse
import json
from pathlib import Path

from bot.adapter.access_tokens import AccessToken, AccessTokens, TokenScope
from bot.characters import load_character
from bot.cli.characters import add_character_option, read_character_settings
from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import print_notice
from bot.concurrency.clock import system_clock
from bot.settings import CoreSettings
from bot.text import strip_terminal_codes

SCOPES = {
    TokenScope.OPERATOR: "everything, as with the server's own token",
    TokenScope.READ_ONLY: "see everything, change nothing",
    TokenScope.CHAT: "have conversations of its own, under its name, and see nothing else",
}
SCOPE_HELP = "; ".join(f"{scope.value}: {meaning}" for scope, meaning in SCOPES.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="new|list|revoke")
    new = commands.add_parser("new", help="create a token and print it; it is shown only once")
    new.add_argument("--scope", choices=[scope.value for scope in TokenScope], required=True, help=SCOPE_HELP)
    new.add_argument("--name", default="", help="its name, for the list; a chat token's holder has it as user name")
    new.set_defaults(act=_create)
    list_tokens = commands.add_parser("list", help="list the tokens; the tokens themselves are not stored")
    list_tokens.set_defaults(act=_list)
    revoke = commands.add_parser("revoke", help="make a token invalid")
    revoke.add_argument("token", metavar="ID_OR_NAME", help="the token, as `bot token list` names it")
    revoke.set_defaults(act=_revoke)
    for command in (new, list_tokens, revoke):
        add_character_option(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand on the data folder that the settings name."""
    code: int = args.act(args, AccessTokens(_data_folder(args.character)))
    return code


def _data_folder(character: Path | None) -> Path:
    loaded = load_character(character) if character else None
    return read_character_settings(loaded).load(CoreSettings).bot_data_dir


def _create(args: argparse.Namespace, tokens: AccessTokens) -> int:
    scope = TokenScope(args.scope)
    token, text = tokens.create(args.name.strip(), scope, system_clock())
    if args.json:
        print(json.dumps({**_describe(token), "token": text}, ensure_ascii=False))
        return Exit.OK
    print(text)
    print_notice(
        strip_terminal_codes(
            f"{token.name} ({token.id}) may: {SCOPES[scope]}. It is not shown again. In a browser, open the page with "
            f"/?token=… once; `bot token revoke {token.id}` ends it."
        )
    )
    return Exit.OK


def _list(args: argparse.Namespace, tokens: AccessTokens) -> int:
    found = tokens.list()
    if args.json:
        print(json.dumps({"tokens": [_describe(token) for token in found]}, ensure_ascii=False, indent=2))
    elif not found:
        print("there are no tokens besides the server's own: `bot token new --scope …` creates one")
    for token in () if args.json else found:
        created = token.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        print(strip_terminal_codes(f"{token.id}  {token.scope.value:<9}  {created}  {token.name}"))
    return Exit.OK


def _revoke(args: argparse.Namespace, tokens: AccessTokens) -> int:
    token = tokens.revoke(args.token)
    text = json.dumps(_describe(token), ensure_ascii=False) if args.json else f"{token.name} ({token.id}) is revoked"
    print(strip_terminal_codes(text))
    return Exit.OK


def _describe(token: AccessToken) -> dict[str, str]:
    return {"id": token.id, "name": token.name, "scope": token.scope.value, "created_at": token.created_at.isoformat()}
