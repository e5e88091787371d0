"""An index of the lines of one conversation: who said which words, when, and in what form."""

import re
from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log

from plugins.bootstrap.recall.changes import tells_change
from plugins.bootstrap.recall.words import Stems, find_language, split_words

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
