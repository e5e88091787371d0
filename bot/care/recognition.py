"""Whether a message speaks of distress: by phrases of several languages, without a model.

The phrases are data (`phrases.toml`). A phrase counts in the author's own words only: not in quotation marks, in a
sentence that tells a story, or behind a negation.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from bot.domain.environment import remove_quotations
from bot.store.search import find_languages, split_words

MAX_LENGTH = 4_000  # characters of a message that are read: of a longer one its beginning and its end
MAX_NEGATION_LENGTH = 80  # characters before a phrase in which its negation is looked for
SENTENCE_END = re.compile(r"[.!?;:…\n]+|\s[-–—]+\s")
APOSTROPHES = re.compile(r"['’‘`´ʼ]")
NO_WORD = re.compile(r"[^\w,]+|_+")
COMMA = re.compile(r"\s*,[\s,]*")
ANY_WORD = r"(?:\w+ )"  # in a phrase: like a word of a gap
NAMED_WORDS = re.compile(r"\{([a-z]+)\}")


class DistressCategory(StrEnum):
    """What a message speaks of; of several, the first of these counts."""

    EMERGENCY = "emergency"
    SUICIDE = "suicide"
    SELF_HARM = "self_harm"
    EATING_DISORDER = "eating_disorder"


@dataclass(frozen=True, slots=True)
class Distress:
    """What a message speaks of, and the language of the phrase by which it was recognised."""

    category: DistressCategory
    language: str


@dataclass(frozen=True, slots=True)
class LanguagePhrases:
    """The compiled phrases of one language: a pattern with a group for each category."""

    language: str
    name: str
    phrases: re.Pattern[str]
    negation: re.Pattern[str]
    fiction: re.Pattern[str]

    def find(self, sentence: str) -> Iterator[DistressCategory]:
        """Yield the categories of a folded sentence."""
        match = self.phrases.search(sentence)
        if match is None or self.fiction.search(sentence):
            return
        while match is not None:
            start = match.start()
            if not self.negation.search(sentence[max(0, start - MAX_NEGATION_LENGTH) : start]):
                yield DistressCategory(match.lastgroup or "")
            match = self.phrases.search(sentence, start + 1)


def find_distress(text: str) -> Distress | None:
    """Return what the author of a text says of distress in their own words; None for most texts."""
    if len(text) > MAX_LENGTH:
        text = f"{text[: MAX_LENGTH // 2]}\n{text[-MAX_LENGTH // 2 :]}"
    sentences = [fold_text(part) for part in SENTENCE_END.split(remove_quotations(text))]
    found: dict[DistressCategory, list[LanguagePhrases]] = {}
    for sentence in filter(None, sentences):
        for phrases in load_phrases():
            for category in phrases.find(sentence):
                found.setdefault(category, []).append(phrases)
    if not found:
        return None
    category = next(category for category in DistressCategory if category in found)
    candidates = {phrases.language: phrases.name for phrases in found[category]}
    names = find_languages(split_words(text)) if len(candidates) > 1 else ()
    language = next((language for language, name in candidates.items() if name in names), next(iter(candidates)))
    return Distress(category, language)


def fold_text(text: str) -> str:
    """Return a sentence as phrases are written: lower case, no accents and apostrophes, words apart by one space."""
    text = APOSTROPHES.sub("", text.casefold())
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return COMMA.sub(", ", NO_WORD.sub(" ", text)).strip(" ,")


@cache
def load_phrases() -> Sequence[LanguagePhrases]:
    """Return the phrases of all languages."""
    source = files("bot").joinpath("care", "phrases.toml").read_text(encoding="utf-8")
    return tuple(_compile(language, values) for language, values in tomllib.loads(source).items())


def _compile(language: str, values: Mapping[str, Any]) -> LanguagePhrases:
    words = values["words"]
    breaks, negation, fillers, figurative = (values[key] for key in ("breaks", "negation", "fillers", "figurative"))
    gap = rf"(?:(?!(?:{breaks})\b)\w+ )"

    def expand(phrase: str) -> str:
        spaced = phrase.replace(ANY_WORD, gap).replace("~~", f"{gap}{{0,6}}").replace("~", f"{gap}{{0,3}}")
        return NAMED_WORDS.sub(lambda match: f"(?:{expand(words[match[1]])})", spaced.replace(" ", ",? "))

    def alternatives(phrases: Sequence[str]) -> str:
        return "|".join(map(expand, phrases))

    groups = (f"(?P<{category}>{alternatives(values['phrases'][category])})" for category in DistressCategory)
    return LanguagePhrases(
        language,
        values["name"],
        re.compile(rf"(?<!\w)(?:{'|'.join(groups)})(?!\w)(?!,? (?:{figurative})(?!\w))"),
        re.compile(rf"(?<!\w)(?:{negation}) (?:(?:{fillers}) ){{0,5}}$"),
        re.compile(rf"(?<!\w)(?:{alternatives(values['fiction'])})(?!\w)"),
    )
