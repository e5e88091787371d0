"""Words of messages and questions: languages, stems, stop words, and related words."""

import lzma
import re
import tomllib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from operator import mul

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
POSSESSIVE = re.compile(r"['’]s?$")
DEFAULT_LANGUAGE = "english"
MIN_STOP_WORDS = 3  # as many must show a language before another than English is assumed
VECTOR_LENGTH, UNIT = 48, 127.0**2  # of the table: signed bytes, 127 for 1
MAX_REMEMBERED_STEMS = 500
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; of scripts without spaces, every pair of neighbouring signs."""
    found = WORD.findall(text.casefold())
    if not _UNSPACED.search(text):
        return found
    return [part for word in found for part in _split_unspaced(word)]


def _split_unspaced(word: str) -> Iterable[str]:
    if not _UNSPACED.search(word) or len(word) < 3:
        return (word,)
    return (word[start : start + 2] for start in range(len(word) - 1))


@cache
def _languages() -> Mapping[str, frozenset[str]]:
    text = files("plugins.bootstrap.recall").joinpath("languages.toml").read_text(encoding="utf-8")
    return {name: frozenset(table["stop_words"].split()) for name, table in tomllib.loads(text).items()}


def find_language(texts: Iterable[str]) -> str:
    """Return the language whose stop words occur most often in some texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        said = split_words(text)
        counts.update({name: sum(word in words for word in said) for name, words in _languages().items()})
    language, count = max(counts.items(), key=lambda pair: pair[1], default=(DEFAULT_LANGUAGE, 0))
    return language if count >= MIN_STOP_WORDS else DEFAULT_LANGUAGE


class Stems:
    """The stems of words in one language, without its stop words; each word is stemmed once."""

    def __init__(self, language: str = DEFAULT_LANGUAGE) -> None:
        self.language = language
        stop_words = _languages()[language] | (
            _languages()[DEFAULT_LANGUAGE] if language != DEFAULT_LANGUAGE else set()
        )
        self._known: dict[str, str] = {word.replace("'", mark): "" for word in stop_words for mark in "'’"}
        self._stem: Callable[[str], str] = import_module("snowballstemmer").stemmer(language).stemWord

    def of(self, word: str) -> str:
        """Return the stem of a word in lower case; "" for a stop word or a single letter."""
        stem = self._known.get(word)
        if stem is None:
            plain = POSSESSIVE.sub("", word)
            is_blank = plain != word and self._known.get(plain) == ""
            stem = "" if is_blank or (len(plain) < 2 and not plain.isdigit()) else self._stem(plain)
            self._known[word] = stem
        return stem

    def of_text(self, text: str) -> Iterator[str]:
        """Yield the stems of a text."""
        return filter(None, map(self.of, split_words(text)))


class RelatedWords:
    """Likeness of words in meaning, from a table of a language that was made once from an embedding model.

    No model is asked here; docs/memory.md says how it was made. Languages without a table know only equal stems.
    """

    def __init__(self, language: str) -> None:
        rows = _read_table(f"related_words.{language[:2]}.txt.xz").decode().split("\n")
        vectors = array("b", _read_table(f"word_vectors.{language[:2]}.bin.xz"))
        self._stems = [row.partition(" ")[0] for row in rows]
        self._rows = dict(zip(self._stems, rows, strict=True))
        self._vectors = {
            stem: vectors[start : start + VECTOR_LENGTH]
            for stem, start in zip(self._stems, range(0, len(vectors), VECTOR_LENGTH), strict=False)
        }
        self._likeness: dict[str, dict[str, float]] = {}

    def nearest(self, stem: str) -> dict[str, float]:
        """Return the nearest stems, each with its likeness up to 1."""
        _, _, pairs = self._rows.get(stem, "").partition(" ")
        related = {}
        for pair in pairs.split():
            number, _, likeness = pair.partition(":")
            related[self._stems[int(number)]] = int(likeness) / 100
        return related

    def knows(self, stem: str) -> bool:
        """Return whether the table has a stem."""
        return stem in self._vectors

    def likeness_to(self, stem: str) -> Callable[[str], float]:
        """Return a function that compares a stem with another: 1 if equal, 0 if unrelated or unknown."""
        vector = self._vectors.get(stem)
        if len(self._likeness) > MAX_REMEMBERED_STEMS:
            self._likeness.clear()
        known = self._likeness.setdefault(stem, {stem: 1.0})

        def likeness(other: str) -> float:
            value = known.get(other)
            if value is None:
                compared = self._vectors.get(other) if vector is not None else None
                value = sum(map(mul, vector, compared)) / UNIT if vector is not None and compared is not None else 0.0
                known[other] = value
            return value

        return likeness


def _read_table(name: str) -> bytes:
    table = files("plugins.bootstrap.recall").joinpath(name)
    return lzma.decompress(table.read_bytes()) if table.is_file() else b""


@cache
def related_words(language: str) -> RelatedWords:
    """Return the table of a language, read once; empty if there is none."""
    return RelatedWords(language)
