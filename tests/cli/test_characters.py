"""Loading the characters named by the options."""

import json
from pathlib import Path

import pytest

from bot.cli.characters import (
    default_character,
    export_network_settings,
    load_character_config,
    load_character_configs,
    print_notes,
)
from bot.cli.main import entry
from bot.domain.ledger import Outcome
from bot.errors import CharacterError, ConfigError, PluginError, SettingError
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.testing import RecordingAdapter, make_message
from tests.trust import trust_code


def write(folder: Path, name: str = "Ada", **more: object) -> Path:
    path = folder / f"{name.lower()}.json"
    path.write_text(json.dumps({"name": name, **more}), encoding="utf-8")
    trust_code(folder)
    return path


def test_without_an_option_the_bundled_character_is_loaded() -> None:
    assert load_character_config().path == default_character()
    assert [part.name for part in load_character_configs([])] == ["Marlo"]


def test_several_characters_share_a_process_but_not_their_settings(workdir: Path) -> None:
    first = write(workdir, "Ada", settings={"CONVERSATION_LENGTH": 5})
    ada, bob = load_character_configs([first, write(workdir, "Bob")])
    assert (ada.name, bob.name) == ("Ada", "Bob")
    assert (ada.settings.get("CONVERSATION_LENGTH"), bob.settings.get("CONVERSATION_LENGTH")) == ("5", None)


def test_the_same_character_twice_is_refused(workdir: Path) -> None:
    path = write(workdir)
    with pytest.raises(CharacterError, match="are the same character"):
        load_character_configs([path, path])


def test_a_wrong_setting_of_a_loaded_plugin_is_found_before_anything_starts(workdir: Path) -> None:
    (workdir / ".env").write_text("OPENAI_API_KEY=changeme\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"OPENAI_API_KEY \(in .env\): it is a placeholder"):
        load_character_config(write(workdir))


def test_an_unknown_plugin_gets_a_suggestion(workdir: Path) -> None:
    with pytest.raises(PluginError, match=r"'bootstrop' is not known: did you mean 'bootstrap'"):
        load_character_config(write(workdir, plugins=["bootstrop"]))


@pytest.mark.parametrize("name", ["@elizaos/plugin-near", "/app/src/index.ts"])
def test_a_plugin_of_elizaos_is_only_a_note(workdir: Path, name: str) -> None:
    [note] = load_character_config(write(workdir, plugins=[name])).notes
    assert note.startswith(f"{name}: ")


def test_plugins_of_elizaos_given_as_objects_are_read_as_their_names(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [
        {"name": "web-search", "package": "@elizaos/plugin-web-search", "description": "Searches."},
        {"name": "offline", "package": "@elizaos/plugin-offline"},
        {"package": "@elizaos/plugin-near"},
    ]
    path = write(workdir, plugins=objects)
    assert entry(["character", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "plugins[0]: an object read as its name, web-search" in out
    assert "plugins[2]: an object read as its package, @elizaos/plugin-near" in out
    config = load_character_config(path)
    assert "offline" in [plugin.name for plugin in config.plugins]
    assert [note.split(":")[0] for note in config.notes[:2]] == ["web-search", "@elizaos/plugin-near"]


LIST_PLUGIN = """from bot import Plugin, SettingsModel
class Mine(SettingsModel):
    mine_words: list[str] = []
    mine_numbers: list[int] | None = None
    mine_names: set[str] = set()
    mine_pair: tuple[str, ...] = ()
plugin = Plugin("mine", settings=Mine)
"""


@pytest.mark.parametrize("text", ["a,b", " a , b ", '["a", "b"]', "['a', 'b']", "[a, b]"])
def test_a_list_in_the_settings_of_a_plugin_is_read_from_commas_and_from_json(workdir: Path, text: str) -> None:
    (workdir / "mine.py").write_text(LIST_PLUGIN, encoding="utf-8")
    lines = [f"{name}={text}" for name in ("MINE_WORDS", "MINE_NAMES", "MINE_PAIR")]
    (workdir / ".env").write_text("\n".join([*lines, "MINE_NUMBERS=[1,2]"]), encoding="utf-8")
    config = load_character_config(write(workdir, plugins=["./mine"]))
    [model] = [plugin.settings for plugin in config.plugins if plugin.name == "mine"]
    assert model is not None
    values = config.settings.load(model).model_dump()
    assert values == {
        "mine_words": ["a", "b"],
        "mine_numbers": [1, 2],
        "mine_names": {"a", "b"},
        "mine_pair": ("a", "b"),
    }


def test_a_list_in_the_settings_of_a_character_keeps_what_json_keeps(workdir: Path) -> None:
    (workdir / "mine.py").write_text(LIST_PLUGIN, encoding="utf-8")
    settings = {"MINE_WORDS": '["a,b", "c"]', "MINE_NUMBERS": [3], "MINE_NAMES": ["x", "y"]}
    config = load_character_config(write(workdir, plugins=["./mine"], settings=settings))
    [model] = [plugin.settings for plugin in config.plugins if plugin.name == "mine"]
    assert model is not None
    values = config.settings.load(model).model_dump()
    assert values == {"mine_words": ["a,b", "c"], "mine_numbers": [3], "mine_names": {"x", "y"}, "mine_pair": ()}


def test_settings_of_the_operator_in_a_file_are_ignored_with_a_single_line(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_HOST", "127.0.0.2")
    hostile = {"SERVER_HOST": "0.0.0.0", "BOT_DATA_DIR": "/tmp/theirs", "LOG_LEVEL": "DEBUG", "X_PLAN": "pro"}
    secrets = {"DATABASE_URL": "sqlite:////tmp/theirs.db", "SERVER_TOKEN": "the-attackers-token"}
    config = load_character_config(write(workdir, settings={**hostile, "STREAMING": False}, secrets=secrets))
    assert config.settings.get("SERVER_HOST") == "127.0.0.2"
    assert config.settings.get("STREAMING") == "false"
    assert not set(config.settings) & {"BOT_DATA_DIR", "LOG_LEVEL", "X_PLAN", "DATABASE_URL", "SERVER_TOKEN"}
    print_notes([config])
    [line] = [text for text in capsys.readouterr().err.splitlines() if "only the operator" in text]
    assert line == (
        "ada.json: only the operator sets SERVER_HOST, BOT_DATA_DIR, LOG_LEVEL, X_PLAN, DATABASE_URL, SERVER_TOKEN: "
        "ignored in the character's file; put into .env what you want of it"
    )


def test_each_character_of_a_process_keeps_its_own_settings(workdir: Path) -> None:
    ada = write(workdir, "Ada", settings={"OPENAI_LARGE_MODEL": "a"}, secrets={"DISCORD_API_TOKEN": "ada-token"})
    bob = write(workdir, "Bob", settings={"OPENAI_LARGE_MODEL": "b"}, secrets={"DISCORD_API_TOKEN": "bob-token"})
    settings = [config.settings for config in load_character_configs([ada, bob])]
    assert [item.get("OPENAI_LARGE_MODEL") for item in settings] == ["a", "b"]
    assert [item.get("DISCORD_API_TOKEN") for item in settings] == ["ada-token", "bob-token"]


def test_plugins_with_circular_requirements_are_refused(workdir: Path) -> None:
    for own, other in (("hen", "egg"), ("egg", "hen")):
        (workdir / f"{own}.py").write_text(
            f"from bot import Plugin\nplugin = Plugin('{own}', requires=['{other}'])\n", encoding="utf-8"
        )
    with pytest.raises(PluginError, match=r"in a circle: (hen → egg → hen|egg → hen → egg)"):
        load_character_config(write(workdir, plugins=["./hen", "./egg"]))


def test_a_plugin_in_the_characters_folder_is_found_from_any_working_directory(workdir: Path) -> None:
    folder = workdir / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text("from bot import Plugin\nplugin = Plugin('mine')\n", encoding="utf-8")
    assert "mine" in [plugin.name for plugin in load_character_config(write(folder, plugins=["./mine"])).plugins]


def test_proxies_are_exported_only_from_the_env_file() -> None:
    layers = [
        Layer("the character's settings", {"HTTP_PROXY": "http://evil.example"}, is_operator=False),
        Layer("the environment", {"https_proxy": "http://mine.example"}),
        Layer(".env", {"HTTPS_PROXY": "http://a.example", "NO_PROXY": "b.example", "LOG_LEVEL": "DEBUG"}),
    ]
    environment = {"https_proxy": "http://mine.example"}
    export_network_settings(Settings(layers), environment)
    assert environment == {"https_proxy": "http://mine.example", "NO_PROXY": "b.example"}


def test_ignored_parts_of_a_file_are_printed(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "sk-" + "a1" * 20
    plugins = ["openai", "@elizaos/plugin-telegram", *(f"@elizaos/plugin-none{n}" for n in range(9))]
    part = load_character_config(write(workdir, plugins=plugins, settings={"secrets": {"SOME_API_KEY": key}}))
    print_notes([part])
    out, err = capsys.readouterr()
    assert out == ""
    assert key not in err
    assert "it contains secrets (line 1)" in err
    assert "plugin openai is off: set OPENAI_API_KEY" in err
    assert "telegram is an adapter here" in err
    assert err.splitlines()[-1].endswith("more: bot character check " + str(part.path))
    assert len(err.splitlines()) <= 9


def test_every_secret_is_removed_from_the_logs(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "")  # restores the variable after the test
    key = "sk-" + "b2" * 20
    (workdir / ".env").write_text("HTTPS_PROXY=http://user:hunter2@proxy.example:1\n", encoding="utf-8")
    part = load_character_config(write(workdir, settings={"secrets": {"WALLET": key}}))
    assert {key, "http://user:hunter2@proxy.example:1"} <= part.secrets


@pytest.mark.failure("K-07")
async def test_changed_files_do_not_affect_a_loaded_character(workdir: Path) -> None:
    file = workdir / "ada.json"
    file.write_text('{"name": "Ada", "plugins": ["offline"]}', encoding="utf-8")
    part = load_character_config(file)
    adapter = RecordingAdapter()
    async with Runtime([part.agent_config]) as runtime:
        await runtime.connect(adapter)
        file.write_text('{"name": ', encoding="utf-8")
        (workdir / ".env").write_text("CONVERSATION_LENGTH=many\n", encoding="utf-8")
        [agent] = runtime.agents
        receipt = await agent.inbox.submit(make_message("Hello", sent_at=agent.agent.clock()))
        assert (await agent.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED

    with pytest.raises(ConfigError):
        load_character_config(file)  # the next start reports the error
