"""`bot settings`: the list of variables and the example file."""

from pathlib import Path

import pytest

from bot.cli.main import entry
from bot.cli.variables import find_settings_groups, list_variables
from bot.settings import load_settings

EXAMPLE = Path(__file__).parents[2] / ".env.example"


def test_the_committed_example_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["settings", "--example"]) == 0
    assert capsys.readouterr().out == EXAMPLE.read_text(encoding="utf-8"), (
        "variables have changed: run `bot settings --example > .env.example`"
    )


def test_the_example_sets_nothing_and_uncommented_sets_the_defaults(workdir: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if line and not line.startswith("#")]
    groups, _ = find_settings_groups()
    names = [variable.name for group in groups for variable in list_variables(group.model)]
    for name in names:
        text = text.replace(f"# {name}=", f"{name}=")
    (workdir / ".env").write_text(text, encoding="utf-8")
    settings = load_settings(environment={})
    for group in groups:
        assert settings.load(group.model) == group.model()


def test_every_variable_has_a_description_and_one_owner() -> None:
    groups, problems = find_settings_groups()
    found = [variable for group in groups for variable in list_variables(group.model)]
    assert [variable.name for variable in found if not variable.description] == []
    assert len({variable.name for variable in found}) == len(found)
    assert problems == []


def test_a_value_is_shown_with_its_source_and_a_secret_is_not(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVERSATION_LENGTH", "7")
    text = "OPENAI_API_KEY=sk-abcdefghijklmnop\nHTTPS_PROXY=http://user:hunter2@proxy.example:1\n"
    (workdir / ".env").write_text(text, encoding="utf-8")
    assert entry(["settings"]) == 0
    out = capsys.readouterr().out
    assert "CONVERSATION_LENGTH = 7  (from the environment)" in out
    assert "OPENAI_API_KEY = (set, not shown)  (from .env)" in out
    assert "LOG_LEVEL = INFO  (default)" in out
    assert "sk-abc" not in out
    assert "hunter2" not in out


def test_a_characters_own_settings_have_their_own_source(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "ada.json").write_text('{"name": "Ada", "settings": {"USE_MULTI_STEP": true}}', encoding="utf-8")
    assert entry(["settings", "-c", "ada.json"]) == 0
    assert "USE_MULTI_STEP = true  (from the character's settings)" in capsys.readouterr().out
