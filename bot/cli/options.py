"""What commands share: the frame of a command or a group, and the options `-c FILE` and `--json`.

Tables, colour and a sign of long work, on terminals only; NO_COLOR turns colour off.

All variables: which part declares them, their meaning and their default.
"""

import json
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field, SecretStr, create_model
from typer.core import TyperGroup

from bot import settings
from bot.care.settings import CareSettings
from bot.cli.process.shutdown import Exit, UsageError, print_notice
from bot.costs.budget import BudgetSettings
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.models.handler import ModelSettings
from bot.outbound.proposals import ApprovalSettings
from bot.plugin_system.loading import bundled_descriptions, find_adapters, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.store.storage import listen_to_progress
from bot.text import shorten, strip_terminal_codes, suggest, translate
from bot.watchdog.settings import OwnerSettings

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


def new_command(**options: Any) -> typer.Typer:
    """Return the frame of a command of its own; its one function is registered with `command` of the result."""
    return typer.Typer(
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


def new_group(help: str) -> typer.Typer:
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
    """Print a document as JSON; times as ISO 8601, ids and what else has no form in JSON as text.

    Characters that a terminal does not show, or obeys, are escaped.
    """

    def to_text(value: Any) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    text = json.dumps(document, default=to_text, ensure_ascii=False, indent=indent)
    print("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))


def print_result(
    document: Any,
    lines: Iterable[str],
    *,
    as_json: bool,
    header: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    indent: int | None = 2,
) -> int:
    """Print the result of a command as JSON or as lines, on a terminal as a table of its rows; return exit code 0."""
    if as_json:
        print_json(document, indent=indent)
    else:
        print_rows(header, rows, lines)
    return Exit.OK


def print_rows(header: Sequence[str], rows: Iterable[Sequence[str]], plain_lines: Iterable[str]) -> None:
    """Print rows as a table on a terminal, with states in their colour; elsewhere the plain lines, for programs."""
    cells = [[strip_terminal_codes(cell) for cell in row] for row in rows] if sys.stdout.isatty() else []
    if not cells:
        print("\n".join(map(strip_terminal_codes, plain_lines)))
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


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """The settings model of one part of the program."""

    name: str
    model: type[settings.SettingsModel]


MAX_MISSPELT_SHARE = 0.15  # of the name of a variable, which may be another program's
CORE_GROUPS = (
    SettingsGroup("core", settings.CoreSettings),
    SettingsGroup("network", settings.NetworkSettings),
    SettingsGroup("models", ModelSettings),
    SettingsGroup("money", BudgetSettings),
    SettingsGroup("owner", OwnerSettings),
    SettingsGroup("care", CareSettings),
    SettingsGroup("filters", settings.FilterSettings),
    SettingsGroup("approval", ApprovalSettings),
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `default` is formatted as in `.env`. A character's file sets only those that it may."""

    name: str
    description: str
    default: str
    is_secret: bool
    is_character_setting: bool


def find_adapter_groups() -> tuple[list[SettingsGroup], list[str]]:
    """Return the settings models of all adapters, which are quick to import, and load problems."""
    adapters = {f"{name} adapter": adapter for name, adapter in find_adapters().items()}
    groups = [SettingsGroup(name, item.settings) for name, item in adapters.items() if isinstance(item, AdapterSpec)]
    return groups, [f"{name}: {problem}" for name, problem in adapters.items() if isinstance(problem, str)]


def find_settings_groups(
    plugins: Sequence[Plugin] = (), *, imports_others: bool = True
) -> tuple[list[SettingsGroup], list[str]]:
    """Return the settings models of the core, all adapters, all plugins and `plugins`, and load problems.

    Without `imports_others`, as in a running bot, no plugin is imported: the bundled ones have a model made from their
    description, which accepts any text, and plugins of other distributions are left out.
    """
    adapter_groups, problems = find_adapter_groups()
    models: dict[str, type[settings.SettingsModel] | None] = {}
    if imports_others:
        for name in plugin_names():
            try:
                if (plugin := find_plugin(name)) is not None:
                    models[name] = plugin.settings
            except PluginError as error:
                problems.append(str(error))
    else:
        models |= {name: _described_model(name) for name, item in bundled_descriptions().items() if item["variables"]}
    models.update((plugin.name, plugin.settings) for plugin in plugins)
    groups = [SettingsGroup(f"{name} plugin", model) for name, model in models.items() if model]
    return [*CORE_GROUPS, *adapter_groups, *groups], problems


@lru_cache(maxsize=64)  # the same plugin must have the same model
def _described_model(name: str) -> type[settings.SettingsModel]:
    """Return a model with the variables of a bundled plugin that is not imported."""
    variables = bundled_descriptions()[name]["variables"]
    fields: dict[str, Any] = {
        item["name"].lower(): (
            SecretStr | None if item["is_secret"] else str,
            Field(None if item["is_secret"] else item["default"], description=item["description"]),
        )
        for item in variables
    }
    own = frozenset(item["name"] for item in variables if item["is_character_setting"])
    model = create_model(f"{name}_settings", __base__=settings.SettingsModel, **fields)
    model.CHARACTER_SETTINGS = own
    return model


def known_variables(plugins: Sequence[Plugin], groups: Sequence[SettingsGroup] = CORE_GROUPS) -> dict[str, Variable]:
    """Return all variables of these groups and plugins by name."""
    models = [*(group.model for group in groups), *(plugin.settings for plugin in plugins)]
    return {variable.name: variable for model in models for variable in list_variables(model)}


def list_variables(model: type[settings.SettingsModel] | None) -> Iterator[Variable]:
    """Yield a model's variables in the order of declaration; none without a model."""
    if model is None:
        return
    secret_names = {name for name, _ in settings.secret_fields(model)}
    owners = settings.character_settings(model)
    for name, field in model.model_fields.items():
        alias = field.alias or name.upper()
        is_secret = name in secret_names or settings.is_secret_name(alias)
        default = field.get_default(call_default_factory=True)
        default_text = "" if is_secret else _format_default(default)
        yield Variable(alias, field.description or "", default_text, is_secret, owners[alias])


def group_summary(model: type[settings.SettingsModel]) -> str:
    """Return the first line of a settings model's docstring."""
    lines = (model.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def _format_default(value: Any) -> str:
    if value is None or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | set | frozenset):
        return ",".join(map(_format_default, value))
    return str(value)
