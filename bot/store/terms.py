"""The terms by which memories are found: stemmed words of their texts, in the languages of `languages.toml`.

A text is stored with the stems of its own language, as its stop words tell it, or of all languages where they tell
nothing. A word of a question stands for its stems in all languages: so the same word is found whatever the language
was taken for, and its other forms where it was recognised.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from threading import Lock

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
MAX_WORDS = 5_000  # of a text: a longer one is found by its beginning
# Stemmers of other scripts than Latin, by the first word of the Unicode names of their letters.
STEMMERS_OF_SCRIPTS = {
    "ARABIC": "arabic",
    "ARMENIAN": "armenian",
    "CYRILLIC": "russian",
    "DEVANAGARI": "hindi",
    "GREEK": "greek",
    "TAMIL": "tamil",
}
_POSSESSIVE = re.compile(r"'s?$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


@cache
def word_lists(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return a list of words by language: `stop_words`, `first_person`, `second_person` or `months`."""
    text = files("bot.store").joinpath("languages.toml").read_text(encoding="utf-8")
    return {language: tuple(lists[name].split()) for language, lists in tomllib.loads(text).items()}


@cache
def _stop_words() -> Mapping[str, frozenset[str]]:
    return {language: frozenset(words) for language, words in word_lists("stop_words").items()}


@cache
def _languages_by_stop_word() -> Mapping[str, frozenset[str]]:
    words = {word for stop_words in _stop_words().values() for word in stop_words}
    return {word: frozenset(name for name, stop in _stop_words().items() if word in stop) for word in words}


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; of scripts without spaces, every pair of neighbouring characters."""
    found = WORD.findall(text.casefold().replace("’", "'"))
    if text.isascii() or not _UNSPACED.search(text):
        return found
    return [part for word in found for part in _split_unspaced(word)]


def _split_unspaced(word: str) -> Iterable[str]:
    if not _UNSPACED.search(word) or len(word) < 3:
        return (word,)
    return (word[start : start + 2] for start in range(len(word) - 1))


def find_languages(words: Iterable[str]) -> tuple[str, ...]:
    """Return the languages of which most of these words are stop words; all languages if none is."""
    by_word = _languages_by_stop_word()
    counts = Counter(language for word in words for language in by_word.get(word, ()))
    most = max(counts.values(), default=0)
    return tuple(language for language in _stop_words() if counts[language] == most)


@lru_cache(maxsize=1024)
def index_terms(text: str) -> tuple[str, ...]:
    """Return the terms of a text in their order, without the stop words of its language."""
    words, languages = _split_content(text)
    return tuple([stem for word in words for stem in _stems(word, languages)])


def question_terms(text: str) -> dict[str, frozenset[str]]:
    """Return for each word of a question that is no stop word of its language the terms that it stands for."""
    words, _ = _split_content(text)
    terms = {_POSSESSIVE.sub("", word): frozenset(_stems(word, tuple(_stop_words()))) for word in words}
    return {word: stems for word, stems in terms.items() if stems}


def _split_content(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the words of a text but the stop words of its languages, and these languages."""
    words = split_words(text)[:MAX_WORDS]
    languages = find_languages(words)
    by_word = _languages_by_stop_word()
    return [word for word in words if by_word.get(word, frozenset()).isdisjoint(languages)], languages


def _stems(word: str, languages: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(stem for language in languages if (stem := stem_word(word, language))))


@lru_cache(maxsize=65_536)
def stem_word(word: str, language: str) -> str:
    """Return the stem of a word in lower case without diacritics; "" for a single letter.

    The language counts for words in Latin script only.
    """
    word = _POSSESSIVE.sub("", word)
    if len(word) < 2 and word.isascii() and not word.isdigit():
        return ""
    if word.isascii():
        return _stemmer(language)(word)
    script = unicodedata.name(word[0], "").partition(" ")[0]
    if script in STEMMERS_OF_SCRIPTS:
        return _stemmer(STEMMERS_OF_SCRIPTS[script])(word)
    if script not in ("LATIN", "DIGIT"):
        return word
    stem = unicodedata.normalize("NFKD", _stemmer(language)(word))
    return "".join(character for character in stem if not unicodedata.combining(character))


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    """Return a stemmer for any thread; its library is loaded at the first word."""
    stemmer, lock = import_module("snowballstemmer").stemmer(language), Lock()

    def stem(word: str) -> str:
        with lock:  # it keeps the word that it works on
            return str(stemmer.stemWord(word)).replace("'", "")

    return stem
