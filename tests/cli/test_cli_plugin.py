"""`bot plugin` and `bot adapter`."""

import json
import sys
from pathlib import Path

import pytest

from bot.cli.characters import list_platforms, load_character_config
from bot.cli.main import entry
from bot.cli.operator import with_operator_tools
from bot.errors import CharacterError, PluginError
from bot.plugin_system.loading import bundled_plugins, find_plugin
from bot.plugin_system.registry import Registry
from bot.runtime.agent_runtime import run_agent
from tests.trust import trust_code, write_clashing_plugins

Out = pytest.CaptureFixture[str]


def write(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(
        "from bot import ActionResult, Plugin, ProviderResult, action, provider\n" + body, encoding="utf-8"
    )
    trust_code(folder)
    return f"./{name}"


def test_the_list_shows_components_and_why_plugins_are_off(capsys: Out) -> None:
    assert entry(["plugin", "list"]) == 0
    out = capsys.readouterr().out
    assert "bootstrap    on " in out
    assert "providers: CHARACTER" in out
    assert "openai       off" in out
    assert "off because a setting is missing: set OPENAI_API_KEY" in out


def test_a_local_plugin_of_the_character_is_listed(workdir: Path, capsys: Out) -> None:
    write(workdir, "mine", "plugin = Plugin('mine', 'Does nothing.')")
    (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["./mine"]}', encoding="utf-8")
    assert entry(["plugin", "list", "-c", "ada.json"]) == 0
    assert "mine         on   Does nothing." in capsys.readouterr().out


@pytest.mark.failure("H-16")
def test_a_third_party_plugin_is_listed_with_package_and_version(
    workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workdir, "weather_pkg", "plugin = Plugin('weather', 'Tells the weather.')")
    info = workdir / "weather_pkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-pkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[greenroom.plugins]\nweather = weather_pkg:plugin\n")
    monkeypatch.syspath_prepend(workdir)
    monkeypatch.delitem(sys.modules, "weather_pkg", raising=False)
    assert entry(["plugin", "list"]) == 0
    captured = capsys.readouterr().out
    assert "installed with weather-pkg 1.0: weather_pkg:plugin" in captured
    assert "installed with greenroom" not in captured


@pytest.mark.parametrize("name", ["bootstrap", "offline", "openai"])
def test_the_bundled_plugins_pass_the_check(name: str, capsys: Out) -> None:
    assert entry(["plugin", "check", name]) == 0
    assert "fail" not in capsys.readouterr().out


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", [plugin.name for plugin in bundled_plugins()])
def test_every_bundled_plugin_passes_the_contract(name: str, capsys: Out) -> None:
    code = entry(["plugin", "test", name])
    assert "fail" not in (out := capsys.readouterr().out)
    assert "ok    contract   the model is told what it needs to know" in out
    assert code == 0


@pytest.mark.long
def test_a_new_plugin_passes_its_check_and_its_test(workdir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert entry(["plugin", "new", "lucky_dice"]) == 0
    assert sorted(str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()) == [
        "data/trusted-plugins.json",
        "lucky_dice/README.md",
        "lucky_dice/greenroom_lucky_dice/__init__.py",
        "lucky_dice/pyproject.toml",
        "lucky_dice/tests/test_lucky_dice.py",
    ]
    assert entry(["plugin", "check", "./lucky_dice"]) == 0
    out = capfd.readouterr().out
    assert "actions: ROLL_LUCKY_DICE" in out
    assert "warn" not in out
    assert entry(["plugin", "test", "./lucky_dice"]) == 0
    out = capfd.readouterr().out
    assert "2 passed" in out
    assert "ok    contract   names are valid and not taken" in out
    assert "warn" not in out


@pytest.mark.long
def test_a_new_plugin_may_be_a_single_file(workdir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert entry(["plugin", "new", "--single-file", "dice"]) == 0
    assert sorted(path.name for path in workdir.iterdir()) == ["data", "dice.py", "test_dice.py"]
    (workdir / "bot.py").write_text("raise SystemExit('imported instead of the core')", encoding="utf-8")
    assert entry(["plugin", "test", "./dice"]) == 0
    assert "2 passed" in capfd.readouterr().out


@pytest.mark.long
def test_a_plugin_that_breaks_the_contract_or_fails_a_test_fails(
    workdir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "@action('ACT', 'Act.')\nasync def act(turn):\n    return None\nplugin = Plugin('mine', actions=[act])"
    name = write(workdir, "mine", body)
    assert entry(["plugin", "test", name]) == 78
    out = capfd.readouterr().out
    assert "ACT changes something and does not say who must want it" in out
    assert "warn  tests      mine has no tests of its own" in out
    name = write(workdir, "yours", "plugin = Plugin('yours', 'Nothing.')")
    (workdir / "test_yours.py").write_text("def test_it():\n    assert False\n", encoding="utf-8")
    assert entry(["plugin", "test", name]) == 78
    assert "1 failed" in capfd.readouterr().out


def test_a_plugin_that_changed_is_tested_only_when_it_is_trusted_again(workdir: Path, capsys: Out) -> None:
    name = write(workdir, "mine", "plugin = Plugin('mine', 'Nothing.')")
    (workdir / "mine.py").write_text("from bot import Plugin\nplugin = Plugin('mine', 'New.')\n", encoding="utf-8")
    assert entry(["plugin", "test", name]) == 78
    assert "has changed since you trusted it" in capsys.readouterr().err
    assert entry(["plugin", "test", "--trust", name]) == 0


def test_a_project_without_an_entry_point_is_refused(workdir: Path, capsys: Out) -> None:
    (workdir / "mine").mkdir()
    (workdir / "mine" / "pyproject.toml").write_text("[project]\nname = 'mine'\n", encoding="utf-8")
    assert entry(["plugin", "test", "./mine"]) == 78
    assert "must have one entry point in the group 'greenroom.plugins', it has 0" in capsys.readouterr().err


TESTED = """
from bot.plugin_system import PluginTest, PluginTestSuite

async def greets(harness):
    await harness.send("Hello")
    assert harness.texts == ["{answer}"]

plugin = Plugin("tested", tests=[PluginTestSuite("greetings", [PluginTest("it greets", greets)])])
"""


@pytest.mark.parametrize(("answer", "passes"), [("Hello.", True), ("Ahoy.", False)])
def test_the_tests_of_a_plugin_are_run_with_its_check_and_its_files(
    workdir: Path, capsys: Out, answer: str, passes: bool
) -> None:
    name = write(workdir, "tested", TESTED.replace("{answer}", answer))
    assert entry(["plugin", "test", name]) == (0 if passes else 78)
    out = capsys.readouterr().out
    assert ("ok    test       greetings: it greets" in out) is passes
    assert ("fail  test       greetings: it greets: AssertionError" in out) is not passes


def test_a_broken_plugin_is_not_tested_and_a_plugin_without_tests_is_reported(workdir: Path, capsys: Out) -> None:
    assert entry(["plugin", "test", write(workdir, "odd", "plugin = Plugin('odd', services=[int])")]) == 78
    assert "is not a Service" in capsys.readouterr().out
    assert entry(["plugin", "test", write(workdir, "plain", "plugin = Plugin('plain')")]) == 0
    assert "warn  tests      plain has no tests of its own" in capsys.readouterr().out


def test_tests_of_the_project_in_which_a_plugin_lies_are_not_its_tests(workdir: Path, capsys: Out) -> None:
    (workdir / "pyproject.toml").write_text("[project]\nname = 'other'\n", encoding="utf-8")
    (workdir / "tests").mkdir()
    (workdir / "tests" / "test_other.py").write_text("def test_other():\n    assert False\n", encoding="utf-8")
    assert entry(["plugin", "test", write(workdir, "plain", "plugin = Plugin('plain')")]) == 0
    assert "warn  tests      plain has no tests of its own" in capsys.readouterr().out


def test_nothing_is_overwritten(workdir: Path, capsys: Out) -> None:
    (workdir / "test_mine.py").write_text("mine", encoding="utf-8")
    assert entry(["plugin", "new", "--single-file", "mine"]) == 78
    assert [path.name for path in workdir.iterdir()] == ["test_mine.py"]
    assert "test_mine.py exist already" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--single-file"]], ids=["package", "single file"])
def test_new_plugins_can_be_used_together(workdir: Path, capsys: Out, arguments: list[str]) -> None:
    paths = []
    for name in ("one", "two"):
        assert entry(["plugin", "new", *arguments, name]) == 0
        paths.append(f"./{name}" if arguments else f"./{name}/greenroom_{name}")
    plugins = [find_plugin(path) for path in paths]
    components = Registry([plugin for plugin in plugins if plugin is not None])
    assert sorted(components.actions) == ["ROLL_ONE", "ROLL_TWO"]
    assert sorted(components.providers) == ["LAST_ONE", "LAST_TWO"]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("class", [], "'class' is a keyword of Python, which cannot be a name"),
        ("class", ["--single-file"], "'class' is a keyword of Python, which cannot be a name"),
        ("json", ["--single-file"], "'json' is a module of Python or of an installed package"),
        ("pydantic", ["--single-file"], "'pydantic' is a module of Python or of an installed package"),
        ("bot", ["--single-file"], "'bot' is a module of Python or of an installed package"),
    ],
)
def test_a_name_that_could_not_be_imported_is_refused_with_the_reason(
    workdir: Path, capsys: Out, name: str, arguments: list[str], expected: str
) -> None:
    assert entry(["plugin", "new", *arguments, name]) == 2
    assert expected in capsys.readouterr().err
    assert not list(workdir.iterdir())


@pytest.mark.parametrize("name", ["Dice", "9dice", "a-b", "../up", "class", "", "openai"])
def test_an_invalid_plugin_name_is_refused(name: str, workdir: Path) -> None:
    assert entry(["plugin", "new", name]) == 2
    assert not list(workdir.iterdir())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("plugin = Plugin('odd', requires=['nowhere'])", "requires 'nowhere', which is not loaded"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("x = 1", "its module must have one Plugin"),
        ("import nowhere_at_all\nplugin = Plugin('odd')", "nowhere_at_all"),
        (
            "@provider('TIME', 'Another clock.')\nasync def time(turn):\n    return ProviderResult()\n"
            "plugin = Plugin('odd', providers=[time])",
            "provider TIME is brought by plugin 'bootstrap' and by plugin 'odd'",
        ),
        ("plugin = Plugin('odd', services=[int])", "is not a Service"),
        (
            "@action('lower', 'x')\nasync def a(turn):\n    return None\nplugin = Plugin('odd', actions=[a])",
            "UPPER_SNAKE",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_broken_plugin_fails_the_check(workdir: Path, capsys: Out, body: str, expected: str) -> None:
    assert entry(["plugin", "check", write(workdir, "odd", body)]) == 78
    out, err = capsys.readouterr()
    assert expected in out + err
    assert "Traceback" not in err


def test_warnings_do_not_fail_the_check(workdir: Path, capsys: Out) -> None:
    body = (
        "@action('ACT', ' ')\nasync def act(turn, city: str):\n    return None\n"
        "plugin = Plugin('Odd', actions=[act], missing_settings=lambda settings: 'set ODD_KEY')"
    )
    assert entry(["plugin", "check", write(workdir, "odd", body)]) == 0
    out = capsys.readouterr().out
    for warning in ("'Odd'", "ACT has no description", "ACT: city has no description", "is off: set ODD_KEY"):
        assert warning in out


@pytest.mark.parametrize(
    ("name", "expected"), [("opnai", "did you mean 'openai'?"), ("mine", "use ./mine"), ("zzz", "available: ")]
)
def test_an_unknown_plugin_gets_a_suggestion(workdir: Path, capsys: Out, name: str, expected: str) -> None:
    write(workdir, "mine", "plugin = Plugin('mine')")
    assert entry(["plugin", "check", name]) == 78
    assert expected in capsys.readouterr().err


@pytest.fixture
def broken_plugin(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a character whose plugin raises when it is imported; return why the plugin is off."""
    monkeypatch.setenv("SERVER_PORT", "0")
    (workdir / "mine.py").write_text("import bot\n\n1 / 0\n", encoding="utf-8")
    (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["./mine"]}', encoding="utf-8")
    trust_code(workdir)
    return "it cannot be loaded: ZeroDivisionError: division by zero (mine.py, line 3)"


def test_a_plugin_with_broken_code_is_listed_as_off_with_its_file_and_line(broken_plugin: str, capsys: Out) -> None:
    assert entry(["plugin", "list", "-c", "ada.json", "--json"]) == 0
    cards = {card["name"]: card for card in json.loads(capsys.readouterr().out)["plugins"]}
    assert (cards["./mine"]["on"], cards["./mine"]["reason"]) == (False, broken_plugin)
    assert cards["bootstrap"]["on"]


def test_a_plugin_with_broken_code_is_a_finding_of_the_doctor(broken_plugin: str, capsys: Out) -> None:
    assert entry(["doctor", "-c", "ada.json", "--json"]) == 78
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [item["what"] for item in findings if item["status"] == "fail"] == [f"./mine is off: {broken_plugin}"]


@pytest.mark.parametrize("arguments", [["run", "--strict"], ["dev"]], ids=["run --strict", "dev"])
def test_a_strict_start_ends_at_a_plugin_with_broken_code(
    broken_plugin: str, arguments: list[str], capsys: Out
) -> None:
    assert entry([*arguments, "-c", "ada.json"]) == 78
    assert capsys.readouterr().err.splitlines()[-1] == f"bot: plugin './mine' is off: {broken_plugin}"


async def test_a_running_bot_shows_a_plugin_with_broken_code_as_failed(broken_plugin: str, workdir: Path) -> None:
    config = load_character_config(workdir / "ada.json")
    async with run_agent(with_operator_tools(config)) as agent_runtime:
        tools = agent_runtime.handle.operator_tools
        assert tools is not None
        [state] = [state for state in await tools.program.plugins() if state.name == "./mine"]
        assert (state.state, state.why) == ("failed", broken_plugin)
        assert tools.program.inactive_plugins() == {"./mine": broken_plugin}


@pytest.mark.long
def test_plugins_that_cannot_be_used_together_are_named_below_the_list(workdir: Path, capsys: Out) -> None:
    write_clashing_plugins(workdir)
    problem = "action ROLL_DICE is brought by plugin 'one' and by plugin 'two'"
    assert entry(["plugin", "list", "-c", "ada.json"]) == 0
    assert problem in capsys.readouterr().err
    assert entry(["plugin", "list", "-c", "ada.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"].startswith(problem)
    assert entry(["plugin", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"] == ""


SMALL = """
from bot import SettingsModel
from bot.platform import AdapterSpec

class Settings(SettingsModel):
    tin_can: str = ""

spec = AdapterSpec("{name}", lambda handles: None, Settings, needs=("TIN_CAN",))
"""


def write_small(folder: Path, name: str = "tin") -> None:
    (folder / "tin.py").write_text(SMALL.replace("{name}", name), encoding="utf-8")
    (folder / "ada.json").write_text('{"name": "Ada", "adapters": ["./tin", "discord"]}', encoding="utf-8")


@pytest.mark.long
def test_a_new_adapter_passes_the_contract_and_its_tests(workdir: Path, capfd: Out) -> None:
    assert entry(["adapter", "new", "tin_can"]) == 0
    assert entry(["adapter", "test", "./tin_can"]) == 0
    out = capfd.readouterr().out
    assert out.count("ok    contract") == 10
    assert "1 passed" in out


def test_an_adapter_is_loaded_by_its_path_once_it_is_trusted(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small(workdir)
    with pytest.raises(PluginError, match="code that you have not trusted yet"):
        load_character_config(Path("ada.json"))
    assert entry(["character", "trust", "ada.json"]) == 0
    config = load_character_config(Path("ada.json"))
    assert config.loaded.character.adapters == ("tin", "discord")
    assert not [note for note in config.loaded.report.warnings if "no adapter" in str(note)]
    states = {platform.name: platform for platform in list_platforms([config])}
    assert states["tin"].off_reason == "TIN_CAN is not set"
    monkeypatch.setenv("TIN_CAN", "string")
    states = {platform.name: platform for platform in list_platforms([load_character_config(Path("ada.json"))])}
    assert states["tin"].is_on


def test_the_code_of_an_adapter_is_shown_with_the_character(workdir: Path, capsys: Out) -> None:
    write_small(workdir)
    assert entry(["character", "check", "ada.json"]) == 0
    assert "code     ./tin:" in capsys.readouterr().out


def test_an_adapter_outside_the_folder_of_the_character_is_refused(workdir: Path) -> None:
    (workdir / "ada.json").write_text('{"name": "Ada", "adapters": ["../tin"]}', encoding="utf-8")
    with pytest.raises(CharacterError, match="outside the character's folder"):
        load_character_config(Path("ada.json"))


def test_an_adapter_with_the_name_of_an_installed_adapter_is_refused(workdir: Path) -> None:
    write_small(workdir, "discord")
    assert entry(["character", "trust", "ada.json"]) == 0
    with pytest.raises(PluginError, match="there is an installed adapter called 'discord'"):
        load_character_config(Path("ada.json"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("telegrm", "did you mean 'telegram'?"),
        ("web", "adapter 'web' has no emulator, so it cannot be tested"),
        ("discord", "the emulator of discord yields no PlatformControl"),
    ],
)
def test_what_cannot_be_tested_is_reported(workdir: Path, capsys: Out, name: str, expected: str) -> None:
    assert entry(["adapter", "test", name]) == 78
    assert expected in capsys.readouterr().err
