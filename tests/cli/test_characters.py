"""Characters as commands load them, and what their files refer to."""

import json
import re
from pathlib import Path

import pytest

from bot import Plugin, Turn, action
from bot.cli import characters
from bot.cli.main import entry
from bot.domain.ledger import Outcome
from bot.errors import CharacterError, ConfigError, PluginError, SettingError
from bot.prompts.template_language import compile_template
from bot.prompts.templates import COMMON_VARIABLES, DEFAULTS
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from plugins.bootstrap import plugin as bootstrap
from tests.trust import trust_code


def write(folder: Path, name: str = "Ada", **more: object) -> Path:
    path = folder / f"{name.lower()}.json"
    path.write_text(json.dumps({"name": name, **more}), encoding="utf-8")
    trust_code(folder)
    return path


def test_without_an_option_the_bundled_character_is_loaded() -> None:
    assert characters.load_character_config().path == characters.default_character()
    assert [part.name for part in characters.load_character_configs([])] == ["Marlo"]


def test_several_characters_share_a_process_but_not_their_settings(workdir: Path) -> None:
    first = write(workdir, "Ada", settings={"CONVERSATION_LENGTH": 5})
    ada, bob = characters.load_character_configs([first, write(workdir, "Bob")])
    assert (ada.name, bob.name) == ("Ada", "Bob")
    assert (ada.settings.get("CONVERSATION_LENGTH"), bob.settings.get("CONVERSATION_LENGTH")) == ("5", None)


def test_the_same_character_twice_is_refused(workdir: Path) -> None:
    path = write(workdir)
    with pytest.raises(CharacterError, match="are the same character"):
        characters.load_character_configs([path, path])


def test_a_wrong_setting_of_a_loaded_plugin_is_found_before_anything_starts(workdir: Path) -> None:
    (workdir / ".env").write_text("OPENAI_API_KEY=changeme\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"OPENAI_API_KEY \(in .env\): it is a placeholder"):
        characters.load_character_config(write(workdir))


def test_an_unknown_plugin_gets_a_suggestion(workdir: Path) -> None:
    with pytest.raises(PluginError, match=r"'bootstrop' is not known: did you mean 'bootstrap'"):
        characters.load_character_config(write(workdir, plugins=["bootstrop"]))


@pytest.mark.parametrize("name", ["@elizaos/plugin-near", "/app/src/index.ts"])
def test_a_plugin_of_elizaos_is_only_a_note(workdir: Path, name: str) -> None:
    [note] = characters.load_character_config(write(workdir, plugins=[name])).notes
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
    config = characters.load_character_config(path)
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
    config = characters.load_character_config(write(workdir, plugins=["./mine"]))
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
    config = characters.load_character_config(write(workdir, plugins=["./mine"], settings=settings))
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
    config = characters.load_character_config(write(workdir, settings={**hostile, "STREAMING": False}, secrets=secrets))
    assert config.settings.get("SERVER_HOST") == "127.0.0.2"
    assert config.settings.get("STREAMING") == "false"
    assert not set(config.settings) & {"BOT_DATA_DIR", "LOG_LEVEL", "X_PLAN", "DATABASE_URL", "SERVER_TOKEN"}
    characters.print_notes([config])
    [line] = [text for text in capsys.readouterr().err.splitlines() if "only the operator" in text]
    assert line == (
        "ada.json: only the operator sets SERVER_HOST, BOT_DATA_DIR, LOG_LEVEL, X_PLAN, DATABASE_URL, SERVER_TOKEN: "
        "ignored in the character's file; put into .env what you want of it"
    )


def test_each_character_of_a_process_keeps_its_own_settings(workdir: Path) -> None:
    ada = write(workdir, "Ada", settings={"OPENAI_LARGE_MODEL": "a"}, secrets={"DISCORD_API_TOKEN": "ada-token"})
    bob = write(workdir, "Bob", settings={"OPENAI_LARGE_MODEL": "b"}, secrets={"DISCORD_API_TOKEN": "bob-token"})
    settings = [config.settings for config in characters.load_character_configs([ada, bob])]
    assert [item.get("OPENAI_LARGE_MODEL") for item in settings] == ["a", "b"]
    assert [item.get("DISCORD_API_TOKEN") for item in settings] == ["ada-token", "bob-token"]


def test_plugins_with_circular_requirements_are_refused(workdir: Path) -> None:
    for own, other in (("hen", "egg"), ("egg", "hen")):
        (workdir / f"{own}.py").write_text(
            f"from bot import Plugin\nplugin = Plugin('{own}', requires=['{other}'])\n", encoding="utf-8"
        )
    with pytest.raises(PluginError, match=r"in a circle: (hen → egg → hen|egg → hen → egg)"):
        characters.load_character_config(write(workdir, plugins=["./hen", "./egg"]))


def test_a_plugin_in_the_characters_folder_is_found_from_any_working_directory(workdir: Path) -> None:
    folder = workdir / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text("from bot import Plugin\nplugin = Plugin('mine')\n", encoding="utf-8")
    assert "mine" in [
        plugin.name for plugin in characters.load_character_config(write(folder, plugins=["./mine"])).plugins
    ]


def test_proxies_are_exported_only_from_the_env_file() -> None:
    layers = [
        Layer("the character's settings", {"HTTP_PROXY": "http://evil.example"}, is_operator=False),
        Layer("the environment", {"https_proxy": "http://mine.example"}),
        Layer(".env", {"HTTPS_PROXY": "http://a.example", "NO_PROXY": "b.example", "LOG_LEVEL": "DEBUG"}),
    ]
    environment = {"https_proxy": "http://mine.example"}
    characters.export_network_settings(Settings(layers), environment)
    assert environment == {"https_proxy": "http://mine.example", "NO_PROXY": "b.example"}


def test_ignored_parts_of_a_file_are_printed(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "sk-" + "a1" * 20
    plugins = ["openai", "@elizaos/plugin-telegram", *(f"@elizaos/plugin-none{n}" for n in range(9))]
    part = characters.load_character_config(
        write(workdir, plugins=plugins, settings={"secrets": {"SOME_API_KEY": key}})
    )
    characters.print_notes([part])
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
    part = characters.load_character_config(write(workdir, settings={"secrets": {"WALLET": key}}))
    assert {key, "http://user:hunter2@proxy.example:1"} <= part.secrets


@pytest.mark.failure("K-07")
async def test_changed_files_do_not_affect_a_loaded_character(workdir: Path) -> None:
    file = workdir / "ada.json"
    file.write_text('{"name": "Ada", "plugins": ["offline"]}', encoding="utf-8")
    part = characters.load_character_config(file)
    adapter = RecordingAdapter()
    async with Runtime([part.agent_config]) as runtime:
        await runtime.connect(adapter)
        file.write_text('{"name": ', encoding="utf-8")
        (workdir / ".env").write_text("CONVERSATION_LENGTH=many\n", encoding="utf-8")
        [agent] = runtime.agents
        receipt = await agent.inbox.submit(make_message("Hello", sent_at=agent.agent.clock()))
        assert (await agent.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED

    with pytest.raises(ConfigError):
        characters.load_character_config(file)  # the next start reports the error


Out = pytest.CaptureFixture[str]
BROKEN_PLUGIN = """from bot import Plugin
TEXT = "{{#if x}} never closed"
plugin = Plugin("mine", templates={"mineTemplate": TEXT})
"""


def write_file(folder: Path, text: str, name: str = "ada.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".py":
        trust_code(folder)
    return path


ERRORS = {
    "a missing plugin": ('{"name": "Ada",\n "plugins": ["./dise"]}', r"ada\.json:2:14: plugins\[0\]: .*mean 'dice'\?"),
    "a missing absolute path": ('{"name": "Ada", "plugins": ["/no/such/plugin"]}', r":1:29: plugins\[0\]: .*outside"),
    "an escaping plugin": (
        '{"name": "Ada", "plugins": ["offline", "../../etc/passwd"]}',
        r":1:40: plugins\[1\]: .*out",
    ),
    "a plugin beside the folder": (
        '{"name": "Ada", "plugins": ["../beside"]}',
        r":1:29: .*outside the character's folder",
    ),
    "a broken template": ('{"name": "Ada", "templates": {"spentTemplate": "{{#if x}}"}}', r":1:48: templates\.spent"),
    "a plugin's broken template": (
        '{"name": "Ada", "plugins": ["./mine"]}',
        r"'mine': .*template 'mineTemplate': line 1",
    ),
    "a plugin that is no Python": ('{"name": "Ada", "plugins": ["./text"]}', r"plugin '\./text' cannot be loaded"),
}


@pytest.mark.parametrize(("text", "expected"), ERRORS.values(), ids=ERRORS.keys())
def test_a_check_refuses_what_a_strict_start_refuses(workdir: Path, capsys: Out, text: str, expected: str) -> None:
    folder = workdir / "characters"
    folder.mkdir()
    write_file(folder, "from bot import Plugin\nplugin = Plugin('dice')\n", "dice.py")
    write_file(workdir, "from bot import Plugin\nplugin = Plugin('beside')\n", "beside.py")
    write_file(folder, BROKEN_PLUGIN, "mine.py")
    write_file(folder, "no Python at all", "text.py")
    path = write_file(folder, text)

    assert entry(["character", "check", str(path)]) == 78
    error = capsys.readouterr().err
    assert re.search(expected.replace("'mine': .*template", "'./mine': .*template"), error), error
    with pytest.raises(ConfigError):
        characters.load_character_config(path).require_all_plugins()
    assert entry(["run", "--strict", "-c", str(path)]) == 78


def test_a_broken_template_of_a_loaded_plugin_stops_the_start(workdir: Path) -> None:
    write_file(workdir, BROKEN_PLUGIN.replace('{"mineTemplate": TEXT}', "dict(mineTemplate=TEXT)"), "mine.py")
    with pytest.raises(ConfigError, match="plugin 'mine': template 'mineTemplate': line 1, column 1"):
        characters.load_character_config(write_file(workdir, '{"name": "Ada", "plugins": ["./mine"]}'))


NOTES = {
    "an adapter": ('{"name": "Ada", "adapters": ["discrod"]}', "line 1, column 30: adapters[0]: ", "'discord'"),
    "a client": ('{"name": "Ada", "clients": ["telegrom"]}', "line 1, column 29: clients[0]: ", "'telegram'"),
    "a setting": (
        '{"name": "Ada",\n"settings": {"CONVERSATION_LENGHT": 3}}',
        "line 2, column 37: settings.CONV",
        "CONVERSATION_LENGTH'",
    ),
    "a secret": (
        '{"name": "Ada", "settings": {"OPENAI_APIKEY": "abcdefgh1"}}',
        "line 1, column 47: settings.OPENAI_APIKEY: ",
        "'OPENAI_API_KEY'",
    ),
    "a template of another program": (
        '{"name": "Ada", "templates": {"twitterPostTemplate": "x"}}',
        "line 1, column 54: templates.t",
        "no part of this bot uses a template of this name",
    ),
    "a variable of another program": (
        '{"name": "Ada", "templates": {"spentTemplate": "No,\\n{{lore}}!"}}',
        "line 1, column 54: templates.spentTemplate: {{lore}}",
        "is no variable here",
    ),
    "a variable of the system prompt": (
        '{"name": "Ada", "system": "Be {{agentNam}}."}',
        "line 1, column 31: system: ",
        "'agentName'",
    ),
    "a document": (
        '{"name": "Ada", "knowledge": [{"path": "tide.md"}]}',
        "line 1, column 40: knowledge[0].path: ",
        "'tides.md'",
    ),
    "a folder": (
        '{"name": "Ada", "knowledge": [{"directory": "doc"}]}',
        "line 1, column 45: knowledge[0].directory: ",
        "'docs'",
    ),
    "a document outside": (
        '{"name": "Ada", "knowledge": [{"path": "../../etc/passwd"}]}',
        "line 1, column 40: knowledge[0].path: ",
        "outside the character's folder",
    ),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize(("text", "place", "hint"), NOTES.values(), ids=NOTES.keys())
def test_an_unknown_name_is_noted_by_the_check_and_by_a_start(
    workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch, text: str, place: str, hint: str
) -> None:
    (workdir / "docs").mkdir()
    write_file(workdir, "Low water is at six.", "tides.md")
    path = write_file(workdir, text)
    monkeypatch.setenv("SERVER_PORT", "0")

    assert entry(["character", "check", str(path)]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  warning  ") and hint in line]
    assert place in line
    characters.print_notes([characters.load_character_config(path)])
    assert place in capsys.readouterr().err
    entry(["doctor", "-c", str(path)])
    assert place in capsys.readouterr().out


@pytest.mark.parametrize(
    ("templates", "error"),
    [
        (
            '{"messageHandlrTemplate": "x"}',
            ":1:56: templates.messageHandlrTemplate: no part of this bot uses a template of this name; did you mean "
            "'messageHandlerTemplate'?",
        ),
        (
            '{"spentTemplate": "No,\\n{{usrName}}!"}',
            ":1:54: templates.spentTemplate: {{usrName}} is no variable here and stays empty; did you mean 'userName'?",
        ),
        (
            '{"multiStepDecisionTemplate": "{{iterationCont}}"}',
            ":1:61: templates.multiStepDecisionTemplate: {{iterationCont}} is no variable here and stays empty; "
            "did you mean 'iterationCount'?",
        ),
    ],
)
def test_a_misspelled_template_or_variable_stops_the_check_and_the_start(
    workdir: Path, capsys: Out, templates: str, error: str
) -> None:
    path = write_file(workdir, f'{{"name": "Ada", "templates": {templates}}}')
    assert entry(["character", "check", str(path)]) == 78
    assert error in capsys.readouterr().err
    with pytest.raises(ConfigError, match=re.escape(error)):
        characters.load_character_config(path)


def test_names_of_the_bot_of_a_named_plugin_and_of_elizaos_are_no_warnings(workdir: Path, capsys: Out) -> None:
    plugin = (
        "from bot import Plugin, SettingsModel\n"
        "class Weather(SettingsModel):\n    weather_unit: str = ''\n"
        "plugin = Plugin('mine', settings=Weather, templates={'mineTemplate': '{{degrees}}'})\n"
    )
    write_file(workdir, plugin, "mine.py")
    document = {
        "name": "Ada",
        "plugins": ["./mine", "/app/src/index.ts", "@elizaos/plugin-near"],
        "adapters": ["web", "twitter"],
        "settings": {
            "WEATHER_UNIT": "C",
            "OPENAI_SMALL_MODEL": "m",
            "voice": {"model": "x"},
            "avatar": "robin.png",
            "secrets": {"MY_KEY": ""},
        },
        "templates": {**DEFAULTS, "mineTemplate": "{{degrees}}"},
        "knowledge": ["A text."],
    }
    path = write_file(workdir, json.dumps(document))
    config = characters.load_character_config(path)
    assert config.loaded.report.warnings == ()


@pytest.mark.parametrize(
    ("template", "lacking"),
    [
        ("evaluationTemplate", ["the form of the answer", "the known facts", "the conversation"]),
        ("reflectionTemplate", ["the form of the answer", "the known facts", "the conversation"]),
        ("continueTemplate", ["the requested providers", "the form of the answer"]),
        ("messageHandlerTemplate", ["the conversation", "the form of the answer"]),
        ("shouldRespondTemplate", ["the conversation", "the form of the answer"]),
        ("imageDescriptionTemplate", ["the form of the answer"]),
    ],
)
def test_the_check_names_what_is_appended_to_a_template(
    workdir: Path, capsys: Out, template: str, lacking: list[str]
) -> None:
    path = write_file(workdir, json.dumps({"name": "Ada", "templates": {template: "<task>As {{agentName}}</task>"}}))
    assert entry(["character", "check", str(path)]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "what it lacks is appended" in line]
    assert line.startswith("  warning  ")
    assert f"templates.{template}: " in line
    assert re.findall(r"(?:: |, )(the [\w ]+) \(", line) == lacking


@pytest.mark.long
def test_an_unused_file_of_many_unknown_names_is_checked_quickly(workdir: Path) -> None:
    document = {
        "name": "Ada",
        "settings": {f"SETTING_{number}": "x" for number in range(1_000)},
        "adapters": [f"adapter {number}" for number in range(1_000)],
        "templates": {f"template {number}": "{{x}}" for number in range(1_000)},
    }
    config = characters.load_character_config(write_file(workdir, json.dumps(document)))
    assert len(config.loaded.report.warnings) == 3 * 40
    assert characters.add_reference_notes(config.path, config.loaded).path == config.path


async def test_the_variables_that_are_known_are_those_that_a_turn_has() -> None:
    seen: set[str] = set()

    @action("LOOK", "Look at the values.")
    async def look(turn: Turn) -> None:
        seen.update(turn.state.values)

    model = ScriptedModel([model_answer(actions=["LOOK"])])
    async with running_agent(Plugin("looking", actions=[look]), model=model) as harness:
        await harness.send("hi")
    assert {"agentName", "time", "providers"} <= seen
    assert seen <= COMMON_VARIABLES
    templates = {**DEFAULTS, **bootstrap.templates}
    assert all(compile_template(text) for text in templates.values())
