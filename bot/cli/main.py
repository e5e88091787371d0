"""Entry point of `bot`: run one command, and turn every error into one line and an exit code."""

import argparse
import gc
import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bot.cli.process.exit_codes import Exit, UsageError, exit_code
from bot.cli.process.limits import GC_THRESHOLDS
from bot.errors import BotError
from bot.settings import load_settings
from bot.text import find_closest, shorten, strip_terminal_codes

EPILOG = """`bot COMMAND --help` shows the options of a command.

exit codes: 0 success, 2 usage, 70 internal error, 75 try again later, 78 wrong configuration,
130 interrupted
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, the module with `add_arguments` and `run`, and its help text."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("chat", "bot.cli.commands.chat", "talk with the character here in the terminal"),
    Command("run", "bot.cli.commands.run", "start the character on every configured platform"),
    Command("dev", "bot.cli.commands.dev", "run the character, and reload it and its code when they change"),
    Command("reload", "bot.cli.commands.reload", "make the running bot take up a changed character file"),
    Command("post", "bot.cli.commands.post", "write one post in the character's voice"),
    Command("why", "bot.cli.commands.why", "show why messages were answered or not, and what they cost"),
    Command("inbox", "bot.cli.commands.inbox", "list events of the platforms that could not be read"),
    Command("outbox", "bot.cli.commands.outbox", "list undelivered parts; send or drop them"),
    Command("knowledge", "bot.cli.commands.knowledge", "list, add, search or delete the character's documents"),
    Command("db", "bot.cli.commands.db", "check, upgrade or back up the database"),
    Command("doctor", "bot.cli.doctor.command", "check the configuration and say what to correct"),
    Command("character", "bot.cli.commands.character", "check character files, or write a new one"),
    Command("plugin", "bot.cli.commands.plugin", "list, search, add, check, test or start a plugin"),
    Command("adapter", "bot.cli.commands.adapter", "test or start an adapter"),
    Command("mcp", "bot.cli.commands.mcp", "offer the running character to other agents, as an MCP server"),
    Command("token", "bot.cli.commands.token", "create, list or revoke tokens of the web page and the API"),
    Command("settings", "bot.cli.commands.settings", "list every variable and where its value comes from"),
)


def entry(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; print a traceback only if LOG_LEVEL is DEBUG."""
    gc.set_threshold(*GC_THRESHOLDS)  # collections during the imports would take a fifth of the start
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return Exit.OK
    except Exception as error:  # the outermost boundary: an unexpected error ends in one line too
        return _report_error(error)
    return code


def _run(argv: list[str]) -> int:
    if argv and not argv[0].startswith("-"):
        return _run_command(argv[0], argv[1:])
    command_list = "\n".join(f"  {command.name:<11}{command.help}" for command in COMMANDS)
    parser = argparse.ArgumentParser(
        prog="bot",
        usage="bot COMMAND [...]",
        description=f"Greenroom: chat bots with character.\n\ncommands:\n{command_list}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    if parser.parse_args(argv).version:
        print(f"greenroom {importlib.metadata.version('greenroom')}")
        return Exit.OK
    parser.print_help(sys.stderr)
    return Exit.USAGE


def _run_command(name: str, rest: list[str]) -> int:
    command = next((command_entry for command_entry in COMMANDS if command_entry.name == name), None)
    if command is None:
        suggestion = find_closest(name, [command_entry.name for command_entry in COMMANDS])
        hint = f"did you mean {suggestion!r}?" if suggestion else "`bot --help` lists the commands"
        raise UsageError(f"unknown command {shorten(name, 40)!r}: {hint}")
    module = importlib.import_module(command.module)
    parser = argparse.ArgumentParser(prog=f"bot {name}", description=module.__doc__)
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(rest))
    return code


def _report_error(error: Exception) -> int:
    code = exit_code(error)
    if code is not Exit.INTERNAL:
        print(strip_terminal_codes(f"bot: {error}", allowed="\n"), file=sys.stderr)
        return code
    kind = "" if isinstance(error, BotError) else f"{type(error).__name__}: "
    print(strip_terminal_codes(f"bot: {kind}{shorten(str(error), 400)}"), file=sys.stderr)
    if _is_debugging():
        traceback.print_exception(error)
    else:
        print("bot: run again with LOG_LEVEL=DEBUG for the details", file=sys.stderr)
    return code


def _is_debugging() -> bool:
    level = os.environ.get("LOG_LEVEL", "")
    with suppress(Exception):  # reading the settings may be what failed
        level = load_settings().get("LOG_LEVEL") or ""
    return level.strip().upper() == "DEBUG"


def _discard_stdout() -> None:
    """Redirect stdout to the null device: its reader is gone, and the interpreter flushes it at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
