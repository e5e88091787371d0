"""`bot token`: create, list and revoke."""

import json
from pathlib import Path

import pytest

from bot.adapter.access_tokens import AccessTokens
from bot.cli.main import entry

Out = pytest.CaptureFixture[str]


def create(capsys: Out, *options: str) -> str:
    assert entry(["token", "new", *options]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    return text.strip()


@pytest.mark.parametrize("scope", ["operator", "read_only", "chat"])
def test_a_new_token_is_printed_once_and_stored_hashed(workdir: Path, capsys: Out, scope: str) -> None:
    text = create(capsys, "--scope", scope, "--name", "kim")
    token = AccessTokens(workdir / "data").find_by_text(text)
    assert token is not None
    assert (token.name, token.scope.value) == ("kim", scope)
    assert entry(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert listed.split() == [token.id, scope, *token.created_at.astimezone().strftime("%Y-%m-%d %H:%M").split(), "kim"]
    assert not [path for path in (workdir / "data").rglob("*.*") if text in path.read_text()]


def test_revoking_by_id_or_name_ends_a_token(workdir: Path, capsys: Out) -> None:
    tokens = AccessTokens(workdir / "data")
    first, second = create(capsys, "--scope", "chat"), create(capsys, "--scope", "chat", "--name", "kim")
    token = tokens.find_by_text(first)
    assert token is not None
    assert entry(["token", "revoke", token.id]) == 0
    assert entry(["token", "revoke", "kim"]) == 0
    assert (tokens.find_by_text(first), tokens.find_by_text(second)) == (None, None)
    capsys.readouterr()
    assert entry(["token", "list"]) == 0
    assert capsys.readouterr().out.startswith("there are no tokens besides the server's own")
    assert entry(["token", "revoke", "kim"]) == 78
    assert "there is no token 'kim'" in capsys.readouterr().err


def test_json_and_the_data_folder_of_the_settings(workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_DATA_DIR", str(workdir / "elsewhere"))
    assert entry(["token", "new", "--scope", "read_only", "--json"]) == 0
    created = json.loads(capsys.readouterr().out)
    assert AccessTokens(workdir / "elsewhere").find_by_text(created.pop("token")) is not None
    assert entry(["token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": [created]}
    assert created["name"] == f"read_only-{created['id'][:4]}"


def test_a_scope_is_required_and_names_are_unique(capsys: Out) -> None:
    assert entry(["token", "new"]) == 2
    create(capsys, "--scope", "chat", "--name", "kim")
    for name in ("kim", "a\nb", "x" * 65):
        assert entry(["token", "new", "--scope", "chat", "--name", name]) == 78
