"""What commands share: the frame of a command or a group, and the options `-c FILE` and `--json`.

Tables, colour and a sign of long work, on terminals only; NO_COLOR turns colour off.
"""

import inspect
import json
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from bot.cli.characters import load_character_config
from bot.cli.process.shutdown import Exit, UsageError, print_notice
from bot.store.storage import listen_to_progress
from bot.text import shorten, strip_terminal_codes, suggest, translate

C = TypeVar("C", bound=Callable[..., Any])
CharacterFile = Annotated[
    Path | None,
    typer.Option(
        "-c", "--character", metavar="FILE", help="The character's JSON file (default: that of BOT_CHARACTER)."
    ),
]
CharacterFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "-c",
        "--character",
        metavar="FILE",
        help="The character's JSON file (default: that of BOT_CHARACTER); repeat it for several in one process.",
    ),
]
MAX_COUNT = 100_000  # of items that one command lists
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
# Options of plugins and adapters under test
Trusting = Annotated[bool, typer.Option("--trust", help="First trust the code as it is now, to run it here.")]


def program() -> str:
    """Return how a shell starts this program: `bot` where that is found, else the path of its script, else Python."""
    scripts = (Path(sys.argv[0]), Path(sys.executable).with_name("bot"))
    script = next((path for path in scripts if path.name == "bot" and path.is_file()), None)
    if script is None:
        return shlex.join([sys.executable, "-m", "bot"])
    found = shutil.which("bot")
    if found and Path(found).resolve() == script.resolve():
        return "bot"
    folder = Path.cwd()
    return shlex.quote(str(script.relative_to(folder) if script.is_relative_to(folder) else script))


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a command: a document for `--json`, and lines; on a terminal a table of `rows` replaces them.

    The lines `before` and `after` stand around the table, too.
    """

    document: Any
    lines: Iterable[str] = ()
    header: Sequence[str] = ()
    rows: Iterable[Sequence[str]] = ()
    before: Iterable[str] = ()
    after: Iterable[str] = ()
    indent: int | None = 2
    code: int = Exit.OK

    def print(self, *, as_json: bool) -> int:
        """Print it, and return the exit code."""
        if as_json:
            print_json(self.document, indent=self.indent)
            return self.code
        print_lines(self.before)
        print_rows(self.header, self.rows, self.lines)
        print_lines(self.after)
        return self.code


class Frame(typer.Typer):
    """The frame of a command, or of a group of commands.

    A function that is registered with `command` may have a parameter `config`: the character that `-c FILE` names. If
    it returns an `Output`, the command has `--json`.
    """

    def command(self, name: str | None = None, **options: Any) -> Callable[[C], C]:
        """Return a decorator that registers a function as a command."""
        register = super().command(name, **options)

        def add(function: C) -> C:
            register(_with_shared_options(function))
            return function

        return add


def _with_shared_options(function: Callable[..., Any]) -> Callable[..., int]:
    """Return the command of a function: with `-c FILE` instead of `config`, and with `--json` for an `Output`."""
    signature = inspect.signature(function)
    takes_config, has_output = "config" in signature.parameters, signature.return_annotation is Output

    @wraps(function)
    def command(**values: Any) -> int:
        as_json = values.pop("as_json") if has_output else False
        if takes_config:
            values["config"] = load_character_config(values.pop("character"))
        result: Output | int = function(**values)
        return result.print(as_json=as_json) if isinstance(result, Output) else result

    parameters = [parameter for name, parameter in signature.parameters.items() if name != "config"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if takes_config:
        parameters.append(inspect.Parameter("character", kind, default=None, annotation=CharacterFile))
    if has_output:
        parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=AsJson))
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # read by Typer
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def new_command(**options: Any) -> Frame:
    """Return the frame of a command of its own; its one function is registered with `command` of the result."""
    return Frame(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


class CommandGroup(TyperGroup):
    """A command with subcommands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand. Raises UsageError for an unknown one."""
        if cmd_name not in self.commands:
            raise unknown_command(ctx, cmd_name, self.commands)
        return super().get_command(ctx, cmd_name)


def unknown_command(context: Any, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a command that is none of the known ones; it names the one that was probably meant."""
    hint = suggest(name, known, otherwise=f"`{context.command_path} --help` lists the commands")
    return UsageError(f"unknown command {shorten(name, 40)!r}: {hint}")


def new_group(help: str) -> Frame:
    """Return the frame of a command with subcommands, also if there is only one."""
    group = new_command(cls=CommandGroup, no_args_is_help=True)
    group.callback(help=help)(lambda: None)
    return group


def examples(*lines: str) -> str:
    """Return the end of a help text: command lines to copy."""
    return "\b\nexamples:\n" + "\n".join(f"  {line}" for line in lines)


LINE_SECONDS = 2.0  # before the first line about long work and between two, where there is no terminal
STATE_STYLES = {
    "ok": "green", "warn": "yellow", "fail": "bold red",
    "on": "green", "off": "dim", "held": "yellow", "failed": "bold red", "draining": "yellow",
}  # fmt: skip


def is_confirmed(question: str, *, without_terminal: str) -> bool:
    """Ask on the terminal and return whether the answer is yes. Raises UsageError with a text where there is none."""
    if not sys.stdin.isatty():
        raise UsageError(without_terminal)
    print_notice(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def colour_state(line: str) -> str:
    """Return a line that begins with a state ("ok", "warn", "fail") with that word in its colour, on a terminal."""
    word, _, rest = line.partition(" ")
    style = STATE_STYLES.get(word.lower())
    if style is None or not sys.stdout.isatty():
        return line
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(word, style=style, end="")
    return f"{captured.get()} {rest}"


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """Print a document as JSON: results with their fields, times as ISO 8601, ids and whatever else as text.

    Characters that a terminal does not show, or obeys, are escaped.
    """

    def convert(value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json")
        return value.isoformat() if isinstance(value, datetime) else str(value)

    text = json.dumps(document, default=convert, ensure_ascii=False, indent=indent)
    print("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))


def join_blocks(blocks: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of all blocks, with an empty line between two."""
    for number, lines in enumerate(blocks):
        yield from ([""] if number else [])
        yield from lines


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without terminal codes."""
    for line in lines:
        print(strip_terminal_codes(line))


def print_rows(header: Sequence[str], rows: Iterable[Sequence[str]], plain_lines: Iterable[str]) -> None:
    """Print rows as a table on a terminal, with states in their colour; elsewhere the plain lines, for programs."""
    cells = [[strip_terminal_codes(cell) for cell in row] for row in rows] if sys.stdout.isatty() else []
    if not cells:
        print_lines(plain_lines)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, no_wrap=index == 0, overflow="fold")  # the first one is copied into other commands
    for row in cells:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr that something takes a while, until the block ends: elsewhere than on a terminal as one line."""
    if not sys.stderr.isatty():
        line = threading.Timer(LINE_SECONDS, partial(print, f"{what} …", file=sys.stderr, flush=True))
        line.daemon = True
        line.start()
        try:
            yield
        finally:
            line.cancel()
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def announce_start(what: str) -> None:
    """Show at once on stderr of a terminal that a command has begun: its imports take a while."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(translate("starting {what} …", what=translate(what)), file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on stderr how far the storage's work in the block is: a bar on a terminal, elsewhere a line at times."""
    if not sys.stderr.isatty():
        printed_at = time.monotonic()

        def print_at_times(step: str, done: int, total: int) -> None:  # never for short work
            nonlocal printed_at
            if time.monotonic() - printed_at >= LINE_SECONDS:
                printed_at = time.monotonic()
                share = f": {min(done / total, 1.0):.0%}" if total else ""
                print(f"{step}{share}", file=sys.stderr, flush=True)

        with listen_to_progress(print_at_times):
            yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        with listen_to_progress(show):
            yield
