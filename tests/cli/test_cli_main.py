"""The entry point: help, errors, exit codes and wrong configuration."""

import importlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import bot.cli.main
from bot import errors
from bot.cli.main import COMMANDS, Command, entry
from bot.cli.process.shutdown import Exit, UsageError, exit_code
from bot.installation import ROOT
from bot.plugin_system.loading import plugin_names
from tests.trust import trust_code

HEAVY = ("aiohttp", "openai", "discord", "telegram", "tweepy", "sqlalchemy")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_runnable_module(command: Command) -> None:
    assert command.load().registered_commands
    assert importlib.import_module(command.module).__doc__


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help_text(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry([command.name, "--help"]) == 0
    assert f"Usage: bot {command.name}" in capsys.readouterr().out


def _imported_of(names: Sequence[str], modules: Sequence[str]) -> str:
    """Return which of the names are imported together with the modules, in a process of its own."""
    code = f"import sys, {', '.join(modules)}; print(*set(sys.modules) & set({names!r}))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.long
def test_help_imports_no_heavy_library() -> None:
    assert not _imported_of(HEAVY, ["bot.cli.main"])


@pytest.mark.long
def test_the_store_on_sqlite_does_not_import_the_dialect_of_postgresql() -> None:
    assert not _imported_of(["sqlalchemy.dialects.postgresql", "asyncpg"], ["bot.store.sql.sqlite.storage"])


@pytest.mark.long
def test_help_of_single_commands_imports_neither_pipeline_nor_http_client_nor_test_kit() -> None:
    heavy = ("aiohttp", "mcp", "rich", "sqlalchemy", "bot.runtime.agent_runtime", "bot.testing")
    assert not _imported_of(heavy, [command.module for command in COMMANDS])


@pytest.mark.long
def test_folders_of_the_user_called_plugins_and_adapters_are_never_taken_for_the_built_in_ones(tmp_path: Path) -> None:
    for name in ("plugins", "adapters"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} of the user')")
    finished = subprocess.run(
        [sys.executable, "-m", "bot", "chat"],  # the folder it runs in is the first on the path
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout.strip()[:5]) == (0, "Hello"), finished.stderr


def test_another_package_of_the_name_of_a_bundled_package_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("plugins")
    module.__file__ = str(tmp_path / "plugins" / "__init__.py")
    monkeypatch.setitem(sys.modules, "plugins", module)
    with pytest.raises(errors.PluginError, match=f"imported from {tmp_path}.*rename that folder"):
        plugin_names()


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry([]) == 2
    out, err = capsys.readouterr()
    assert (out, all(command.name in err for command in COMMANDS)) == ("", True)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("chta", "unknown command 'chta': did you mean 'chat'?"),
        ("plugins", "unknown command 'plugins': did you mean 'plugin'?"),
        ("zzzz", "unknown command 'zzzz': `bot --help` lists the commands"),
        ("plugin lsit", "unknown command 'lsit': did you mean 'list'?"),
        ("person exprot", "unknown command 'exprot': did you mean 'export'?"),
        ("token zzzz", "unknown command 'zzzz': `bot token --help` lists the commands"),
        ("run --charcter x", "no such option: --charcter: did you mean '--character'? See `bot run --help`"),
        ("run --zzzz", "no such option: --zzzz; see `bot run --help`"),
        ("run -c mien.json", "mien.json: no such file; did you mean 'mine.json'?"),
        ("character check mien.json", "mien.json: no such file; did you mean 'mine.json'?"),
        ("character import fase.png", "fase.png: no such file; did you mean 'face.png'?"),
        ("init --yes --character mien.json", "mien.json: no such file; did you mean 'mine.json'?"),
        ("run --only discrod", "--only: 'discrod' is not a platform: did you mean 'discord'?"),
        ("plugin add knowlegde", "plugin 'knowlegde' is in no list of plugins: did you mean 'knowledge'?"),
        ("token revoke mobile", "there is no token 'mobile': `bot token list` shows them"),
    ],
)
def test_a_misspelt_word_of_the_command_line_gets_a_suggestion(
    words: str, hint: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "mine.json").write_text('{"name": "Robin"}')
    (workdir / "face.png").write_bytes(b"")
    assert entry(words.split()) in (2, 78)
    assert capsys.readouterr().err == f"bot: {hint}\n"


def test_a_character_that_is_misspelt_in_the_settings_gets_a_suggestion(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "mine.json").write_text('{"name": "Robin"}')
    (workdir / ".env").write_text("BOT_CHARACTER=mien.json\n")
    assert entry(["chat"]) == 78
    assert "there is no file mien.json; did you mean 'mine.json'?" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["--version"]) == 0
    assert capsys.readouterr().out.startswith("greenroom ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (errors.ConfigError("x"), 78),
        (errors.CharacterError("x"), 78),
        (errors.SettingError("x"), 78),
        (errors.PluginError("x"), 78),
        (errors.ModelRefused("x"), 78),
        (errors.ModelUnavailable("x"), 75),
        (errors.ModelError("x"), 75),
        (errors.TemporaryError("x"), 75),
        (errors.BotError("x"), 70),
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
        "from bot import Plugin\nplugin = Plugin('odd', store=lambda *given: 1 / 0)\n", encoding="utf-8"
    )
    trust_code(folder)
    path = folder / "odd.json"
    path.write_text(json.dumps({"name": "Odd", "plugins": ["./odd"]}), encoding="utf-8")
    return path


def test_an_unexpected_error_is_a_single_line_and_a_hint(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_broken_plugin(workdir)
    assert entry(["chat", "-c", str(path)]) == 70
    *_, first, second = capsys.readouterr().err.splitlines()  # before them a warning of the tests' own thread
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


def all_commands() -> list[tuple[str, Any]]:
    """Return every command and subcommand with what it is called by."""
    found: list[tuple[str, Any]] = []
    for command in COMMANDS:
        parsed: Any = typer.main.get_command(command.load())
        for name, inner in getattr(parsed, "commands", {"": parsed}).items():
            found.append((f"bot {command.name} {name}".strip(), inner))
    return found


EVERY_COMMAND = pytest.mark.parametrize(("name", "command"), all_commands(), ids=lambda value: str(value))
# What these print is not data: a conversation, the log of a run, the report of tests, what they wrote, or always JSON.
WITHOUT_JSON = {
    *("bot rooms write", "bot chat", "bot run", "bot dev", "bot mcp", "bot post", "bot plugin add", "bot plugin test"),
    *("bot plugin new", "bot adapter test", "bot adapter new", "bot init"),
    *(
        "bot scene record",
        "bot scene from",
        "bot scene schema",
        "bot character new",
        "bot character trust",
        "bot character export",
        "bot memory export",
    ),
}


@EVERY_COMMAND
def test_every_command_shows_examples_that_it_accepts(
    name: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry([*name.split()[1:], "--help"]) == 0
    lines = capsys.readouterr().out.partition("examples:\n")[2].splitlines()
    assert lines
    for line in lines:
        command_line = line.rpartition("| ")[2].partition(" > ")[0]
        words = shlex.split(command_line[command_line.index("bot ") :])
        assert words[: len(name.split())] == name.split()
        command.make_context(name, words[len(name.split()) :])


@EVERY_COMMAND
def test_every_command_that_prints_data_prints_it_as_json_too(name: str, command: Any) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(shell, marks=pytest.mark.long) for shell in ("zsh", "fish"))])
def test_shells_complete_commands_and_options(shell: str) -> None:
    words = "bot ch"
    environment = {
        **os.environ,
        "_BOT_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": words,
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'bot'; from bot.cli.main import entry; sys.exit(entry())"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "chat" in done.stdout, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shells_completion_is_printed(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise typer takes the shell that runs the tests, and no name.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:
        entry(["--show-completion", shell])
    assert ended.value.code == 0
    assert "_BOT_COMPLETE" in capsys.readouterr().out


def test_a_wrong_option_names_those_that_are_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["why", "--lst", "3"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("bot: no such option: --lst")
    assert "--last" in err
    assert "`bot why --help`" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("memory why xyz", "invalid value for 'ID': it is no id, such as 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001; see"),
        ("why --costs --by week", "'--by': 'week' is not one of 'day', 'room', 'person', 'model', 'purpose'; see"),
        ("why --last 0", "invalid value for '--last': it should be greater than or equal to 1; see"),
        ("why --last 99999999999999999999", "'--last': it should be less than or equal to 100000; see"),
        ("why --costs --days 99999999999", "invalid value for '--days': it should be less than or equal to 3660; see"),
        ("inbox list --limit 0", "invalid value for '--limit': it should be greater than or equal to 1; see"),
        ("outbox list --limit 99999999999999999999", "'--limit': it should be less than or equal to 100000; see"),
    ],
)
def test_a_wrong_value_is_refused_in_words_of_the_command(
    capsys: pytest.CaptureFixture[str], line: str, text: str
) -> None:
    assert entry(shlex.split(line)) == 2
    assert text in capsys.readouterr().err


# Loads what belongs to others, takes away what only POSIX has, and then starts the program of its arguments.
WITHOUT_POSIX = """
import asyncio, multiprocessing, os, signal, subprocess, sys, types
import aiohttp.web, aiosqlite, alembic.command, pydantic, rich.console, sqlalchemy.dialects.sqlite.aiosqlite
import sqlalchemy.ext.asyncio, tinytag, typer.completion, dotenv, yaml

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "syslog"):
    sys.modules[name] = None  # an import of it raises ModuleNotFoundError
for name in "nice fork killpg getuid geteuid getgid getegid fchmod fchown chown statvfs mkfifo getloadavg".split():
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
    delattr(signal, name)
locked = []
lock = lambda handle, mode, size: locked.append(size)
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=1, LK_UNLCK=0, locking=lock)
sys.platform = "win32"
from bot.cli.main import entry
code = entry(sys.argv[1:])
assert locked, "the database was not locked by msvcrt"
sys.exit(code)
"""


@pytest.mark.long
def test_a_stored_chat_works_without_what_only_posix_has(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BOT_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-c", WITHOUT_POSIX, "chat"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, input="hello\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hello" in done.stdout
    assert list((tmp_path / "data").glob("*.lock"))


@pytest.mark.parametrize(
    ("arguments", "is_terminal", "started"),
    [([], True, ["chat"]), ([], False, []), (["run", "--strict"], True, ["run", "--strict"])],
)
def test_greenroom_without_arguments_starts_the_chat_on_a_terminal(
    arguments: list[str], is_terminal: bool, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(bot.cli.main, "entry", lambda argv: calls.append(argv) or 0)
    monkeypatch.setattr(sys, "argv", ["greenroom", *arguments])
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    assert bot.cli.main.greenroom() == 0
    assert calls == [started]


Err = pytest.CaptureFixture[str]


def run_refused(arguments: list[str], capsys: Err) -> str:
    """Run a command that must end with 78; return its error message."""
    assert entry(arguments) == 78
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


@pytest.mark.failure("K-01")
@pytest.mark.parametrize(
    ("platform", "variables"),
    [
        ("discord", ["DISCORD_API_TOKEN"]),
        ("telegram", ["TELEGRAM_BOT_TOKEN"]),
        ("x", ["X_API_KEY", "X_API_SECRET", "X_ACCESS_TOKEN", "X_ACCESS_TOKEN_SECRET"]),
    ],
)
def test_a_requested_platform_without_a_token_is_reported_with_its_variable(
    platform: str, variables: list[str], capsys: Err
) -> None:
    output = run_refused(["run", "--only", platform], capsys)
    [line] = [line for line in output.splitlines() if line.startswith(f"  {platform} ")]
    assert all(name in line for name in variables)


@pytest.mark.failure("K-03")
@pytest.mark.parametrize("name", ["SERVER_TOKEN", "DISCORD_API_TOKEN", "TELEGRAM_BOT_TOKEN", "OPENAI_API_KEY"])
def test_a_placeholder_for_a_secret_is_refused_before_anything_starts(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Err
) -> None:
    monkeypatch.setenv(name, "changeme")
    assert f"{name} (in the environment): it is a placeholder" in run_refused(["run"], capsys)


WRONG = {
    "CONVERSATION_LENGTH": "many",  # without it no plugin is loaded
    "OPENAI_BASE_URL": "ftp://x",  # of a plugin
    "APPROVAL": "perhaps",
    "MODEL_RETRIES": "-1",
    "SERVER_PORT": "99999",  # of an adapter
}


@pytest.mark.parametrize("first", range(3), ids=list(WRONG)[:3])
def test_all_wrong_variables_are_named_at_once(first: int, workdir: Path, capsys: Err) -> None:
    values = dict(list(WRONG.items())[first:])
    (workdir / ".env").write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")
    for command in ("run", "chat"):
        lines = run_refused([command], capsys).removeprefix("bot: ").splitlines()
        assert sorted(line.partition(" (in .env): ")[0] for line in lines) == sorted(values)


@pytest.mark.failure("K-12")
def test_a_server_that_cannot_listen_names_the_variable(monkeypatch: pytest.MonkeyPatch, capsys: Err) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("SERVER_PORT", str(taken.getsockname()[1]))
        assert f"SERVER_PORT {taken.getsockname()[1]} is in use" in run_refused(["run"], capsys)
    monkeypatch.setenv("SERVER_HOST", "203.0.113.9")
    assert "SERVER_HOST '203.0.113.9' is not an address of this machine" in run_refused(["run"], capsys)


@pytest.mark.failure("K-18")
def test_an_unwritable_data_folder_is_reported_with_its_variable(monkeypatch: pytest.MonkeyPatch, capsys: Err) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("BOT_DATA_DIR", "/proc/greenroom")  # not even root can write there
    output = run_refused(["run"], capsys)
    assert "/proc/greenroom" in output
    assert "BOT_DATA_DIR" in output


@pytest.mark.failure("K-14")
def test_dependencies_are_pinned_and_aiohttp_has_no_known_vulnerability() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(requirement for some in project["optional-dependencies"].values() for requirement in some),
    ]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower() for requirement in wanted}
    assert names - {"greenroom"} <= set(pinned)
    assert tuple(map(int, pinned["aiohttp"].split("."))) >= (3, 13, 3)
