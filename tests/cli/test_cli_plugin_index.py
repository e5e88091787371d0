"""`bot plugin search`, `add` and `show`: the lists of plugins, and what an operator is asked and shown."""

import asyncio
import io
import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiohttp import web

from bot.characters import load_character
from bot.cli.main import entry
from bot.cli.plugins import MAX_INDEX_BYTES, IndexEntry, load_bundled_index, load_index
from bot.errors import FetchError, SettingError
from bot.installation import extra_requirements, has_extra, install_extra
from bot.plugin_system.loading import bundled_plugins, find_plugin
from bot.settings import Layer, Settings, load_settings

Out = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WEATHER = {
    "name": "weather",
    "package": "greenroom-weather",
    "description": "Tells the weather.",
    "tags": ["weather", "http", "maps", "wind"],
    "version": "1.2.0",
    "api": "1",
    "source": "https://code.example/weather",
    "stars": 1234,
}


def write_index(folder: Path, monkeypatch: pytest.MonkeyPatch, *entries: Any) -> None:
    (folder / "index.json").write_text(json.dumps({"plugins": list(entries)}), encoding="utf-8")
    monkeypatch.setenv("REGISTRY_URL", "index.json")


def settings_with(address: str) -> Settings:
    return Settings([Layer("the test", {"REGISTRY_URL": address})])


@contextmanager
def served(body: bytes, *, location: str = "") -> Iterator[str]:
    """Serve a list on loopback; return its address."""
    loop = asyncio.new_event_loop()

    async def respond(request: web.Request) -> web.Response:
        headers = {"Location": location} if location and request.path == "/plugins.json" else {}
        return web.Response(status=302 if headers else 200, body=body, headers=headers)

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/{name}", respond)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    runner, port = loop.run_until_complete(start())
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/plugins.json"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


BUNDLED = [item for item in load_bundled_index().entries if item.is_bundled]


def test_the_list_holds_every_bundled_plugin_once() -> None:
    names = [item.name for item in BUNDLED]
    assert sorted(names) == sorted(plugin.name for plugin in bundled_plugins())


@pytest.mark.parametrize("item", BUNDLED, ids=lambda item: item.name)
def test_the_list_says_of_a_bundled_plugin_what_its_code_says(item: IndexEntry) -> None:
    plugin = find_plugin(item.name)
    assert plugin is not None
    assert item.description == plugin.description
    assert item.api == plugin.api
    assert item.version == PROJECT["project"]["version"]
    assert item.stars is None  # there are no counts
    assert (ROOT / item.source / "__init__.py").is_file()
    extra = item.name if item.name != "x_actions" else "x"  # it acts through the adapter
    assert item.extra == (extra if extra in PROJECT["project"]["optional-dependencies"] else "")


def test_the_wheel_contains_the_list_where_it_is_looked_for() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["plugins.json"] == "bot/plugins.json"


def test_plugins_with_the_most_stars_come_first_then_by_name(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    some = {**WEATHER, "name": "zebra", "stars": 5}
    more = {**WEATHER, "name": "aardvark", "stars": 5}
    write_index(workdir, monkeypatch, some, more, WEATHER)
    assert entry(["plugin", "search"]) == 0
    cards = capsys.readouterr().out.split("\n\n")
    assert [card.split()[0] for card in cards[:5]] == ["weather", "aardvark", "zebra", "anthropic", "bootstrap"]
    assert cards[0].splitlines() == [
        "weather  ★ 1,234",
        "  Tells the weather.",
        "  package: greenroom-weather 1.2.0, plugin API 1",
        "  tags: weather, http, maps +1 more",
        "  source: https://code.example/weather",
        "  not installed: bot plugin add weather",
    ]


def test_a_search_finds_words_in_names_packages_descriptions_and_tags(capsys: Out) -> None:
    assert entry(["plugin", "search", "PICTURES", "gemini", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["plugins"]
    assert (found["name"], found["package"], found["bundled"]) == ("google", "greenroom[google]", True)
    assert entry(["plugin", "search", "nothing-like-it"]) == 0
    assert "no plugin matches" in capsys.readouterr().err


def test_a_list_is_read_over_http_from_this_machine(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    with served(json.dumps({"plugins": [WEATHER]}).encode()) as address:
        monkeypatch.setenv("REGISTRY_URL", address)
        assert entry(["plugin", "search", "weather"]) == 0
    assert capsys.readouterr().out.startswith("weather  ★ 1,234")


def test_a_list_that_is_too_large_or_leads_elsewhere_is_not_read() -> None:
    with served(b" " * (MAX_INDEX_BYTES + 1)) as address, pytest.raises(FetchError, match=r"REGISTRY_URL: .* larger"):
        load_index(settings_with(address))
    elsewhere = "http://127.0.0.2:8080/x"
    with served(b"", location=elsewhere) as address, pytest.raises(FetchError, match="not public"):
        load_index(settings_with(address))


@pytest.mark.parametrize(
    "address", ["http://plugins.example/list.json", "ftp://plugins.example/x", "https://", "file:///etc/passwd"]
)
def test_a_list_comes_from_https_or_a_file_only(address: str, workdir: Path) -> None:
    with pytest.raises(SettingError, match="must be an address that begins with https"):
        load_index(settings_with(address))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no file"),
        ("{", "not a list of plugins"),
        ("[]", "not a list of plugins"),
        ('{"plugins": 5}', "plugins: "),
        ("[" * 100_000, "not a list of plugins"),
    ],
)
def test_a_file_that_is_no_list_is_a_wrong_configuration(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out, content: str | None, expected: str
) -> None:
    if content is not None:
        (workdir / "index.json").write_text(content, encoding="utf-8")
    monkeypatch.setenv("REGISTRY_URL", "index.json")
    assert entry(["plugin", "search"]) == 78
    error = capsys.readouterr().err
    assert "REGISTRY_URL" in error
    assert expected in error
    assert len(error) < 400


HOSTILE = {
    "a name with a path": {"name": "../../evil"},
    "a name that is an option": {"name": "-rf"},
    "a name with a command": {"name": "a;rm"},
    "an option as package": {"package": "--index-url=https://evil.example"},
    "a path as package": {"package": "./evil"},
    "an address as package": {"package": "evil @ https://evil.example/e.whl"},
    "a package with a command": {"package": "evil; touch owned"},
    "a package with a line break": {"package": "evil\n"},
    "an extra with a command": {"package": "evil[$(touch owned)]"},
    "a version with a space": {"version": "1.0 --pre"},
    "a version with an address": {"version": "1.0 @ https://evil.example"},
    "a terminal code": {"description": "\x1b]0;owned\x07good"},
    "a line break": {"description": "good\nfail: bad"},
    "a change of direction": {"description": "good\u202edab"},
    "an invisible tag": {"tags": ["\u200b"]},
    "a terminal code in a tag": {"tags": ["\x9b2J"]},
    "a source that is no address": {"source": "javascript:alert(1)"},
    "a long description": {"description": "x" * 100_000},
    "many tags": {"tags": ["x"] * 1000},
    "negative stars": {"stars": -1},
    "an API that is no number": {"api": "１"},
    "the package of the bot itself": {"package": "Greenroom[x]"},
    "the name of a bundled plugin": {"name": "openai"},
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_entry_is_left_out_and_never_printed(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out, change: dict[str, Any]
) -> None:
    write_index(workdir, monkeypatch, {**WEATHER, **change}, {**WEATHER, "name": "harmless"})
    assert entry(["plugin", "search"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("harmless")
    assert "REGISTRY_URL: entry 1 is left out: " in err
    assert "evil" not in out + err
    assert not set(out + err) & set("\x1b\x07\x9b\u202e\u200b")
    assert "package: greenroom[openai]" in out


def test_only_some_of_many_wrong_entries_are_named(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(workdir, monkeypatch, *[{"\x1b[31m": 1}] * 50, None, 7)
    notes = load_index(load_settings()).notes
    assert len(notes) == 4
    assert notes[-1] == "REGISTRY_URL: and 49 more are left out"


def test_the_file_of_a_character_cannot_choose_the_list() -> None:
    settings = load_settings({"REGISTRY_URL": "https://evil.example/plugins.json"}, environment={})
    assert load_index(settings).entries == load_bundled_index().entries
    assert settings.ignored_names == ("REGISTRY_URL",)


def test_a_bundled_plugin_is_added_without_an_installation(workdir: Path, capsys: Out) -> None:
    (workdir / "ada.json").write_text('{\n  // hers\n  "name": "Ada",\n  "plugins": ["sql"]\n}\n', encoding="utf-8")
    (workdir / "ada.json").chmod(0o640)
    assert entry(["plugin", "add", "x_actions", "-c", "ada.json"]) == 0
    out = capsys.readouterr().out
    assert "action LIKE: changes something, and may be repeated (idempotent); its asker must name or confirm it" in out
    assert "route POST /plugins/x_actions/posts: scope operator" in out
    assert "network: its code runs with your rights" in out
    assert "added to the plugins of ada.json: x_actions" in out
    text = (workdir / "ada.json").read_text(encoding="utf-8")
    assert text == '{\n  // hers\n  "name": "Ada",\n  "plugins": ["sql", "x_actions"]\n}\n'
    assert (workdir / "ada.json").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in workdir.iterdir()] == ["ada.json"]
    assert entry(["plugin", "add", "x_actions", "-c", "ada.json"]) == 0
    assert "ada.json names it already" in capsys.readouterr().out
    assert (workdir / "ada.json").read_text(encoding="utf-8") == text


def test_a_character_that_names_no_plugin_keeps_its_store(workdir: Path, capsys: Out) -> None:
    (workdir / "ada.json").write_text('{"name": "Ada"}', encoding="utf-8")
    assert entry(["plugin", "add", "@elizaos/plugin-knowledge", "-c", "ada.json"]) == 0
    assert "added to the plugins of ada.json: sql, knowledge" in capsys.readouterr().out
    assert load_character(Path("ada.json")).character.plugins == ("sql", "knowledge")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"name": "Ada", "plugins": []}', '{"name": "Ada", "plugins": ["sql", "mcp"]}'),
        ('{\n\t"name": "Ada"\n}', '{\n\t"plugins": ["sql", "mcp"],\n\t"name": "Ada"\n}'),
        (
            '{"plugins": [\r\n  "sql",\r\n  "a]",\r\n  ], "name": "Ada"}',
            '{"plugins": [\r\n  "sql",\r\n  "a]",\r\n  "mcp",\r\n  ], "name": "Ada"}',
        ),
    ],
)
def test_the_form_of_a_file_stays_as_it_is(workdir: Path, before: str, after: str) -> None:
    (workdir / "ada.json").write_text(before, encoding="utf-8", newline="")
    assert entry(["plugin", "add", "mcp", "-c", "ada.json"]) == 0
    assert (workdir / "ada.json").read_bytes().decode() == after


@pytest.mark.parametrize("plugins", ['[{"name": "x"}]', "null", '"sql"'])
def test_a_file_of_another_form_is_not_changed(workdir: Path, capsys: Out, plugins: str) -> None:
    text = f'{{"name": "Ada", "plugins": {plugins}}}'
    (workdir / "ada.json").write_text(text, encoding="utf-8")
    assert entry(["plugin", "add", "mcp", "-c", "ada.json"]) == 78
    assert "ada.json" in capsys.readouterr().err
    assert (workdir / "ada.json").read_text(encoding="utf-8") == text


def test_nothing_is_installed_without_a_word_of_the_operator(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    write_index(workdir, monkeypatch, WEATHER)
    (workdir / "ada.json").write_text('{"name": "Ada"}', encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert entry(["plugin", "add", "weather", "-c", "ada.json"]) == 2  # 78 where an installer ran, and failed
    out, err = capsys.readouterr()
    assert "-m pip install greenroom-weather==1.2.0" in out
    assert "its code then runs with your rights" in out
    assert "repeat the command with --yes" in err
    assert (workdir / "ada.json").read_text(encoding="utf-8") == '{"name": "Ada"}'


def test_the_missing_extra_of_a_bundled_plugin_is_installed_from_its_metadata(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    assert has_extra("openai")
    info = workdir / "greenroom-9.dist-info"
    info.mkdir()
    required = "Requires-Dist: nothing.like-it[x]>=1; extra == 'openai'\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: greenroom\nVersion: 9\n{required}", encoding="utf-8")
    monkeypatch.syspath_prepend(workdir)
    assert extra_requirements("openai") == ["nothing.like-it[x]>=1"]
    assert not has_extra("openai")
    assert install_extra("openai", root=workdir).arguments[-1] == "nothing.like-it[x]>=1"
    assert entry(["plugin", "add", "openai"]) == 2
    assert "-m pip install -c constraints.txt -e '.[openai]'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("wether", 78, "did you mean 'weather'?"),
        ("later", 78, "it needs plugin API 2-3, and this version supports 1"),
        ("./dice", 2, "is a path, and needs no installation"),
        ("..", 78, "is in no list of plugins"),
        ("wea;ther", 78, "is in no list of plugins"),
    ],
)
def test_a_plugin_that_cannot_be_added_is_refused(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out, name: str, code: int, expected: str
) -> None:
    write_index(workdir, monkeypatch, WEATHER, {**WEATHER, "name": "later", "api": "2-3"})
    assert entry(["plugin", "add", name]) == code
    assert expected in capsys.readouterr().err


def test_the_list_of_the_installed_is_printed_as_json(capsys: Out) -> None:
    assert entry(["plugin", "list", "--json"]) == 0
    plugins = {plugin["name"]: plugin for plugin in json.loads(capsys.readouterr().out)["plugins"]}
    assert plugins["bootstrap"]["on"] is True
    assert "REPLY" in plugins["bootstrap"]["components"]["actions"]
    assert plugins["openai"]["package"] == "greenroom[openai]"
    assert plugins["openai"]["reason"].startswith("a setting is missing")
    assert "OPENAI_API_KEY" in plugins["openai"]["settings"]


def test_what_a_plugin_may_do_is_shown(capsys: Out) -> None:
    assert entry(["plugin", "show", "openai"]) == 0
    out = capsys.readouterr().out
    assert "gets prompts, and so the conversations, as the model for: TEXT_SMALL" in out
    assert "OPENAI_API_KEY (secret)" in out
    assert "servers and files: as OPENAI_BASE_URL" in out
    assert "off until: set OPENAI_API_KEY" in out
    assert entry(["plugin", "show", "bootstrap"]) == 0
    assert "the role ADMIN or higher" in capsys.readouterr().out


def test_what_a_plugin_may_do_is_shown_as_json_too(capsys: Out) -> None:
    assert entry(["plugin", "show", "openai", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {"name": "OPENAI_API_KEY", "secret": True, "character": True} in shown["settings"]
    assert "TEXT_SMALL" in shown["components"]["models"]
    assert shown["missing"].startswith("set OPENAI_API_KEY")
    assert entry(["plugin", "show", "bootstrap", "--json"]) == 0
    actions = {action["name"]: action for action in json.loads(capsys.readouterr().out)["actions"]}
    assert (actions["UPDATE_ROLE"]["role"], actions["UPDATE_ROLE"]["authority"]) == ("ADMIN", "confirmed")
