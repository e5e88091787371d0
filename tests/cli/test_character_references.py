"""`bot character check` and `bot run` report the same about what a character's file refers to."""

import json
import re
from pathlib import Path

import pytest

from bot import Plugin, Turn, action
from bot.cli.characters import add_reference_notes, load_character_config, print_notes
from bot.cli.main import entry
from bot.errors import ConfigError
from bot.prompts.template_language import compile_template
from bot.prompts.templates import COMMON_VARIABLES, DEFAULTS
from bot.testing import ScriptedModel, model_answer, running_agent
from plugins.bootstrap import plugin as bootstrap
from tests.trust import trust_code

Out = pytest.CaptureFixture[str]
BROKEN_PLUGIN = """from bot import Plugin
TEXT = "{{#if x}} never closed"
plugin = Plugin("mine", templates={"mineTemplate": TEXT})
"""


def write(folder: Path, text: str, name: str = "ada.json") -> Path:
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
    write(folder, "from bot import Plugin\nplugin = Plugin('dice')\n", "dice.py")
    write(workdir, "from bot import Plugin\nplugin = Plugin('beside')\n", "beside.py")
    write(folder, BROKEN_PLUGIN, "mine.py")
    write(folder, "no Python at all", "text.py")
    path = write(folder, text)

    assert entry(["character", "check", str(path)]) == 78
    error = capsys.readouterr().err
    assert re.search(expected.replace("'mine': .*template", "'./mine': .*template"), error), error
    with pytest.raises(ConfigError):
        load_character_config(path).require_all_plugins()
    assert entry(["run", "--strict", "-c", str(path)]) == 78


def test_a_broken_template_of_a_loaded_plugin_stops_the_start(workdir: Path) -> None:
    write(workdir, BROKEN_PLUGIN.replace('{"mineTemplate": TEXT}', "dict(mineTemplate=TEXT)"), "mine.py")
    with pytest.raises(ConfigError, match="plugin 'mine': template 'mineTemplate': line 1, column 1"):
        load_character_config(write(workdir, '{"name": "Ada", "plugins": ["./mine"]}'))


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
    write(workdir, "Low water is at six.", "tides.md")
    path = write(workdir, text)
    monkeypatch.setenv("SERVER_PORT", "0")

    assert entry(["character", "check", str(path)]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  warning  ") and hint in line]
    assert place in line
    print_notes([load_character_config(path)])
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
    path = write(workdir, f'{{"name": "Ada", "templates": {templates}}}')
    assert entry(["character", "check", str(path)]) == 78
    assert error in capsys.readouterr().err
    with pytest.raises(ConfigError, match=re.escape(error)):
        load_character_config(path)


def test_names_of_the_bot_of_a_named_plugin_and_of_elizaos_are_no_warnings(workdir: Path, capsys: Out) -> None:
    plugin = (
        "from bot import Plugin, SettingsModel\n"
        "class Weather(SettingsModel):\n    weather_unit: str = ''\n"
        "plugin = Plugin('mine', settings=Weather, templates={'mineTemplate': '{{degrees}}'})\n"
    )
    write(workdir, plugin, "mine.py")
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
    path = write(workdir, json.dumps(document))
    config = load_character_config(path)
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
    path = write(workdir, json.dumps({"name": "Ada", "templates": {template: "<task>As {{agentName}}</task>"}}))
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
    config = load_character_config(write(workdir, json.dumps(document)))
    assert len(config.loaded.report.warnings) == 3 * 40
    assert add_reference_notes(config.path, config.loaded).path == config.path


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
