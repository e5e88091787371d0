"""The command line: finding commands, and errors."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli.main import COMMANDS, Command, entry
from bot.cli.process.exit_codes import Exit, UsageError, exit_code
from bot.errors import (
    BotError,
    CharacterError,
    ConfigError,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PluginError,
    SettingError,
    TemporaryError,
)
from tests.trust import trust_code

HEAVY = ("aiohttp", "openai", "discord", "telegram", "tweepy", "sqlalchemy")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_runnable_module(command: Command) -> None:
    module = importlib.import_module(command.module)
    assert callable(module.add_arguments)
    assert callable(module.run)
    assert module.__doc__


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help_text(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry([command.name, "--help"])
    assert ended.value.code == 0
    assert f"usage: bot {command.name}" in capsys.readouterr().out


def test_help_imports_no_heavy_library() -> None:
    code = f"import sys, bot.cli.main; sys.exit(bool(set(sys.modules) & set({HEAVY!r})))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry([]) == 2
    out, err = capsys.readouterr()
    assert (out, all(command.name in err for command in COMMANDS)) == ("", True)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("chta", "did you mean 'chat'?"), ("plugins", "did you mean 'plugin'?"), ("zzzz", "`bot --help` lists")],
)
def test_an_unknown_command_gets_a_suggestion(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry([word]) == 2
    assert capsys.readouterr().err.startswith(f"bot: unknown command {word!r}: {hint}")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["--version"]) == 0
    assert capsys.readouterr().out.startswith("greenroom ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 78),
        (CharacterError("x"), 78),
        (SettingError("x"), 78),
        (PluginError("x"), 78),
        (ModelRefused("x"), 78),
        (ModelUnavailable("x"), 75),
        (ModelError("x"), 75),
        (TemporaryError("x"), 75),
        (BotError("x"), 70),
        (ZeroDivisionError("x"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code
    assert code in set(Exit)


def write_broken_plugin(folder: Path) -> Path:
    """Write a character with a plugin that fails unexpectedly."""
    (folder / "odd.py").write_text(
        "from bot import Plugin\nplugin = Plugin('odd', missing_settings=lambda settings: 1 / 0)\n", encoding="utf-8"
    )
    trust_code(folder)
    path = folder / "odd.json"
    path.write_text(json.dumps({"name": "Odd", "plugins": ["./odd"]}), encoding="utf-8")
    return path


def test_an_unexpected_error_is_one_line_and_a_hint(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_broken_plugin(workdir)
    assert entry(["chat", "-c", str(path)]) == 70
    first, second = capsys.readouterr().err.splitlines()
    assert first == "bot: ZeroDivisionError: division by zero"
    assert second == "bot: run again with LOG_LEVEL=DEBUG for the details"


def test_debugging_shows_the_traceback(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_broken_plugin(workdir)
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert entry(["chat", "-c", str(path)]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_no_error_message_can_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["chat", "-c", "\x1b[31mred.json"]) == 78
    assert capsys.readouterr().err == "bot: red.json: no such file\n"
