"""What commands share: the frame of a command or a group, and the options `-c FILE` and `--json`."""

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.cli.process.exit_codes import UsageError
from bot.text import shorten, suggest

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
