"""The catalogue of texts that people in rooms read."""

import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from bot.user_texts import load_catalogue, user_text

ROOT = Path(__file__).parents[1]
ENGLISH = load_catalogue("en")
LANGUAGES = sorted(path.stem for path in (ROOT / "bot" / "locales").glob("*.toml"))


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
def test_every_language_has_the_same_keys_and_placeholders(language: str) -> None:
    catalogue = load_catalogue(language)
    assert set(catalogue) == set(ENGLISH)
    for key, text in catalogue.items():
        assert _placeholders(text) == _placeholders(ENGLISH[key]), key


def test_every_text_of_the_catalogue_is_used() -> None:
    sources = "\n".join(_sources())
    prefixes = set(re.findall(r'f"((?:[a-z_]+\.)+)\{', sources))
    prefixes |= set(re.findall(r"f'((?:[a-z_]+\.)+)\{", sources))
    prefixes |= {f"{key}." for key in re.findall(r'user_phrases\("([a-z_.]+)"\)', sources)}
    unused = [
        key
        for key in ENGLISH
        if f'"{key}"' not in sources
        and f"'{key}'" not in sources
        and not any(key.startswith(prefix) for prefix in prefixes)
        and not key.startswith("commands.privacy.retention_")
    ]
    assert not unused, unused
