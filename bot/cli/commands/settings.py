"""List every variable with its meaning, its value and where that comes from; secrets are never shown."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from bot.characters import load_character
from bot.cli import options, variables
from bot.cli.characters import ignored_settings_note, load_character_config, read_character_settings
from bot.cli.process.shutdown import Exit, print_notice
from bot.errors import ConfigError
from bot.operate.tools import VariableState
from bot.plugin_system.plugin import Plugin
from bot.text import strip_terminal_codes

LINE_WIDTH = 100
PREFACE = """\
# Every variable with its default. Copy this file to .env in the folder from which you start the bot, and
# remove the "# " before the lines you change. The environment takes precedence over .env. Of the variables
# that `bot settings --owners` lists, a character's own settings take precedence over both. `bot settings`
# shows what is set where, `bot doctor` checks it.
"""


settings_app = options.new_command()


@settings_app.command(
    epilog=options.examples("bot settings", "bot settings -c mine.json --json", "bot settings --example > .env")
)
def settings(
    character: options.CharacterFile = None,
    example: Annotated[bool, typer.Option("--example", help="Print an example .env file.")] = False,
    owners: Annotated[bool, typer.Option("--owners", help="Print which of them a character's file may set.")] = False,
    as_json: options.AsJson = False,
) -> int:
    """List every variable with its meaning, its value and where that comes from; secrets are never shown."""
    plugins: Sequence[Plugin] = ()
    if not (example or owners):
        try:
            plugins = load_character_config(character).plugins
        except ConfigError as error:
            print_notice(f"variables of its own plugins are not listed: {error}", allowed="\n")
    groups, problems = variables.find_settings_groups(plugins)
    for problem in problems:
        print_notice(f"not listed: {problem}")
    if example:
        print(build_example(groups), end="")
        return Exit.OK
    if owners:
        print(build_owner_table(groups), end="")
        return Exit.OK
    loaded = load_character(character) if character else None
    values = read_character_settings(loaded).with_models(*(group.model for group in groups))
    for note in ignored_settings_note(values):
        print_notice(note)
    states = variables.describe_variables(groups, values)
    document, header = {"variables": list(map(_to_json, states))}, ("variable", "value", "meaning")
    rows = [(state.name, _format_value(state), state.meaning) for state in states]
    return options.Output(document, _setting_lines(groups, states), header, rows).print(as_json=as_json)


def build_example(groups: Sequence[variables.SettingsGroup]) -> str:
    """Return the content of `.env.example`."""
    parts = [PREFACE]
    for group in groups:
        parts.append(f"\n# --- {group.name}: {variables.group_summary(group.model)}\n")
        for variable in variables.list_variables(group.model):
            lines = textwrap.wrap(variable.description, LINE_WIDTH, break_on_hyphens=False)
            comment = "\n".join(f"# {line}" for line in lines)
            parts.append(f"\n{comment}\n# {variable.name}={variable.default}\n")
    return "".join(parts)


def build_owner_table(groups: Sequence[variables.SettingsGroup]) -> str:
    """Return the table in Markdown of who sets each variable: the character's file too, or only the operator."""
    lines = ["| part | the character's file too | only the operator |", "|---|---|---|"]
    for group in groups:
        listed = list(variables.list_variables(group.model))
        names = {
            is_character: ", ".join(f"`{item.name}`" for item in listed if item.is_character_setting is is_character)
            for is_character in (True, False)
        }
        lines.append(f"| {group.name} | {names[True]} | {names[False]} |")
    return "\n".join([*lines, ""])


def _setting_lines(groups: Sequence[variables.SettingsGroup], states: Sequence[VariableState]) -> Iterator[str]:
    for number, group in enumerate(groups):
        if number:
            yield ""
        yield f"{group.name}: {variables.group_summary(group.model)}"
        for state in states:
            if state.part == group.name:
                yield f"  {state.name} = {_format_value(state)}"
                yield f"      {state.meaning}"


def _to_json(variable: VariableState) -> dict[str, object]:
    """Return a variable as JSON; the value of a secret is null."""
    return {
        "name": variable.name,
        "group": variable.part,
        "description": variable.meaning,
        "value": None if variable.is_secret else variable.value or "",
        "is_set": variable.is_set,
        "origin": variable.origin or "default",
        "is_secret": variable.is_secret,
    }


def _format_value(variable: VariableState) -> str:
    if not variable.is_set:
        return f"{variable.default}  (default)" if variable.default else "(not set)"
    value = "(set, not shown)" if variable.is_secret else variable.value or ""
    return strip_terminal_codes(f"{value}  (from {variable.origin})")
