"""What commands print in the language of the terminal."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bot.cli.characters import bundled_character
from bot.cli.main import COMMANDS, app, entry, translate_help
from bot.user_texts import LANGUAGES, PLACEHOLDER, load_catalogue, translate_message, use_language

ROOT = Path(__file__).parents[2]
TRANSLATIONS = [language for language in LANGUAGES if language != "en"]
# Of the parser of command lines, of the check of settings, and of the operating system.
OF_LIBRARIES = re.compile(
    r"Usage: |Options|Commands|Arguments|Install completion|Show completion|Show this message|no such option|"
    r"missing (?:argument|option)|invalid value|got unexpected|option .* requires|Input should|it should|String should|"
    r"Field required|No such file or|Permission denied|Address already"
)
ENGLISH_WORDS = re.compile(r"(?<![\w./`-])(?:the|is|are|not|with|and|of|for|by|to|it|which|from|has)(?![\w./`-])")


def list_help(command: Any, parent: Any = None) -> Iterator[str]:
    """Yield the help texts of a command, its options and its subcommands."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    for item in (command, command.get_help_option(context), *command.params):
        if item is not None and item.help:
            yield inspect.cleandoc(item.help)
    yield from (line for line in (command.epilog or "").split("\n") if line.strip("\b") and not line.startswith("  "))
    for subcommand in getattr(command, "commands", {}).values():
        yield from list_help(subcommand, context)


def list_all_help() -> set[str]:
    apps = [app, *(command.load() for command in COMMANDS)]
    return {text for item in apps for text in list_help(typer.main.get_command(item))}


def read_sources() -> str:
    """Return the text of all sources; a literal that is continued on the next line is whole."""
    paths = (path for package in ("bot", "adapters", "plugins") for path in (ROOT / package).rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r"""["']\s*\n\s*f?["']""", "", text).replace('\\"', '"')


@pytest.mark.parametrize("language", TRANSLATIONS)
def test_every_help_text_of_every_command_is_translated(language: str) -> None:
    texts = list_all_help()
    assert len(texts) > 200
    own = load_catalogue(language)
    assert sorted(text for text in texts if f"program.{text}" not in own) == []


@pytest.mark.long
def test_every_translated_text_is_in_the_sources() -> None:
    keys = [key.removeprefix("program.") for key in load_catalogue("de") if key.startswith("program.")]
    known, help_texts = read_sources(), list_all_help()
    parts = ((key, part.strip(" :;,.()")) for key in keys for part in PLACEHOLDER.split(key)[::2])
    unknown = {key for key, part in parts if part not in known and key not in help_texts}
    assert sorted(key for key in unknown if not OF_LIBRARIES.match(key)) == []


@pytest.mark.parametrize(
    ("message", "translation"),
    [
        ("x.json: no such file", "x.json: diese Datei gibt es nicht"),
        ("x.json: no such file; did you mean 'y.json'?", "x.json: diese Datei gibt es nicht; meintest du 'y.json'?"),
        ("  web       off  A and B are not set", "  web       aus  A and B sind nicht gesetzt"),
        (
            "no platform is on:\n  x         off  A is not set",
            "keine Plattform ist an:\n  x         aus  A ist nicht gesetzt",
        ),
        ("what a plugin says", "what a plugin says"),
        ("{name}: no such file", "{name}: diese Datei gibt es nicht"),
    ],
)
def test_a_finished_message_is_translated_with_the_values_in_it(message: str, translation: str) -> None:
    with use_language("de"):
        assert translate_message(message) == translation
    assert translate_message(message) == message


def test_headings_of_help_and_errors_of_the_command_line_are_translated(capsys: pytest.CaptureFixture[str]) -> None:
    with use_language("de"):
        text = translate_help(typer.main.get_command(importlib.import_module("bot.cli.commands.rehearse").rehearse_app))
        help_text = text.get_help(text.context_class(text, info_name="rehearse"))
        assert entry(["why", "--lasst", "3"]) == 2
    assert [word in help_text for word in ("Aufruf: ", "Optionen:", "[nötig]", "[Vorgabe: 7d]", "Beispiele:")] == [
        True
    ] * 5
    error = "bot: die Option --lasst gibt es nicht: meintest du '--last'? Siehe `bot why --help`\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["init", "--yes", "--local-ports", "1"],
        ["doctor", "-c", "missing.json"],
        ["import", "sillytavern", "."],
        ["run", "--only", "fax"],
    ],
    ids=" ".join,
)
def test_a_newcomer_with_a_german_terminal_reads_no_english_word(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with use_language("de"):
        entry(arguments)
    captured = capsys.readouterr()
    printed = [line for line in (captured.out + captured.err).splitlines() if ENGLISH_WORDS.search(line)]
    assert captured.out + captured.err
    assert printed == []


def test_the_bundled_character_is_in_the_language_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    for language in ("de", "fr", "en"):
        monkeypatch.setattr("bot.cli.characters.default_language", lambda name=language: name)
        names[language] = bundled_character().name
    assert names == {"de": "default.de.json", "fr": "default.json", "en": "default.json"}
