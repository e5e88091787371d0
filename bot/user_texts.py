"""Texts that people read, from one catalogue per language: `bot/locales/<language>.toml`.

Texts in rooms have keys. Those of the program's commands and of its pages are looked up by their English wording, in
the tables `program` and `page` of a translation.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

ENGLISH = "en"
LOCALES = files("bot").joinpath("locales")
LANGUAGES = tuple(sorted(path.name.removesuffix(".toml") for path in LOCALES.iterdir() if path.name.endswith(".toml")))
PROGRAM = "program."
BY_WORDING = (PROGRAM, "page.")  # tables whose keys are the English texts
PLACEHOLDER = re.compile(r"\{(\w+)\}")
MAX_MESSAGE_LINE = 4_000  # characters of a line of a finished message that is translated
MIN_FIXED_LENGTH = 4  # letters of a text with values: one with fewer would match by chance
UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")  # scripts that put no boundary around a word

# The language of whom the texts of this task are for: the author of the message that it answers, or who uses the page.
# Empty for the program's.
chosen_language: ContextVar[str] = ContextVar("chosen_language", default="")


@cache
def default_language() -> str:
    """Return the language of the program: of `BOT_LANGUAGE`, else of the locale, else English."""
    names = ("BOT_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    return find_language(*(os.environ.get(name, "") for name in names)) or ENGLISH


def find_language(*tags: str) -> str:
    """Return the first language that has a catalogue, empty without one.

    `tags` are language tags (BCP 47, as in "de-AT"), values of the header Accept-Language, or names of POSIX locales.
    """
    for tag in (part for value in tags for part in value.split(",")):
        language = re.split(r"[-_.@;]", tag.strip().lower(), maxsplit=1)[0]
        if language in LANGUAGES:
            return language
    return ""


def current_language() -> str:
    """Return the language of the texts of this task."""
    return chosen_language.get() or default_language()


@contextmanager
def use_language(*tags: str) -> Iterator[None]:
    """Use the first language of these tags that has a catalogue, by default the program's, in this block."""
    token = chosen_language.set(find_language(*tags))
    try:
        yield
    finally:
        chosen_language.reset(token)


def user_text(key: str, /, **values: object) -> str:
    """Return the text of a key such as "commands.mute.done", with `{name}` filled in from `values`.

    Raises KeyError for an unknown key or a missing value.
    """
    text = load_catalogue(current_language())[key]
    return text.format_map(values) if values else text


def count_text(key: str, count: int, /, **values: object) -> str:
    """Return the text of a key for a number: of `<key>.one` for 1, else of `<key>.many`, with `{count}` filled in."""
    return user_text(f"{key}.{'one' if count == 1 else 'many'}", count=count, **values)


def english_text(key: str) -> str:
    """Return the text of a key in English, for what is defined once and shown by `translate`."""
    return load_catalogue(ENGLISH)[key]


def translate(text: str, /, **values: object) -> str:
    """Return an English text in the current language, as it is where that has no translation of it.

    The values are filled in afterwards. Raises KeyError for a missing value.
    """
    if (language := current_language()) != ENGLISH:
        text = _translations(language).get(text, text)
    return text.format_map(values) if values else text


def list_translations(text: str) -> dict[str, str]:
    """Return an English text in the other languages that have it, by their codes."""
    found = {language: _translations(language).get(text, text) for language in LANGUAGES if language != ENGLISH}
    return {language: translation for language, translation in found.items() if translation != text}


@cache
def _translations(language: str) -> Mapping[str, str]:
    catalogue = load_catalogue(language)
    by_wording = {text: catalogue[key] for key, text in load_catalogue(ENGLISH).items()}
    others = (item for item in catalogue.items() if item[0].startswith(BY_WORDING))
    return by_wording | {key.partition(".")[2]: text for key, text in others}


def page_texts(language: str) -> dict[str, str]:
    """Return the texts of the pages in a language, by their English wording; empty for English."""
    return {key[5:]: text for key, text in load_catalogue(language).items() if key.startswith("page.")}


@cache
def user_phrases(key: str) -> tuple[str, ...]:
    """Return the phrases that people use, of all languages below a key such as "choices.yes"."""
    texts = (text for name, text in load_catalogue(ENGLISH).items() if name.startswith(f"{key}."))
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
    """Return all texts of a language by their dotted keys; a text that it lacks is in English."""
    source = LOCALES.joinpath(f"{language}.toml").read_text(encoding="utf-8")
    own = dict(_flatten(tomllib.loads(source)))
    return MappingProxyType(own if language == ENGLISH else {**load_catalogue(ENGLISH), **own})


@dataclass(frozen=True, slots=True)
class Template:
    """An English text with values: its longest part, by which it is found quickly, and how many letters are fixed."""

    text: str
    longest_part: str
    fixed_length: int

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Return a text of the table as a template."""
        parts = PLACEHOLDER.split(text)[::2]
        return cls(text, max(parts, key=len), sum(map(len, parts)))


def translate_message(text: str) -> str:
    """Return an English message in the current language, line by line.

    A line is a text of the table, perhaps with values in the places of its `{name}`; the values are translated alike.
    What has no translation stays as it is.
    """
    if current_language() == ENGLISH:
        return text
    return "\n".join(map(_translate_line, text.split("\n")))


def _translate_line(line: str) -> str:
    text = line.strip()
    if not text or len(text) > MAX_MESSAGE_LINE:
        return line
    translation = translate(text)
    if translation == text:
        translation = _translate_filled(text)
    return line.replace(text, translation)


def _translate_filled(text: str) -> str:
    for template in _templates(current_language()):
        if template.longest_part in text and (match := _pattern(template.text).fullmatch(text)):
            values = {name: _translate_line(value) for name, value in match.groupdict().items()}
            return translate(template.text, **values)
    return text


@cache
def _templates(language: str) -> tuple[Template, ...]:
    """Return the texts of the table that have values, those with the most fixed letters first."""
    texts = (key.removeprefix(PROGRAM) for key in load_catalogue(language) if key.startswith(PROGRAM))
    templates = (Template.parse(text) for text in texts if PLACEHOLDER.search(text))
    fixed = (template for template in templates if template.fixed_length >= MIN_FIXED_LENGTH)
    return tuple(sorted(fixed, key=lambda template: -template.fixed_length))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts, seen = [], set[str]()
    for index, part in enumerate(PLACEHOLDER.split(text)):
        if index % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>.+?)")
            seen.add(part)
    return re.compile("".join(parts))


def format_dollars(amount: float) -> str:
    """Return an amount with two digits, four where it is less than ten cents."""
    if 0 < amount < 0.0001:
        return "< $0.0001"
    return "$0" if not amount else f"${amount:.4f}" if amount < 0.1 else f"${amount:,.2f}"


def format_seconds(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    minutes, hours = round(seconds / 60), seconds / 3600
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{hours:.0f} h" if hours < 48 else count_text("time.days", round(hours / 24))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
