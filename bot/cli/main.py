"""Entry point of `bot`: run one command, and turn every error into one line and an exit code.

Help of commands in the language of the terminal, by the table `program` of a translation.
"""

import gc
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import typer
from typer import Context
from typer.core import TyperGroup

from bot.cli.options import unknown_command
from bot.cli.process.shutdown import GC_THRESHOLDS, Exit, UsageError, exit_code
from bot.errors import BotError
from bot.text import shorten, strip_terminal_codes, suggest, translate, translate_message

EXTRAS = ("[required", "[default: ")  # that the parser adds to a help text
HelpFormatter: Any = Context.formatter_class


class TranslatedFormatter(HelpFormatter):  # type: ignore[misc] # the parser's own class has no types
    """Writes help with the headings in the language of the terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line that shows how a command is used."""
        super().write_usage(prog, args, prefix or translate("Usage: "))

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        super().write_heading(translate(heading))

    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **options: Any) -> None:
        """Write a list of options, arguments or commands."""
        translated = []
        for name, text in rows:
            for extra in EXTRAS:
                text = text.replace(extra, translate(extra))
            translated.append((name, text))
        super().write_dl(translated, *args, **options)


def translate_help(command: Any, parent: Any = None) -> Any:
    """Translate the help texts of a command, its options and its subcommands in place; return it."""
    command.context_class = _translated_context(command.context_class)
    context = command.context_class(command, parent=parent, **command.context_settings)
    for item in (command, command.get_help_option(context), *command.params):
        if item is not None and item.help:
            item.help = translate(inspect.cleandoc(item.help))
    if command.epilog:
        command.epilog = "\n".join(map(translate, command.epilog.split("\n")))
    for subcommand in getattr(command, "commands", {}).values():
        translate_help(subcommand, context)
    return command


@cache
def _translated_context(context_class: Any) -> Any:
    return type(context_class.__name__, (context_class,), {"formatter_class": TranslatedFormatter})


GROUPS = ("talk", "set up", "operate", "extend")
EPILOG = """\b
`bot COMMAND --help` shows the options of a command, with examples.

\b
exit codes: 0 success, 2 usage, 70 internal error, 75 try again later, 78 wrong configuration,
130 interrupted
"""

# How Typer begins what it says of a value, and what is said instead.
REWORDED = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid UUID.*"), "it is no id, such as 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001"),
    (re.compile(r"Input should "), "it should "),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, the file in `commands` that has its app, its help text, and its group in the list."""

    name: str
    file: str
    help: str
    group: str

    @property
    def module(self) -> str:
        """The name of its module."""
        return f"bot.cli.commands.{self.file}"

    def load(self) -> typer.Typer:
        """Import the module and return the app of the command."""
        app: typer.Typer = getattr(importlib.import_module(self.module), f"{self.name}_app")
        return app


COMMANDS = (
    Command("chat", "chat", "talk with the character here in the terminal", "talk"),
    Command("run", "run", "start the character on every configured platform", "talk"),
    Command("post", "post", "write one post in the character's voice", "talk"),
    Command("init", "init", "choose a character and a model, and connect platforms", "set up"),
    Command("character", "character", "check, write, import or export character files", "set up"),
    Command("import", "character", "import what elizaOS or SillyTavern has stored", "set up"),
    Command("settings", "settings", "list every variable and where its value comes from", "set up"),
    Command("doctor", "doctor", "check the configuration and say what to correct", "set up"),
    Command("token", "access", "create, list or revoke tokens of the web page and the API", "set up"),
    Command("why", "why", "show why messages were answered or not, and what they cost", "operate"),
    Command("rehearse", "rehearse", "show what a changed character would have answered", "operate"),
    Command("voice", "rehearse", "measure how the replies of the last days keep the voice", "operate"),
    Command("replay", "why", "run a turn again, and show what differs", "operate"),
    Command("reload", "cluster", "make the running bot take up a changed character file", "operate"),
    Command("drafts", "deliveries", "list replies that wait; send, edit or drop one", "operate"),
    Command("outbox", "deliveries", "list undelivered parts; send or drop them", "operate"),
    Command("rooms", "rooms", "list rooms; take one over, give it back, or write there", "operate"),
    Command("inbox", "deliveries", "list events of the platforms that could not be read", "operate"),
    Command("knowledge", "knowledge", "list, add, search or delete the character's documents", "operate"),
    Command("care", "people", "report how many people in distress were referred to help", "operate"),
    Command("person", "people", "export or delete what is stored about a person", "operate"),
    Command("memory", "people", "list, search, export, correct or delete what people told", "operate"),
    Command("db", "db", "check, upgrade, back up or restore the database", "operate"),
    Command("cluster", "cluster", "list the processes that share the work; drain one", "operate"),
    Command("dev", "run", "run the character, and reload it and its code when they change", "extend"),
    Command("scene", "scene", "run scenes with recorded answers, record them, make them", "extend"),
    Command("plugin", "plugin", "list, search, add, check, test or start a plugin", "extend"),
    Command("adapter", "plugin", "test or start an adapter", "extend"),
    Command("mcp", "access", "offer the running character to other agents, as an MCP server", "extend"),
)
COMMANDS_BY_NAME = {command.name: command for command in COMMANDS}


@dataclass(frozen=True, slots=True)
class CompletedName:
    """A command's name as an answer to a shell that completes what is typed."""

    value: str
    help: str
    type: str = "plain"


class LazyCommands(TyperGroup):
    """The commands of `bot`; the module of one is imported when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS_BY_NAME)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. Raises UsageError for an unknown one."""
        if (command := COMMANDS_BY_NAME.get(cmd_name)) is None:
            raise unknown_command(ctx, cmd_name, COMMANDS_BY_NAME)
        return translate_help(typer.main.get_command(command.load()), ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands by group, without importing them."""
        for group in GROUPS:
            with formatter.section(translate(group)):
                rows = [(command.name, translate(command.help)) for command in COMMANDS if command.group == group]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the names that begin with what is typed, and options."""
        names = (name for name in COMMANDS_BY_NAME if name.startswith(incomplete))
        found = [CompletedName(name, translate(COMMANDS_BY_NAME[name].help)) for name in names]
        return [*found, *super(TyperGroup, self).shell_complete(ctx, incomplete)]


app = typer.Typer(
    cls=LazyCommands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # here, because help needs no version

        print(f"greenroom {version('greenroom')}")
        raise typer.Exit


@app.callback(epilog=EPILOG)
def bot(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """Greenroom: chat bots with character."""


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
        with suppress(OSError, ValueError, AttributeError):  # its reader is gone, and the interpreter flushes at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:  # the outermost boundary: an unexpected error ends in one line too
        return _report_error(error)
    return code


def greenroom() -> int:
    """Run the program `greenroom`: one command as `bot` does; without arguments, on a terminal, the chat."""
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    return entry(sys.argv[1:] or (["chat"] if is_terminal else []))


def _run(argv: list[str]) -> int:
    try:
        code = translate_help(typer.main.get_command(app)).main(argv, prog_name="bot", standalone_mode=False)
    except typer.TyperException as error:
        text = error.format_message()
        context = getattr(error, "ctx", None)
        if context is None:
            raise UsageError(text) from None
        if not text or text == context.get_help():
            print(context.get_help(), file=sys.stderr)
            return Exit.USAGE
        if hasattr(error, "possibilities"):  # those of an option that does not exist, by another measure
            options = [option for parameter in context.command.get_params(context) for option in parameter.opts]
            text = f"{error.message}{suggest(getattr(error, 'option_name', ''), options, start=': ')}"
        text = " ".join(text.split()).rstrip(".")
        for pattern, words in REWORDED:
            text = pattern.sub(words, text)
        join = " See" if text.endswith("?") else "; see"
        raise UsageError(f"{text[:1].lower()}{text[1:]}{join} `{context.command_path} --help`") from None
    return int(code or Exit.OK)


def _report_error(error: Exception) -> int:
    code = exit_code(error)
    if code is not Exit.INTERNAL:
        print(strip_terminal_codes(f"bot: {translate_message(str(error))}", allowed="\n"), file=sys.stderr)
        return code
    kind = "" if isinstance(error, BotError) else f"{type(error).__name__}: "
    print(strip_terminal_codes(f"bot: {kind}{shorten(str(error), 400)}"), file=sys.stderr)
    if _is_debugging():
        traceback.print_exception(error)
    else:
        print(translate("bot: run again with LOG_LEVEL=DEBUG for the details"), file=sys.stderr)
    return code


def _is_debugging() -> bool:
    level = os.environ.get("LOG_LEVEL", "")
    with suppress(Exception):  # reading the settings may be what failed
        from bot.settings import load_settings  # here, because help needs no settings

        level = load_settings().get("LOG_LEVEL") or ""
    return level.strip().upper() == "DEBUG"
