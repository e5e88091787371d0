"""The terminal: tables, colour, progress, and texts in its language."""

import importlib
import inspect
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bot.cli import options
from bot.cli.characters import bundled_character
from bot.cli.main import COMMANDS, app, entry, translate_help
from bot.store.storage import report_progress
from bot.user_texts import LANGUAGES, PLACEHOLDER, load_catalogue, translate_message, use_language


class Terminal(io.StringIO):
    """A terminal that records what is written to it."""

    def isatty(self) -> bool:
        return True


def test_short_work_prints_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with options.progress("copying"):
        report_progress("copying", 1, 2)
    report_progress("copying", 2, 2)
    assert capsys.readouterr().err == ""


def test_long_work_prints_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "LINE_SECONDS", 0.0)
    with options.progress("copying"):
        report_progress("verifying")
        report_progress("copying the file", 1, 2)
    assert capsys.readouterr().err == "verifying\ncopying the file: 50%\n"


def test_work_of_unknown_length_prints_a_line_where_there_is_no_terminal_and_only_if_it_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = threading.Event()

    class File(io.StringIO):
        def flush(self) -> None:
            printed.set()

    file = File()
    monkeypatch.setattr(sys, "stderr", file)
    with options.working("reading documents"):
        pass
    assert file.getvalue() == ""
    monkeypatch.setattr(options, "LINE_SECONDS", 0.0)
    with options.working("reading documents"):
        assert printed.wait(30.0)
    assert file.getvalue() == "reading documents …\n"


def test_a_terminal_shows_a_bar_without_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with options.progress("copying"):
        report_progress("copying the file", 1, 2)
    assert "copying the file" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
    assert "\x1b[3" not in terminal.getvalue()


def test_a_list_is_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_rows(("part", "state"), [("a1", "held")], ["a1  held\nb2  sent"])
    assert capsys.readouterr().out == "a1  held\\nb2  sent\n"


def test_a_table_escapes_control_characters_and_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    options.print_rows(("name",), [("[red]Eve\nRoot\x1b[2J",)], [])
    assert "[red]Eve\\nRoot" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()


def test_json_escapes_what_a_terminal_obeys_or_hides_and_stays_the_same_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {"name": "Zoë 🌊", "text": "a\x1b[2J\x9b31m\u202eb\ud800\n"}
    options.print_json(document)
    printed = capsys.readouterr().out
    assert "Zoë 🌊" in printed
    assert all(char.isprintable() or char == "\n" for char in printed)
    assert json.loads(printed) == document


@pytest.mark.parametrize(
    ("no_colour", "has_colour"),
    [("", True), pytest.param("1", False, marks=pytest.mark.long)],
    ids=["colour", "NO_COLOR"],
)
def test_a_command_prints_its_list_as_a_table_on_a_terminal(tmp_path: Path, no_colour: str, has_colour: bool) -> None:
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": no_colour}
    terminal, end_of_program = pty.openpty()
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "bot", "plugin", "list"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=end_of_program) as process:
        os.close(end_of_program)
        text = _read_to_end(terminal)
    assert process.returncode == 0
    assert "what it does" in text
    assert "──" in text
    assert ("\x1b[32mon" in text) is has_colour


def _read_to_end(terminal: int) -> str:
    content = b""
    while True:
        try:
            content += os.read(terminal, 65536)
        except OSError:  # the program has ended: Linux says so with EIO
            os.close(terminal)
            return content.decode()


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
