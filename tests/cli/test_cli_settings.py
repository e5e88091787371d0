"""`bot settings`: the list of variables and the example file."""

import json
import re
import sys
from pathlib import Path

import pytest

from bot.cli.commands.settings import build_owner_table
from bot.cli.main import entry
from bot.cli.plugins import describe_bundled_plugins
from bot.cli.variables import find_settings_groups, list_variables
from bot.plugin_system.loading import DESCRIPTIONS
from bot.settings import load_settings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / ".env.example"
# Whatever a model declares, a character's file never sets these: where the bot listens, writes and connects to, what
# it may spend, whom it obeys.
ALWAYS_OPERATOR = re.compile(
    r"SERVER_\w+|\w*DATABASE\w*|POSTGRES\w*|SQL_\w+|BOT_\w+|LOG_\w+|\w+_URL|\w*PROX\w+|SSL_\w+|\w*BUDGET\w*"
    r"|MESSAGES_PER_\w+|\w+_(?:HOST|PORT|HOSTS|CAP|OPERATORS|PLAN|DIR|PATH|FILE)|\w+_MONTHLY_\w+|MCP\w*|X_DRY_RUN|MODEL_PRICES"
)


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


def test_the_description_of_bundled_plugins_is_what_they_are() -> None:
    assert describe_bundled_plugins() == DESCRIPTIONS.read_text(encoding="utf-8"), (
        "a plugin has changed: run `PYTHONPATH=. python .ci/describe_plugins.py`"
    )


def test_the_variables_of_plugins_are_the_same_without_importing_them() -> None:
    imported, described = (
        {group.name: group.model for group in find_settings_groups(imports_others=how)[0]} for how in (True, False)
    )
    assert {name: list(list_variables(model)) for name, model in described.items()} == {
        name: list(list_variables(model)) for name, model in imported.items()
    }


def test_the_table_of_owners_is_the_documented_table() -> None:
    groups, _ = find_settings_groups()
    assert build_owner_table(groups) in (ROOT / "docs" / "characters.md").read_text(encoding="utf-8"), (
        "who sets a variable has changed: copy the output of `bot settings --owners` into docs/characters.md"
    )


def test_every_model_of_this_distribution_declares_what_a_character_file_sets() -> None:
    groups, _ = find_settings_groups()
    assert [group.name for group in groups if group.model.CHARACTER_SETTINGS is None] == []


def test_no_place_to_connect_to_no_limit_and_no_authority_is_set_by_a_character_file() -> None:
    groups, _ = find_settings_groups()
    variables = [variable for group in groups for variable in list_variables(group.model)]
    assert [item.name for item in variables if item.is_character_setting and ALWAYS_OPERATOR.fullmatch(item.name)] == []


def test_a_file_that_sets_every_variable_changes_only_its_own(workdir: Path) -> None:
    groups, _ = find_settings_groups()
    models = [group.model for group in groups]
    variables = [variable for model in models for variable in list_variables(model)]
    values = {variable.name: "http://evil.example:1" for variable in variables}
    settings = load_settings(values, values, environment={}).with_models(*models)
    own = {variable.name for variable in variables if variable.is_character_setting}
    assert set(settings) == own
    assert set(settings.ignored_names) == set(values) - own
    for model in models:
        if not own.intersection(item.name for item in list_variables(model)):
            assert settings.load(model) == model()


def test_settings_of_a_file_that_belong_to_the_operator_are_named_once(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"SERVER_HOST": "0.0.0.0", "CONVERSATION_LENGTH": 7, "secrets": {"SERVER_TOKEN": "the-attackers-token"}}
    (workdir / "ada.json").write_text(json.dumps({"name": "Ada", "settings": values}), encoding="utf-8")
    assert entry(["settings", "-c", "ada.json"]) == 0
    output = capsys.readouterr()
    assert "SERVER_HOST = 127.0.0.1  (default)" in output.out
    assert "SERVER_TOKEN = (not set)" in output.out
    assert "CONVERSATION_LENGTH = 7  (from the character's settings)" in output.out
    assert output.err == (
        "only the operator sets SERVER_HOST, SERVER_TOKEN: ignored in the character's file; put into .env what you "
        "want of it\n"
    )


def test_every_variable_has_a_description_and_a_single_owner() -> None:
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


def test_variables_of_a_plugin_whose_package_is_not_installed_are_listed_without_a_notice(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "eth_account", None)  # makes the import fail
    monkeypatch.delitem(sys.modules, "plugins.evm", raising=False)
    assert entry(["settings"]) == 0
    printed = capsys.readouterr()
    assert "EVM_PRIVATE_KEY" in printed.out
    assert printed.err == ""
    assert entry(["doctor"]) == 0
    assert "all well-formed" in capsys.readouterr().out


def test_several_errors_of_a_file_are_printed_line_by_line(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "bad.json").write_text(json.dumps({"name": "Ada", "bio": {"a": 1}, "topics": {"b": 2}}))
    assert entry(["settings", "-c", "bad.json"]) == 78
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("variables of its own plugins are not listed: bad.json:")
    assert "\\n" not in first
    assert "topics:" in second


def test_variables_of_the_plugins_of_a_character_are_listed(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "weather.py").write_text(
        "from bot import Plugin, SettingsModel\n\n\n"
        "class WeatherSettings(SettingsModel):\n    weather_city: str = 'Graz'\n\n\n"
        "PLUGIN = Plugin('weather', settings=WeatherSettings)\n"
    )
    (workdir / "mine.json").write_text(json.dumps({"name": "Ada", "plugins": ["./weather.py"]}))
    assert entry(["settings", "-c", "mine.json"]) == 0
    printed = capsys.readouterr()
    assert "variables of its own plugins are not listed" in printed.err
    assert "bot character trust" in printed.err

    assert entry(["character", "trust", "mine.json"]) == 0
    capsys.readouterr()
    assert entry(["settings", "-c", "mine.json", "--json"]) == 0
    names = {variable["name"] for variable in json.loads(capsys.readouterr().out)["variables"]}
    assert {"WEATHER_CITY", "LOG_LEVEL"} <= names
