"""Progress of long work on stderr: a bar on a terminal, elsewhere lines, none where the work is short."""

import io
import sys

import pytest

from bot.cli import terminal_style
from bot.store.storage import report_progress


class Terminal(io.StringIO):
    """A terminal that records what is written to it."""

    def isatty(self) -> bool:
        return True


def test_short_work_prints_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_style.progress("copying"):
        report_progress("copying", 1, 2)
    report_progress("copying", 2, 2)
    assert capsys.readouterr().err == ""


def test_long_work_prints_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_style, "LINE_SECONDS", 0.0)
    with terminal_style.progress("copying"):
        report_progress("verifying")
        report_progress("copying the file", 1, 2)
    assert capsys.readouterr().err == "verifying\ncopying the file: 50%\n"


def test_a_terminal_shows_a_bar_without_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with terminal_style.progress("copying"):
        report_progress("copying the file", 1, 2)
    assert "copying the file" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
    assert "\x1b[3" not in terminal.getvalue()
