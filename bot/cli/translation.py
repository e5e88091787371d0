"""Help of commands in the language of the terminal, by the table `program` of a translation."""

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

from typer import Context

from bot.text import translate

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
