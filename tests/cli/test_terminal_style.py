"""Lists are tables, and progress of long work is a bar, on a terminal; elsewhere both are plain lines."""

import io
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bot.cli import options
from bot.store.storage import report_progress


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
