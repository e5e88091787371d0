"""List every variable: what it means, its value and where that comes from; secrets are never shown."""

import argparse
import textwrap
from collections.abc import Iterator, Sequence

from bot.characters import load_character
from bot.characters.secret_detection import take_secrets
from bot.cli.characters import add_character_option, settings_of
from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import aside
from bot.cli.variables import Group, Variable, known_groups, purpose, variables
from bot.logs import harmless
from bot.settings import Settings

WIDTH = 100
PREFACE = """\
# Every variable there is, with what it is when nobody sets it. Copy this file to .env in the folder from
# which you start the bot, and take the "# " away from what you change. The environment goes over .env, a
# character's own settings go over both. `bot settings` shows what is set where, `bot doctor` checks it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser)
    parser.add_argument(
        "--example", action="store_true", help="print all of it as an .env file to start from"
    )


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    groups, problems = known_groups()
    for problem in problems:
        aside(harmless(f"left out: {problem}"))
    if args.example:
        print(example(groups), end="")
        return Exit.OK
    loaded = load_character(args.character) if args.character else None
    print("\n".join(_listing(groups, settings_of(loaded))))
    return Exit.OK


def example(groups: Sequence[Group]) -> str:
    """Write the `.env.example`."""
    parts = [PREFACE]
    for group in groups:
        parts.append(f"\n# --- {group.name}: {purpose(group.model)}\n")
        for variable in variables(group.model):
            lines = textwrap.wrap(variable.description, WIDTH, break_on_hyphens=False)
            about = "\n".join(f"# {line}" for line in lines)
            parts.append(f"\n{about}\n# {variable.name}={variable.default}\n")
    return "".join(parts)


def _listing(groups: Sequence[Group], settings: Settings) -> Iterator[str]:
    for number, group in enumerate(groups):
        yield f"{chr(10) if number else ''}{group.name}: {purpose(group.model)}"
        for variable in variables(group.model):
            yield f"  {variable.name} = {_value(variable, settings)}"
            yield f"      {variable.description}"


def _value(variable: Variable, settings: Settings) -> str:
    source = settings.source_of(variable.name)
    if not source:
        return f"{variable.default}  (default)" if variable.default else "(not set)"
    value = "(set, not shown)"
    if not variable.is_secret:
        value, _ = take_secrets(settings.get(variable.name) or "")
    return harmless(f"{value}  (from {source})")
