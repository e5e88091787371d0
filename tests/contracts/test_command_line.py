"""What people and scripts rely on at the command line: commands, options, exit codes, settings, the emulated run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from bot.cli.main import app, entry
from bot.cli.process.shutdown import Exit
from tests.cli.test_cli_emulate import character, start_emulated_bot
from tests.contracts.snapshot import check_snapshot
from tests.doc_blocks import ROOT
from tests.test_docs import ASSIGNED


def list_commands(command: Any, name: str = "bot") -> Iterator[tuple[str, Any]]:
    """Yield a command and the commands in its group, each with its whole name."""
    yield name, command
    context = click.Context(command)
    for child in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from list_commands(command.get_command(context, child), f"{name} {child}")


def describe_parameter(parameter: Any, context: Any) -> str:
    """Return how an option or argument is written, and whether it is required or may be repeated."""
    written = (parameter.get_help_record(context) or [parameter.name])[0]
    notes = {"required": parameter.required, "repeatable": parameter.multiple or parameter.nargs == -1}
    return " ".join(["  " + written, *(f"({note})" for note, applies in notes.items() if applies)])


def test_the_commands_have_the_recorded_options_and_exit_codes() -> None:
    lines = [f"exit codes: {', '.join(f'{code.value} {code.name}' for code in Exit)}"]
    for name, command in list_commands(typer.main.get_command(app)):
        context = click.Context(command)
        lines += ["", name, *(describe_parameter(parameter, context) for parameter in command.get_params(context))]
    check_snapshot("commands.txt", "\n".join(lines))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["settings"], 0),
        (["no-such-command"], 2),
        (["why", "--no-such-option"], 2),
        (["chat", "-c", "missing.json"], 78),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_command_exits_with_the_documented_code(arguments: list[str], code: int) -> None:
    assert entry(arguments) == code


def test_the_variables_are_the_recorded_ones() -> None:
    names = ASSIGNED.findall((ROOT / ".env.example").read_text(encoding="utf-8"))
    check_snapshot("variables.txt", "\n".join(names))


async def test_a_run_on_emulated_platforms_prints_the_recorded_lines(workdir: Path) -> None:
    args = ("-c", str(character(workdir)), "--emulate", "discord,telegram,x", "--only", "web,discord,telegram,x")
    async with start_emulated_bot(*args, SERVER_PORT="0", SERVER_TOKEN="a-token-for-tests") as (_process, lines):
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", "\n".join(lines))
    check_snapshot("emulated_run.txt", re.sub(r"/\S*greenroom-\w+", "FOLDER", text).replace(str(workdir), "WORKDIR"))
