"""The programs of the package, and what they need of the operating system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bot.cli.main

ROOT = Path(__file__).parents[2]

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
