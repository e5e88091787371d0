"""How memories are found by a question, in every store: their terms, what a question asks for, and the ranking.

Terms are stemmed words, in the languages of `languages.toml`. A text is stored with the stems of its own language, as
its stop words tell it, or of all languages where they tell nothing. A word of a question stands for its stems in all
languages: so the same word is found whatever the language was taken for, and its other forms where it was recognised.

The score of a line is the sum of BM25 over what the question asks for: its words, the people that it names as authors,
and who asks, where it says "I". An author counts by the share of the lines that they wrote, as a word does, so that no
weight is needed. All other numbers stand here, each with its reason; none is fitted to questions.
"""

import re
import tomllib
import unicodedata
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from hashlib import blake2s
from importlib import import_module
from importlib.resources import files
from math import log, sqrt
from statistics import fmean
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from bot.domain.environment import Entity
from bot.domain.hiding import HIDDEN_TEXT
from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.store.similarity import TRANSCRIPT_KINDS, cosine, normalize_wording

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
MAX_WORDS = 2_000  # of a text: a longer one is found by its beginning
MAX_WORD_LENGTH = 64  # stemming takes time, and the stems that are kept take memory, by length
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
        return [word[:MAX_WORD_LENGTH] for word in found]
    return [part for word in found for part in _split_unspaced(word)]


def _split_unspaced(word: str) -> Iterable[str]:
    if not _UNSPACED.search(word) or len(word) < 3:
        return (word[:MAX_WORD_LENGTH],)
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


K1, B = 1.2, 0.75  # of BM25, as in Robertson and Zaragoza: The Probabilistic Relevance Framework (2009)
# A line between two that match is about the same thing; one beside a single match is so about half of the time, and is
# one of two. So each side lends a quarter: a neighbour never comes before the line that matches itself.
NEIGHBOURS_SHARE = 0.25
MAX_NEIGHBOURS_GAP = 3600.0  # seconds; lines further apart belong to two conversations
NAMED_TIME = 3.0  # a day or month that the question names counts like a word that one line of twenty has: log(20)
LATER = timedelta(days=7)  # people tell of a day for about a week
OWN_LINES = 0.5  # of the asked agent's lines: they repeat the words of questions; unless it is asked for them ("you")
MAX_TOPICS = 64  # words of a question that are searched
MAX_POSTINGS = 5_000  # lines that are read of one word: of a word that more lines have, the newest
MAX_MATCHES = 200  # the lines that match best, of which the scores are computed in full
MAX_NEAREST = 200  # the lines nearest in meaning; any other line counts as near as the last of them
MAX_COMPARED = 16_000  # vectors of a room, world or everywhere, the newest: more takes over 15 ms on SQLite
MAX_WITH_NEIGHBOURS = 40
MAX_COUNTED = MAX_POSTINGS  # lines of a room: how many more there are hardly changes how much a rare word counts

SEPARATOR = "·"  # no word has it
YEAR = re.compile(r"\b(20\d\d)\b")
DAY = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|\.)?(?!\d)")
ISO_DATE = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
AMBIGUOUS_MONTHS = frozenset({"may", "march", "mars", "mai", "mei", "maj"})  # months only beside a number


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question: its text, who asks, the agent that is asked, and the people whom it may name.

    With its vector and the model that made it, memories near in meaning are found too. `excluded` are the ids of
    memories that are not searched, such as the message that asks. With neighbours, a message is found by what stands
    beside it, too.
    """

    text: str
    asker: UUID | None = None
    asked: UUID | None = None
    people: Sequence[Entity] = ()
    vector: Sequence[float] | None = None
    model: str = ""
    excluded: Collection[UUID] = ()
    with_neighbours: bool = True


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A memory that was found: its score, and the parts of the score by their names."""

    memory: Memory
    score: float
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Question:
    """What a question asks for: `topics` has for each label the terms of which a line may have any.

    `period` is the time that the question names; `is_addressed` tells whether it says "you".
    """

    topics: Mapping[str, frozenset[str]]
    period: tuple[datetime, datetime] | None = None
    is_addressed: bool = False

    @cached_property
    def terms(self) -> frozenset[str]:
        """All terms of all topics."""
        return frozenset[str]().union(*self.topics.values())


def _digest(data: bytes, size: int) -> str:
    return blake2s(data, digest_size=size).hexdigest()


@lru_cache(maxsize=4096)
def author_term(author: UUID) -> str:
    """Return the term of the lines that a person or the agent wrote."""
    return SEPARATOR + _digest(author.bytes, 4)


def wording_term(text: str, author: UUID) -> str:
    """Return the term of the memories of an author with the same text."""
    return SEPARATOR * 2 + _digest(author.bytes + normalize_wording(text).encode("utf-8", "replace"), 16)


def audience_mark(audience: UUID | None) -> str:
    """Return what stands before the terms of memories that may be recalled in one place; None for everywhere."""
    return _digest(audience.bytes if audience else b"", 4) + SEPARATOR


def term_prefix(kind: MemoryKind, audience: UUID | None) -> str:
    """Return what stands before the terms of memories of one kind in one place.

    So a search reads what it may find there, and not what other places have. Two places with one prefix do no harm:
    whether a memory may be recalled is asked again when it is read.
    """
    return audience_mark(audience) + _digest(kind.value.encode(), 2) + SEPARATOR


PREFIX_LENGTH = len(term_prefix(MemoryKind.MESSAGE, None))


def split_stored(terms: str) -> tuple[list[str], str]:
    """Return the words of stored terms, and the term of their author; none of them and "" where nothing is stored."""
    if not terms:
        return [], ""
    *words, author = terms.replace(terms[:PREFIX_LENGTH], "").split(" ")
    if words and words[-1].startswith(SEPARATOR):  # the wording
        words.pop()
    return words, author


def stored_terms(kind: MemoryKind, text: str, author: UUID, audience: UUID | None) -> str:
    """Return the terms by which a memory is found, as they are stored; "" for a message without words."""
    terms = list(index_terms(text))
    if kind not in TRANSCRIPT_KINDS:
        terms.append(wording_term(text, author))
    if not terms:
        return ""
    prefix = term_prefix(kind, audience)
    return " ".join([prefix + term for term in (*terms, author_term(author))])


def recall_audience(memory: Memory) -> UUID | None:
    """Return the room or world in which a memory may be recalled; None for everywhere."""
    if memory.scope is MemoryScope.SHARED:
        return None
    return memory.world_id if memory.scope is MemoryScope.WORLD else memory.room_id


def memory_terms(memory: Memory) -> str:
    """Return the terms by which a memory is found, as they are stored; none of a message whose author is not read."""
    if memory.content.text == HIDDEN_TEXT:
        return ""
    return stored_terms(memory.kind, memory.content.text, memory.entity_id, recall_audience(memory))


def parse_question(query: SearchQuery) -> Question:
    """Return what a question asks for."""
    words = split_words(query.text)
    languages = find_languages(words)
    topics = question_terms(query.text)
    named = _find_named(query.people, topics)
    called = named.pop(query.asked, frozenset()) if query.asked is not None else frozenset()  # not asked about
    topics = {word: topics[word] for word in list(topics)[:MAX_TOPICS] if word not in called}
    if query.asker is not None and _has_any(words, "first_person", languages):
        named.setdefault(query.asker, frozenset({"the asker"}))
    for person, names in named.items():
        label = f"by {' '.join(sorted(names))}"
        topics[label] = topics.get(label, frozenset()) | {author_term(person)}
    return Question(topics, find_period(query.text), _has_any(words, "second_person", languages))


def _find_named(people: Iterable[Entity], words: Collection[str]) -> dict[UUID, frozenset[str]]:
    """Return who is named by which words: of people of one name, those whose other names are there too."""
    found = {
        person.id: names
        for person in people
        if (names := frozenset(word for name in person.names for word in split_words(name) if word in words))
    }
    return {person: names for person, names in found.items() if not any(names < other for other in found.values())}


def _has_any(words: Iterable[str], name: str, languages: Iterable[str]) -> bool:
    return any(not set(word_lists(name)[language]).isdisjoint(words) for language in languages)


def find_period(text: str) -> tuple[datetime, datetime] | None:
    """Return the beginning and the end of the day, month or year that a text names; None if it names no month or year.

    Without a year, the period is that of the year 1: it stands for every year.
    """
    if date := ISO_DATE.search(text):
        return _period(int(date[1]), int(date[2]), int(date[3] or 0))
    year_match = YEAR.search(text)
    year = int(year_match[1]) if year_match else 0
    words = split_words(text)
    for months in word_lists("months").values():
        for number, month in enumerate(months, 1):
            if month not in words:
                continue
            around = text.casefold().partition(month)
            day = DAY.search(around[0][-6:]) or DAY.match(around[2].lstrip(" ,."))
            if day or year or month not in AMBIGUOUS_MONTHS:
                return _period(year, number, int(day[1]) if day else 0)
    return _period(year) if year else None


def _period(year: int, month: int = 0, day: int = 0) -> tuple[datetime, datetime] | None:
    try:
        start = datetime(year or 1, month or 1, day or 1, tzinfo=UTC)
    except ValueError:  # 2026-13-45
        return None
    if day:
        return start, start + timedelta(days=1)
    days = monthrange(start.year, start.month)[1] if month else 365
    return start, start + timedelta(days=days)


def is_in_period(time: datetime, period: tuple[datetime, datetime]) -> bool:
    """Return whether something was written in a period or shortly afterwards."""
    start, end = period
    if start.year == 1:
        try:
            start, end = start.replace(year=time.year), start.replace(year=time.year) + (end - start)
        except ValueError:  # 29 February
            return False
    return start <= time < end + LATER


class Candidate(NamedTuple):
    """A line that may be found: its stemmed words, the term of its author ("" if it has no words), and its time.

    The time is in seconds since 1970: making a `datetime` of each takes longer than comparing them.
    """

    words: Sequence[str]
    author: str
    created_at: float


def idf(count: int, total: int) -> float:
    """Return how much a term counts that so many of all lines have."""
    return log(1 + (total - count + 0.5) / (count + 0.5))


def rank_candidates(
    question: Question,
    candidates: Mapping[int, Candidate],
    weights: Mapping[str, float],
    near: Mapping[int, float],
    neighbours: Mapping[int, Collection[int]],
    asked: UUID | None = None,
) -> list[tuple[int, float, dict[str, float]]]:
    """Return the positions of candidates with their scores and the parts of these, best first.

    Of equal lines, of one author for instance, the one that says more comes first, then the newest.

    `weights` has the IDF of each topic, `near` the similarities of the lines nearest in meaning, `neighbours` the lines
    of a conversation before and after some of them.
    """
    if not candidates:
        return []
    lengths = {position: len(line.words) for position, line in candidates.items()}
    mean_length = fmean(lengths.values()) or 1.0
    parts = {
        position: _match(question, line, weights, lengths[position] / mean_length)
        for position, line in candidates.items()
    }
    own = {position: sum(part.values()) for position, part in parts.items()}
    for position in candidates.keys() & neighbours.keys():
        close = [other for other in neighbours[position] if _are_close(candidates[position], candidates.get(other))]
        if lent := NEIGHBOURS_SHARE * sum(own[other] for other in close):
            parts[position]["neighbours"] = lent
    if near:
        _add_nearness(parts, near)
    if asked is not None and not question.is_addressed:
        own_author = author_term(asked)
        for position in (position for position, line in candidates.items() if line.author == own_author):
            parts[position] = {label: OWN_LINES * value for label, value in parts[position].items()}
    ranked = [(position, sum(part.values()), part) for position, part in parts.items() if part]
    return sorted(ranked, key=lambda item: (item[1], lengths[item[0]], item[0]), reverse=True)


def _match(question: Question, line: Candidate, weights: Mapping[str, float], length: float) -> dict[str, float]:
    """Return what each topic adds to the score of a line by BM25, and its time; `length` is relative to the mean."""
    found: dict[str, float] = {}
    norm, asked_for = K1 * (1 - B + B * length), question.terms.intersection([*line.words, line.author])
    for label, terms in question.topics.items() if asked_for else ():
        if line.author in terms:  # whose line it is does not depend on its length
            found[label] = weights[label]
        elif matched := terms & asked_for:
            count = max(map(line.words.count, matched))  # not their sum: a text may be stored with two stems of a word
            found[label] = weights[label] * count * (K1 + 1) / (count + norm)
    if question.period is not None and is_in_period(datetime.fromtimestamp(line.created_at, UTC), question.period):
        found["time"] = NAMED_TIME
    return found


def _are_close(line: Candidate, other: Candidate | None) -> bool:
    return other is not None and abs(line.created_at - other.created_at) <= MAX_NEIGHBOURS_GAP


def _add_nearness(parts: Mapping[int, dict[str, float]], near: Mapping[int, float]) -> None:
    """Add how near in meaning each line is: both scores are standardised among the candidates, and count alike.

    The deviation of the words' scores stays their unit, so nearness is brought to it.
    """
    least = min(near.values())
    similarities = {position: near.get(position, least) for position in parts}
    spread = _deviation(similarities.values())
    unit = _deviation([sum(part.values()) for part in parts.values()]) or 1.0
    for position, part in parts.items():
        if nearness := similarities[position] - least:
            part["meaning"] = nearness / spread * unit


def _deviation(values: Collection[float]) -> float:
    """Return the standard deviation; that of `statistics` computes with exact fractions, which is slow."""
    middle = fmean(values)
    return sqrt(fmean([(value - middle) ** 2 for value in values]))


def rank_memories(query: SearchQuery, memories: Sequence[Memory]) -> list[SearchResult]:
    """Return the memories of a list that a question means, best first, as a store finds them among all that it has."""
    question, counts = parse_question(query), Counter[str]()
    candidates: dict[int, Candidate] = {}
    for number, memory in enumerate(memories):
        words, author = index_terms(memory.content.text), author_term(memory.entity_id)
        matched = [label for label, wanted in question.topics.items() if not wanted.isdisjoint((*words, author))]
        if matched:
            counts.update(matched)
            candidates[number] = Candidate(words, author, memory.created_at.timestamp())
    weights = {label: idf(counts[label], len(memories)) for label in question.topics}
    ranked = rank_candidates(question, candidates, weights, {}, {}, query.asked)
    return [SearchResult(memories[number], score, parts) for number, score, parts in ranked]


def group_by_topic(
    memories: Iterable[Memory], people: Iterable[Entity] = (), question: Sequence[float] | None = None
) -> list[list[Memory]]:
    """Return memories in groups of one author and one topic, each in the order of time, the groups as they came.

    `people` are those whose names tell nothing of a topic, `question` is the vector of the question that found them.
    """
    names = {term for person in people for name in person.names for term in index_terms(name)}
    groups: list[list[Memory]] = []
    for memory in memories:
        for group in groups:
            is_same_author = group[0].entity_id == memory.entity_id
            if is_same_author and any(_share_topic(memory, item, names, question) for item in group):
                group.append(memory)
                break
        else:
            groups.append([memory])
    return [sorted(group, key=lambda memory: memory.created_at) for group in groups]


def _share_topic(first: Memory, second: Memory, names: set[str], question: Sequence[float] | None) -> bool:
    """Return whether two memories that a question found are about the same thing.

    With vectors: whether they are nearer to one another than either is to the question. Otherwise whether they share a
    third of the terms of the shorter one: more than two texts of some words share by chance.
    """
    if question is not None and first.embedding is not None and second.embedding is not None:
        similarities = [cosine(question, vector) for vector in (first.embedding, second.embedding)]
        return cosine(first.embedding, second.embedding) >= max(similarities)
    terms = [set(index_terms(memory.content.text)) - names for memory in (first, second)]
    return 3 * len(terms[0] & terms[1]) >= min(map(len, terms)) > 0
