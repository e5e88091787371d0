"""Texts that people in rooms read, by key, from one catalogue per language: `bot/locales/<language>.toml`."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

LANGUAGE = "en"
UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")  # scripts that put no boundary around a word


def user_text(key: str, /, **values: object) -> str:
    """Return the text of a key such as "commands.mute.done", with `{name}` filled in from `values`.

    Raises KeyError for an unknown key or a missing value.
    """
    text = load_catalogue(LANGUAGE)[key]
    return text.format_map(values) if values else text


@cache
def user_phrases(key: str) -> tuple[str, ...]:
    """Return the phrases that people use, of all languages below a key such as "choices.yes"."""
    texts = (text for name, text in load_catalogue(LANGUAGE).items() if name.startswith(f"{key}."))
    return tuple(phrase.strip() for text in texts for phrase in text.split(",") if phrase.strip())


@cache
def _ai_words() -> re.Pattern[str]:
    words = user_phrases("ai_words")
    spaced = "|".join(re.escape(word) for word in words if not UNSPACED.search(word))
    others = "|".join(re.escape(word) for word in words if UNSPACED.search(word))
    return re.compile(rf"(?<![^\W\d_])(?:{spaced})(?![^\W\d_])|{others}", re.IGNORECASE)


def names_ai(text: str) -> bool:
    """Return whether a text says, in one of the languages, that there is an AI or a bot."""
    return _ai_words().search(text) is not None


@cache
def load_catalogue(language: str) -> Mapping[str, str]:
    """Return all texts of a language by their dotted keys."""
    source = files("bot").joinpath("locales", f"{language}.toml").read_text(encoding="utf-8")
    return MappingProxyType(dict(_flatten(tomllib.loads(source))))


def format_seconds(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    minutes, hours = round(seconds / 60), seconds / 3600
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
