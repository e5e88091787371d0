"""A wrong configuration ends the start at once with one line that names the problem and the remedy."""

import re
import socket
import tomllib
from pathlib import Path

import pytest

from bot.cli.main import entry

ROOT = Path(__file__).parents[2]
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
