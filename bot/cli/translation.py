"""What commands print, in the language of the terminal: the texts of the table `program` of a translation.

Help texts are translated where a command is built. Findings, notes and errors are shown by the API and logged in
English, too; so `translate_message` translates finished ones where a command prints them.
"""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer import Context

from bot.text import current_language, translate
from bot.user_texts import ENGLISH, load_catalogue

TABLE = "program."
PLACEHOLDER = re.compile(r"\{(\w+)\}")
MAX_LINE_LENGTH = 4_000  # of a message that is translated
MIN_FIXED_LENGTH = 4  # of a text with values: a shorter one would match by chance
EXTRAS = ("[required", "[default: ")  # that the parser adds to a help text
HelpFormatter: Any = Context.formatter_class


@dataclass(frozen=True, slots=True)
class Template:
    """An English text with values: its longest part, by which it is found quickly, and how many letters are fixed."""

    text: str
    longest_part: str
    fixed_length: int

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Return a text of the table as a template."""
        parts = PLACEHOLDER.split(text)[::2]
        return cls(text, max(parts, key=len), sum(map(len, parts)))


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
    if current_language() == ENGLISH:
        return command
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


def translate_message(text: str) -> str:
    """Return an English message in the current language, line by line.

    A line is a text of the table, perhaps with values in the places of its `{name}`; the values are translated alike.
    What has no translation stays as it is.
    """
    if current_language() == ENGLISH:
        return text
    return "\n".join(map(_translate_line, text.split("\n")))


def _translate_line(line: str) -> str:
    text = line.strip()
    if not text or len(text) > MAX_LINE_LENGTH:
        return line
    translation = translate(text)
    if translation == text:
        translation = _translate_filled(text)
    return line.replace(text, translation)


def _translate_filled(text: str) -> str:
    for template in _templates(current_language()):
        if template.longest_part in text and (match := _pattern(template.text).fullmatch(text)):
            values = {name: _translate_line(value) for name, value in match.groupdict().items()}
            return translate(template.text, **values)
    return text


@cache
def _translated_context(context_class: Any) -> Any:
    return type(context_class.__name__, (context_class,), {"formatter_class": TranslatedFormatter})


@cache
def _templates(language: str) -> tuple[Template, ...]:
    """Return the texts of the table that have values, those with the most fixed letters first."""
    texts = (key.removeprefix(TABLE) for key in load_catalogue(language) if key.startswith(TABLE))
    templates = (Template.parse(text) for text in texts if PLACEHOLDER.search(text))
    fixed = (template for template in templates if template.fixed_length >= MIN_FIXED_LENGTH)
    return tuple(sorted(fixed, key=lambda template: -template.fixed_length))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts, seen = [], set[str]()
    for index, part in enumerate(PLACEHOLDER.split(text)):
        if index % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>.+?)")
            seen.add(part)
    return re.compile("".join(parts))
