"""An index of the lines of one conversation: who said which words, when, and in what form.

Whether a text tells that something has changed or was wrong: by signs of several languages and by weighted words.

`python -m benchmarks.train_recall` makes the weights, for English, from the topics that are for tuning.

Words of messages and questions: languages, stems, stop words, and related words.
"""

import json
import lzma
import re
import tomllib
from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from math import log
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


WEIGHTS_NAME = "change_words.json"
MAX_LENGTH = 1_000  # characters that are read: a correction is short, and a long text costs time
_SIGNS = re.compile(
    r"\b(?:now|actually|instead|anymore|any more|no longer|not any|correct(?:ion|ed)|update[ds]?|"
    r"chang(?:e[ds]?|ing)|switch(?:ed|ing)|mov(?:ed|ing)|re(?:located|assigned|placed|scheduled|measured|named)|new|"
    r"scrap|meant|mistake|sorry|since then|these days|finally|as of|decided|ended up|turn(?:s|ed) out|transferred|"
    r"migrated|dropp?ed|quit|left(?! an? \w+)|gave up|give up|given up|done with|broke up|sold|closed|cancell?ed|"
    r"postponed|over to|on to|got rid|became|wiped|handed|make (?:that|it)|started|rather than|oops|whoops|typo|"
    r"mis(?:read|typed|spoke|counted|remembered|heard)|wrong|mixed up|(?:scratch|strike) that|my bad|"
    r"(?:take|took) (?:it|that) back|on second thoughts?|after all|in the end|eventually|at last|reconsidered|"
    r"(?:i'd|would) rather|nowadays|from (?:here|now|today|this \w+|next \w+) on(?:wards?)?|from today|for good|"
    r"since (?:last|yesterday|this)|lately|swap(?:ped|ping)?|traded|(?:up|down)graded|converted|withdrew|"
    r"(?:pulled|backed) out|opted|settled (?:on|for)|talked me into|won me over|bumped|pushed (?:back|to)|"
    r"brought forward|delay(?:ed)?|re(?:planted|booked|painted|homed|made|built|newed)|went (?:for|with|back)|"
    r"fell through|(?:takes|took) over|broke down|promoted|expired|ran out|made way|stopped|not going back|"
    r"(?:forget|ignore) (?:that|what|the|about|it)|never mind|(?:is|it's|it’s) (?:correct|right)|make do|the real|"
    r"pulling your leg|(?:an)?other one|different one|(?:even|way|much|something) better|too \w+,? (?:to|for|so)|"
    r"no[,.;:!] (?!thanks?|problem|worries|idea|clue|need)|ditched|dumped|scrapped|chose|picked|persuaded|convinced|"
    r"kidding|joking|i lied|edit:|in fact|to be (?:exact|precise)|(?:should|must) (?:be|have been|read|say)|"
    r"truth is|full story|grown into|turned into|replacement|had to|did ?n[o']?t (?:work out|fit|last|suit)|"
    r"wo ?n[o']?t (?:do|fit|work)|fell apart|died|broke|got stolen|lost my|was taken|sold out|booked out|"
    r"fully booked|let go of|said goodbye|farewell|in favou?r of|on reflection|thinking about it|last.minute|"
    r"short notice|extended|shortened|slipped|gone up|went (?:up|down|over)|grew|raised|cut (?:down|back|to)|"
    r"one more|(?:re)?counted|"
    r"(?:checked|looked|measured|counted|asked|tried|weighed)(?: \w+)? (?:again|properly|out|on)|double.checked|"
    r"by now|no more|meanwhile|stuck with|hooked on|fell for|tempted|changed hands|passed (?:it|them|on)|"
    r"gave (?:it|them|him|her)|not (?:\w+ ){0,2}(?:as|what) (?:i|we|you)|than i (?:said|thought|told)|used to|"
    r"these are|for me (?:now|then|this)|next time|luckily|unfortunately|sadly|turns? into|doch|jetzt|mittlerweile|"
    r"inzwischen|korrektur|statt\w*|nicht mehr|umgezogen|geändert|verschoben|gewechselt|"
    r"maintenant|désormais|finalement|changé|ahora|ya no|cambi\w+|adesso|agora|теперь|больше не)\b",
    re.IGNORECASE,
)


def tells_change(text: str) -> bool:
    """Return whether a text says that something has changed or was wrong; reads its first `MAX_LENGTH` characters."""
    return _tells_change(text[:MAX_LENGTH])


@lru_cache(maxsize=4096)
def _tells_change(text: str) -> bool:
    if _SIGNS.search(text) is not None:
        return True
    weights, bias = _load_weights()
    return sum(weights.get(word, 0.0) for word in change_words(text)) + bias >= 0


def change_words(text: str) -> set[str]:
    """Return the words of a text as the weights have them."""
    return {word.replace("’", "'") for word in split_words(text)}


@cache
def _load_weights() -> tuple[Mapping[str, float], float]:
    stored = json.loads(files("plugins.bootstrap.recall").joinpath(WEIGHTS_NAME).read_text(encoding="utf-8"))
    return stored["words"], stored["bias"]


SAMPLED_LINES = 200  # tell the language of a conversation
MAX_NAMES = 16  # words by which a person is known: a question looks for each of them
MAX_LINE_LENGTH = 1_000
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|this (?:week|month|year|morning|weekend)|weekend|monday|"
    r"tuesday|wednesday|"
    r"thursday|friday|saturday|sunday|january|february|march|april|june|july|august|september|october|november|"
    r"december|"
    r"morning|evening|noon|midnight|week|month|year|gestern|heute|morgen|vorgestern|letzte\w*|nächste\w*|montag|"
    r"dienstag|mittwoch|"
    r"donnerstag|freitag|samstag|sonntag|hier|demain|ayer|mañana|ieri|domani|ontem|amanhã|gisteren|igår|вчера|"
    r"завтра)s?\b|\d{1,2}[:.]\d\d|"
    r"\b\d{1,2}(?:st|nd|rd|th)\b|\b(?:19|20)\d\d\b|\b\d{1,2} ?[ap]m\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|dozen|hundred|thousand)\b", re.IGNORECASE
)
_PERSONAL = re.compile(
    r"\b(?:i|i'm|i’m|i've|i’ve|i'd|i'll|me|my|mine|myself|we|we're|we've|our|us|ich|mir|mich|mein\w*|wir|uns\w*|je|"
    r"j'ai|moi|mon|ma|mes|nous|"
    r"yo|me|mi|mis|nosotros|tengo|soy|io|mio|mia|sono|ho|eu|meu|minha|ik|mijn|jag|min|mitt|я|мой|моя|мне|меня|мы)\b",
    re.IGNORECASE,
)
_MAY_NAME = re.compile("call|nick|name|known|goes|aka|nenn|hei|appelle|llam", re.IGNORECASE)
# What follows "call me" is no name: call me back, call me when you are there.
_NO_NAME = (
    r"(?!(?:back|later|again|twice|once|early|late|now|soon|today|tonight|tomorrow|yesterday|any\w*|every\w*|when\w*|"
    r"if|on|at|in|after|before|about|for|from|to|and|or|but|the|a|an|by|up|out|over|last|next|this|that|names|instead|"
    r"during|while|because|so|just|right|first|morgen|heute|gestern|wenn|zurück|später|wieder|demain|mañana)\b)"
)
_ALIAS = re.compile(
    rf"\b(?:(?:calls? me|my name is|my (?:nick(?:name)?|handle) is|known as|goes? by|nicknamed|aka|nennt mich|"
    rf"nennen mich|heiße|on m'appelle|me llamo|me llaman)\s+[\"'“]?{_NO_NAME}|"
    r"called me\s+(?:[\"'“]|(?-i:(?=[A-ZÀ-Þ]))))([^\W\d_]{2,20})",
    re.IGNORECASE,
)
_CALLS = re.compile(
    r"^\W*(?:(?:hey|hi|hello|thanks|thank you|thx|wow|oh|aww|yeah|yes|no|congrats|congratulations|sorry|haha|great|"
    r"nice|hallo|danke|"
    r"salut|merci|hola|gracias|ciao)[\s,!]+)*@?([^\W\d_]\w+)\s*[,!:]|,\s*@?([A-Z]\w+)\s*(?=[!.?,:]|$)",
    re.IGNORECASE,
)
_CALLED = re.compile(
    rf"\b(?:call(?:s|ed|ing)?|nicknamed|nennen|nannten)\s+([^\W\d_]{{2,20}})\s+[\"'“]?{_NO_NAME}([^\W\d_]{{2,20}})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message of a conversation; `speaker` identifies its author, `name` is what people call them."""

    id: Hashable
    speaker: str
    name: str
    text: str
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class IndexedLine:
    """A line with its stems; what its form tells is found when a question needs it. Without `id` it was deleted."""

    id: Hashable | None
    speaker: str
    time: datetime | None
    text: str
    stems: tuple[str, ...]

    @property
    def is_question(self) -> bool:
        """Whether the line asks something."""
        return self.text.rstrip(" \"')*").endswith(("?", "？", "؟"))

    @property
    def has_time(self) -> bool:
        """Whether the line names a day, a date or a time."""
        return _TIME.search(self.text) is not None

    @property
    def has_number(self) -> bool:
        """Whether the line has a number, also a small one in English words."""
        return _NUMBER.search(self.text) is not None

    @property
    def is_update(self) -> bool:
        """Whether the line says that something has changed or was wrong."""
        return tells_change(self.text)

    @property
    def is_personal(self) -> bool:
        """Whether the line tells of its author."""
        return _PERSONAL.search(self.text) is not None

    @property
    def called(self) -> frozenset[str]:
        """The words by which the line addresses people: it tells nothing of those."""
        return frozenset(word.casefold() for match in _CALLS.findall(self.text) for word in match if word)


class ConversationIndex:
    """The lines of one conversation by their stems, in the order in which they were said."""

    def __init__(self, lines: Sequence[Line] = (), *, language: str = "") -> None:
        self.stems = Stems(language or find_language(line.text for line in lines[-SAMPLED_LINES:]))
        self.lines: list[IndexedLine] = []
        self._numbers: dict[Hashable, int] = {}  # of the lines, by their ids
        self.speakers: defaultdict[str, set[str]] = defaultdict(set)  # by each word of their names
        self.names: defaultdict[str, set[str]] = defaultdict(set)  # the words of their names, by speaker
        self.of_speaker: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        self.corrections: dict[int, Mapping[int, float]] = {}  # see judging.find_corrections
        self._postings: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        self.times_said: Counter[tuple[str, ...]] = Counter()  # how many lines have the same stems
        self._rarities: dict[int, float] = {}  # by the number of lines that have a stem
        self._total_length = 0
        self.add(lines)

    def add(self, lines: Iterable[Line]) -> None:
        """Add lines that were said after all others."""
        self._rarities.clear()
        for line in lines:
            number = len(self.lines)
            if not self.of_speaker[line.speaker]:
                self._add_names(line.speaker, line.name)
            self.of_speaker[line.speaker].append(number)
            self._numbers[line.id] = number
            self.lines.append(self._read(line, number))

    def replace(self, line_id: Hashable, text: str) -> bool:
        """Read the new text of a line that was edited, none if it was deleted; a line that is not known is ignored.

        Returns False if the earlier text may have told a name, which stays known: only a new index is without it.
        """
        number = self._numbers.get(line_id)
        if number is None:
            return True
        earlier = self.lines[number]
        for stem in earlier.stems:
            postings = self._postings[stem]
            del postings[bisect_left(postings, number)]
        self.times_said[earlier.stems] -= 1
        self._total_length -= len(earlier.stems)
        self._rarities.clear()
        self.corrections.clear()
        if text:
            self.lines[number] = self._read(Line(line_id, earlier.speaker, "", text, earlier.time), number)
        else:
            del self._numbers[line_id]
            self.lines[number] = IndexedLine(None, earlier.speaker, earlier.time, "", ())
        return not _MAY_NAME.search(earlier.text)

    def _read(self, line: Line, number: int) -> IndexedLine:
        """Note the words of a line under its number."""
        text = line.text[:MAX_LINE_LENGTH]
        stems = tuple(dict.fromkeys(self.stems.of_text(text)))
        for stem in stems:
            postings = self._postings[stem]
            if postings and postings[-1] > number:  # of an edited line
                insort(postings, number)
            else:
                postings.append(number)
        self.times_said[stems] += 1
        self._total_length += len(stems)
        self._find_aliases(line.speaker, text)
        return IndexedLine(line.id, line.speaker, line.time, text, stems)

    def _add_names(self, speaker: str, name: str) -> None:
        for word in {name.casefold(), *split_words(name)}:
            if len(word) > 1:
                self._add_name(speaker, word)

    def _add_name(self, speaker: str, word: str) -> None:
        if len(self.names[speaker]) < MAX_NAMES:
            self.speakers[word].add(speaker)
            self.names[speaker].add(word)

    def _find_aliases(self, speaker: str, text: str) -> None:
        """Note what people ask to be called, and what others are called."""
        if not _MAY_NAME.search(text):
            return
        for alias in _ALIAS.findall(text):
            if self.stems.of(alias.casefold()):
                self._add_name(speaker, alias.casefold())
        for name, alias in _CALLED.findall(text):
            if self.stems.of(alias.casefold()):
                for named in tuple(self.speakers.get(name.casefold(), ())):
                    self._add_name(named, alias.casefold())

    def postings(self, stem: str) -> Sequence[int]:
        """Return the numbers of the lines that have a stem, in ascending order."""
        return self._postings.get(stem, ())

    def rarity(self, count: int) -> float:
        """Return the inverse document frequency of a stem that so many lines have."""
        return log(1 + (len(self.lines) - count + 0.5) / (count + 0.5))

    def stem_rarity(self, stem: str) -> float:
        """Return the inverse document frequency of a stem."""
        count = len(self.postings(stem))
        known = self._rarities.get(count)
        if known is None:
            known = self._rarities[count] = self.rarity(count)
        return known

    @property
    def mean_length(self) -> float:
        """The mean number of stems of a line."""
        return self._total_length / len(self.lines) if self.lines else 1.0
