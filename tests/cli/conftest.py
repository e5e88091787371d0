"""An empty working directory for every command, without this machine's variables."""

import os
from pathlib import Path

import pytest

BOT_VARIABLE_PREFIXES = (
    "OPENAI_",
    "DISCORD_",
    "MATRIX_",
    "TELEGRAM_",
    "X_",
    "BOT_",
    "LOG_",
    "SERVER_",
    "HTTP",
    "NO_PROXY",
    "SSL_",
    "CONSOLE_",
    "DATABASE_",
    "POSTGRES_",
    "SQL_",
    "REGISTRY_",
)


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder and unset all variables of the bot; return the folder."""
    for name in os.environ:
        if name.upper().startswith(BOT_VARIABLE_PREFIXES):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
