"""The catalogue of texts that people in rooms read."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from bot.cli.main import COMMANDS, GROUPS
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapters
from bot.user_texts import (
    LANGUAGES,
    LOCALES,
    _flatten,
    count_text,
    english_text,
    find_language,
    load_catalogue,
    translate,
    use_language,
    user_text,
)

ROOT = Path(__file__).parents[1]
ENGLISH = load_catalogue("en")
TRANSLATIONS = [language for language in LANGUAGES if language != "en"]
OF_ALL_LANGUAGES = ("choices.yes.", "choices.no.", "choices.polite.", "ai_words.", "care.")


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def _sources() -> Iterator[str]:
    for package in ("bot", "adapters", "plugins"):
        for path in (ROOT / package).rglob("*.py"):
            yield path.read_text(encoding="utf-8")


def test_a_text_is_filled_in_and_an_unknown_key_or_value_is_an_error() -> None:
    assert user_text("choices.done", choice="{red}") == "Chosen: {red}."
    with pytest.raises(KeyError, match=r"choices\.nothing"):
        user_text("choices.nothing")
    with pytest.raises(KeyError, match="choice"):
        user_text("choices.done", other="red")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_number_of_things_has_a_text_of_its_own_for_1(language: str) -> None:
    stems = [key.removesuffix(".one") for key in ENGLISH if key.endswith(".one")]
    with use_language(language):
        for stem in stems:
            values = dict.fromkeys(_placeholders(ENGLISH[f"{stem}.many"]) - {"count"}, "x")
            assert "2" in count_text(stem, 2, **values), stem
            assert count_text(stem, 1, **values) != count_text(stem, 2, **values).replace("2", "1"), stem


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_keys_and_placeholders(language: str) -> None:
    own = dict(_flatten(tomllib.loads((LOCALES / f"{language}.toml").read_text(encoding="utf-8"))))
    keyed = {key for key in own if not key.startswith(("page.", "program."))}
    assert keyed == set(ENGLISH) - ({key for key in ENGLISH if key.startswith(OF_ALL_LANGUAGES)} - keyed)
    for key, text in own.items():
        assert _placeholders(text) == _placeholders(ENGLISH.get(key) or key.partition(".")[2]), key


def test_every_translation_has_the_same_texts_by_wording() -> None:
    tables = [tomllib.loads((LOCALES / f"{language}.toml").read_text(encoding="utf-8")) for language in TRANSLATIONS]
    for name in ("page", "program"):
        assert len({frozenset(table[name]) for table in tables}) == 1, name


@pytest.mark.long
def test_every_text_of_the_program_that_is_translated_is_in_the_tables() -> None:
    sources = (source for source in _sources() if "translate(" in source)
    calls = {node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}
    given = {call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "translate"}
    texts = {text.value for text in given if isinstance(text, ast.Constant)}
    texts |= {command.help for command in COMMANDS} | set(GROUPS)
    texts |= {step for spec in find_adapters().values() if isinstance(spec, AdapterSpec) for step in spec.setup_steps}
    assert len(texts) > 80
    for language in TRANSLATIONS:
        own = tomllib.loads((LOCALES / f"{language}.toml").read_text(encoding="utf-8"))["program"]
        assert sorted(texts - set(own)) == []


@pytest.mark.long
def test_a_terminal_in_another_language_gets_its_texts() -> None:
    environment = {**os.environ, "LC_ALL": "", "LANG": "es_MX.UTF-8"}
    command = [sys.executable, "-m", "bot", "chat", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "Hablar con el personaje aquí en la terminal" in done.stdout
    assert "Mostrar esta ayuda y salir." in done.stdout


@pytest.mark.parametrize(
    ("tags", "language"),
    [
        (("de-AT",), "de"),
        (("de_DE.UTF-8",), "de"),
        (("fr-FR,fr;q=0.9,es;q=0.8,en;q=0.7",), "es"),
        (("", "es"), "es"),
        (("C.UTF-8", "POSIX", "xx", ""), ""),
    ],
)
def test_the_first_language_with_a_catalogue_is_used(tags: tuple[str, ...], language: str) -> None:
    assert find_language(*tags) == language


def test_texts_are_in_the_language_of_the_block_and_in_english_where_a_translation_has_none() -> None:
    with use_language("de"):
        assert user_text("choices.done", choice="{red}") == "Gewählt: {red}."
        assert translate(english_text("commands.start.description")) == "Anfangen."
        assert translate("A text of a plugin.") == "A text of a plugin."
        assert user_text("care.group.fr") == ENGLISH["care.group.fr"]
    assert user_text("choices.done", choice="red") == "Chosen: red."


@pytest.mark.long
def test_every_text_of_the_catalogue_is_used() -> None:
    sources = "\n".join(_sources())
    prefixes = set(re.findall(r'f"((?:[a-z_]+\.)+)\{', sources))
    prefixes |= set(re.findall(r"f'((?:[a-z_]+\.)+)\{", sources))
    prefixes |= {f"{key}." for key in re.findall(r'user_phrases\("([a-z_.]+)"\)', sources)}
    prefixes |= {f"{key}." for key in re.findall(r'count_text\(\s*"([a-z_.]+)"', sources)}
    unused = [
        key
        for key in ENGLISH
        if f'"{key}"' not in sources
        and f"'{key}'" not in sources
        and not any(key.startswith(prefix) for prefix in prefixes)
        and not key.startswith("commands.privacy.retention_")
    ]
    assert not unused, unused
