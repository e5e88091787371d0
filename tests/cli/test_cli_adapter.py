"""`bot adapter`: new and test; adapters that a character file names by their paths."""

from pathlib import Path

import pytest

from bot.cli.characters import list_platforms, load_character_config
from bot.cli.main import entry
from bot.errors import CharacterError, PluginError

Out = pytest.CaptureFixture[str]
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
