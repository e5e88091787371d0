"""Which platforms are on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli.characters import CharacterConfig, Platform, list_platforms, load_character_config, parse_platforms
from bot.cli.process.shutdown import UsageError
from bot.installation import install_command
from bot.plugin_system.loading import find_adapters

CHECK_LATER = """
import os, sys
from pathlib import Path
from bot.cli.characters import load_character_config
from bot.cli.characters import list_platforms

for variable in sys.argv[2:]:
    os.environ.update([variable.split("=")])
    list_platforms([load_character_config(Path(sys.argv[1]))])
    libraries = {"anthropic", "discord", "openai", "telegram", "tweepy"}
    platforms = {name for name in sys.modules if name.startswith("adapters.") and name.endswith(".adapter")}
    print(*sorted({*libraries, *platforms} & set(sys.modules)))
"""
LIST_PLUGINS = """
import sys
from pathlib import Path
from bot.cli.characters import load_character_config
from bot.cli.operator import list_plugin_states, list_variable_states, run_checks

config = load_character_config(Path(sys.argv[1]))
list_variable_states(config.settings, config.plugins)
list(run_checks(config, config.settings))
states = {state.name: state for state in list_plugin_states(config, {}, {})}
print(states["anthropic"].state, states["anthropic"].fix)
loaded = {name for name in states if f"plugins.{name}" in sys.modules}
print(states["sql"].state, *sorted(loaded), *sorted({"anthropic", "google.genai", "mcp"} & set(sys.modules)))
"""
PAGER = """
from bot import SettingsModel
from bot.platform import AdapterSpec, LazyImport

adapter = AdapterSpec("pager", LazyImport("pager_broken:open_pager"), SettingsModel)
"""
TELEGRAM = "TELEGRAM_BOT_TOKEN=1000001:not-a-real-token"


def load_config(folder: Path, name: str = "Ada", **more: object) -> CharacterConfig:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, **more}), encoding="utf-8")
    return load_character_config(path)


def test_without_any_token_only_the_web_page_is_on(workdir: Path) -> None:
    found = list_platforms([load_config(workdir)])
    assert [platform.name for platform in found if platform.is_on] == ["web"]
    assert [platform.name for platform in found][:4] == ["web", "discord", "farcaster", "mastodon"]
    assert all(platform.off_reason for platform in found if platform.name != "web")


def test_the_console_is_not_a_platform_of_run(workdir: Path) -> None:
    assert "console" not in [platform.name for platform in list_platforms([load_config(workdir)])]


def test_only_turns_the_other_platforms_off(workdir: Path) -> None:
    found = {platform.name: platform for platform in list_platforms([load_config(workdir)], ["discord"])}
    assert found["web"].off_reason == "not among --only discord"


def test_the_web_page_stays_on_if_a_file_names_other_platforms(workdir: Path) -> None:
    found = {platform.name: platform for platform in list_platforms([load_config(workdir, adapters=["discord"])])}
    assert found["web"].is_on


@pytest.mark.parametrize(
    ("text", "names"),
    [("web", ["web"]), ("Web, twitter,x", ["web", "x"]), ("telegram,discord", ["telegram", "discord"])],
)
def test_platforms_are_named_in_any_case_and_once(text: str, names: list[str]) -> None:
    assert parse_platforms(text) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [("telegran", "did you mean 'telegram'"), ("console", "`bot chat`"), ("qq", "available: "), (",", "needs one")],
)
def test_an_unknown_platform_is_a_usage_error(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_platforms(text)


@pytest.mark.long
def test_only_the_libraries_of_platforms_that_are_on_are_loaded(workdir: Path) -> None:
    command = [sys.executable, "-c", CHECK_LATER, load_config(workdir).path, "LOG_LEVEL=INFO", TELEGRAM]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert ran.stdout.splitlines() == [
        "adapters.web.adapter",
        "adapters.telegram.adapter adapters.web.adapter telegram",
    ]


@pytest.mark.long
def test_the_list_of_plugins_imports_none_that_is_off(workdir: Path) -> None:
    command = [sys.executable, "-c", LIST_PLUGINS, load_config(workdir).path]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert ran.stdout.splitlines() == [
        "off set it in .env or the environment, and start the bot again",
        "on bootstrap offline sql",
    ]


@pytest.mark.failure("K-17")
@pytest.mark.parametrize(
    ("name", "library"),
    [("discord", "discord"), ("matrix", "markdown_it"), ("telegram", "markdown_it"), ("x", "tweepy")],
)
def test_a_platform_without_its_library_says_so_even_if_off(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # makes the import fail
    message = f"'{name}' needs {library}, which is not installed: {install_command(name)}"
    assert find_adapters()[name] == message
    for only in ([], [name]):
        found = {platform.name: platform for platform in list_platforms([load_config(workdir)], only)}
        assert found[name] == Platform(name, None, message)


def test_a_platform_whose_library_is_broken_is_off_and_the_others_are_not(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workdir / "pager.py").write_text(PAGER)
    (workdir / "pager_broken.py").write_text("raise ImportError('no such symbol')\n")
    package = workdir / "pager-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[greenroom.adapters]\npager = pager:adapter\n")
    monkeypatch.syspath_prepend(workdir)
    found = {platform.name: platform for platform in list_platforms([load_config(workdir)])}
    monkeypatch.delitem(sys.modules, "pager")
    assert found["web"].is_on
    assert found["pager"].off_reason == "'pager' cannot be loaded: ImportError: no such symbol"
