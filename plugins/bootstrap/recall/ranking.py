"""Rank the lines of a conversation by how likely they answer a question; no model is needed.

Two judgements with trained weights: which earlier line a line corrects, and whether what was found answers at all.

`python -m benchmarks.train_recall` makes the weights file from the half of the generated topics that is for tuning.

Search in the conversations of rooms: an index for each room that was asked about, which follows its messages.
"""

import asyncio
import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from heapq import nlargest
from importlib.resources import files
from itertools import takewhile
from math import exp, log1p, sqrt
from operator import mul
from uuid import UUID

from bot import Agent, Memory, MemoryKind, RecallScope, Service, Turn, on
from bot.events import ChannelCleared, EntityErased, MessageDeleted, MessageEdited, RoomMigrated
from bot.models import ModelError, ModelType
from bot.platform import BoundedDict
from bot.store import ListedMessage, MessageFilter, PageKey
from bot.text import is_blank
from plugins.bootstrap.recall.index import ConversationIndex, IndexedLine, Line, RelatedWords, related_words
from plugins.bootstrap.recall.question import AskedTime, Question, parse_question

WEIGHTS_NAME = "weights.json"
CORRECTION_FEATURES = (
    "words_alike",
    "best_word_alike",
    "meaning_alike",
    "lines_between",
    "is_personal",
    "richness",
    "is_question",
    "same_kinds",
    "other_kinds",
    "newer_is_personal",
    "newer_richness",
    "newer_kinds",
    "same_shapes",
)
ANSWER_FEATURES = ("score", "coverage", "known_words", "statement_coverage", "words")
MAX_EARLIER = 40  # lines of the author that a line may correct: an elliptic correction comes soon
RICH_LINE = 20.0  # rarity of all words of a line that tells something
MIN_LIKENESS, SCALE, MAX_RICHNESS = 0.15, 10.0, 1.5
MIN_KEPT = 0.01  # less likely corrections are not remembered
_MONEY = re.compile(r"[$€£¥]|\b(?:euros?|dollars?|bucks|pounds|francs?|crowns)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[\w,:;] )(?!I\b)[^\W\d_a-zà-ÿ][^\W\d_]+")

_SHAPED_NUMBER, _DIGIT = re.compile(r"\d+(?:[^\w\s]\d+)+"), re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class JudgingWeights:
    """The weights of both judgements, in the order of their features; `*_bias` belongs to "none of them"."""

    correction: tuple[float, ...]
    no_correction: float
    answer: tuple[float, ...]
    answer_bias: float


@cache
def load_weights() -> JudgingWeights:
    """Return the weights that are part of the package. Raises ValueError if they are for other features."""
    text = files("plugins.bootstrap.recall").joinpath(WEIGHTS_NAME).read_text(encoding="utf-8")
    stored = json.loads(text)
    if (tuple(stored["correction"]), tuple(stored["answer"])) != (CORRECTION_FEATURES, ANSWER_FEATURES):
        raise ValueError(f"{WEIGHTS_NAME} was trained for other features; run python -m benchmarks.train_recall")
    return JudgingWeights(
        tuple(stored["correction"].values()),
        stored["no_correction"],
        tuple(stored["answer"].values()),
        stored["answer_bias"],
    )


def is_answered(features: Sequence[float], weights: JudgingWeights) -> bool:
    """Return whether what was found likely answers a question; `features` are as ANSWER_FEATURES names them."""
    value: float = sum(map(mul, features, weights.answer))
    return value + weights.answer_bias >= 0


def find_corrections(index: ConversationIndex, older: int, weights: JudgingWeights) -> dict[int, float]:
    """Return which of the author's next lines correct a line, by their numbers, with how likely each does so."""
    own = index.of_speaker[index.lines[older].speaker]
    place = bisect_left(own, older)
    found = {}
    for newer in own[place + 1 : place + 1 + MAX_EARLIER]:
        if share := _corrected_by(index, newer, weights).get(older):
            found[newer] = share
    return found


def _corrected_by(index: ConversationIndex, newer: int, weights: JudgingWeights) -> Mapping[int, float]:
    """Return how likely a line corrects each earlier line of its author; remembered in the index."""
    known = index.corrections.get(newer)
    if known is not None:
        return known
    shares: dict[int, float] = {}
    line = index.lines[newer]
    if line.is_update and not line.is_question:
        earlier, cases = correction_cases(index, newer)
        values = [exp(sum(map(mul, features, weights.correction))) for features in cases]
        total = sum(values) + exp(weights.no_correction)
        pairs = zip(earlier, values, strict=True)
        shares = {older: value / total for older, value in pairs if value >= MIN_KEPT * total}
    index.corrections[newer] = shares
    return shares


def correction_cases(index: ConversationIndex, newer: int) -> tuple[list[int], list[tuple[float, ...]]]:
    """Return the earlier lines of the same author, and the features of each as what the line may correct."""
    line = index.lines[newer]
    own = index.of_speaker[line.speaker]
    place = bisect_left(own, newer)
    earlier = list(own[max(0, place - MAX_EARLIER) : place])
    kinds, norm = _kinds(line), sqrt(_likeness(index, line, line)[2])
    cases: list[tuple[float, ...]] = []
    shapes = _shapes(line)
    own_features = float(line.is_personal), min(richness(index, line), MAX_RICHNESS), float(sum(kinds))
    for distance, number in zip(range(len(earlier), 0, -1), earlier, strict=True):
        other = index.lines[number]
        alike, best, product = _likeness(index, line, other)
        length = norm * sqrt(_likeness(index, other, other)[2]) if product > 0 else 0.0
        theirs = _kinds(other)
        cases.append(
            (
                alike / SCALE,
                best / SCALE,
                product / length if length else 0.0,
                log1p(distance),
                float(other.is_personal),
                min(richness(index, other), MAX_RICHNESS),
                float(other.is_question),
                float(sum(map(mul, kinds, theirs))),
                float(sum(own_kind != their_kind for own_kind, their_kind in zip(kinds, theirs, strict=True))),
                *own_features,
                float(not shapes.isdisjoint(_shapes(other))),
            )
        )
    return earlier, cases


def richness(index: ConversationIndex, line: IndexedLine) -> float:
    """Return how rare the words of a line are together; 1 for one that tells something."""
    return sum(map(index.stem_rarity, line.stems)) / RICH_LINE


def _likeness(index: ConversationIndex, line: IndexedLine, other: IndexedLine) -> tuple[float, float, float]:
    """Return how alike the words of two lines are: together, the best pair, and the product of their meanings."""
    table = related_words(index.stems.language)
    rarities = [(stem, index.stem_rarity(stem)) for stem in other.stems]
    total = best = product = 0.0
    for stem in line.stems:
        rarity, likeness = index.stem_rarity(stem), table.likeness_to(stem)
        nearest = 0.0
        for their_stem, their_rarity in rarities:
            alike = likeness(their_stem)
            product += alike * rarity * their_rarity
            if alike > MIN_LIKENESS:
                nearest = max(nearest, (alike - MIN_LIKENESS) * min(rarity, their_rarity))
        total += nearest
        best = max(best, nearest)
    return total, best, product


def _kinds(line: IndexedLine) -> tuple[bool, ...]:
    """Return which kinds of value a line may tell: a time, a number, money, a name."""
    return line.has_time, line.has_number, _MONEY.search(line.text) is not None, _NAME.search(line.text) is not None


def _shapes(line: IndexedLine) -> frozenset[str]:
    """Return the shapes of the numbers of a line, with 0 for each digit: "31/34" and "7:45" have one of their own."""
    return frozenset(_DIGIT.sub("0", found) for found in _SHAPED_NUMBER.findall(line.text))


MAX_POSTINGS = 6_000  # of all words of a question: the most frequent words of a large room only re-rank
MAX_CANDIDATES, MAX_PERSON_LINES = 120, 80
EQUAL = 0.999  # a likeness as of the same stem
CORRECTED_LINES, MAX_CORRECTIONS = 20, 3  # of so many first lines, so many corrections of each are looked for
SMALL_ROOM = 3_000  # lines: of these all lines of a named person are compared


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each sign counts; chosen by `python -m benchmarks.tuning` and by hand."""

    related: float = 0.6
    min_likeness: float = 0.21
    length: float = 0.07  # of BM25: how much a long line loses
    before: float = 0.3
    after: float = 0.102
    further: float = 0.36
    speaker: float = 0.504
    statement: float = 0.8
    question_line: float = 0.36
    answer: float = 0.6  # of what the one who is asked said: it often repeats the words of others
    number: float = 0.96
    time: float = 0.72
    date: float = 0.2
    latest: float = 0.1
    recency: float = 0.15
    update: float = 0.2
    pair: float = 0.17
    coverage: float = 0.07
    common: float = 0.2  # how much a line loses for each other line of the same words: small talk comes again
    repeated: float = 0.6
    corrected: float = 0.25
    same_topic: float = 0.1
    correction: float = 0.03  # how likely a line must correct another to come before it
    meaning: float = 1.5  # of how near in meaning a line is, where an embedding model tells it


@dataclass(frozen=True, slots=True)
class Ranked:
    """A line that may answer a question; `reasons` name the stems and signs that it was found by."""

    id: Hashable
    score: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Topic:
    """A word of a question: its rarity in the conversation, and how alike other words are."""

    stem: str
    rarity: float
    likeness: Callable[[str], float]


def rank_lines(
    index: ConversationIndex,
    text: str,
    *,
    asker: str = "",
    asked: str = "",
    limit: int = 20,
    weights: Weights | None = None,
    meanings: Mapping[Hashable, float] | None = None,
) -> list[Ranked]:
    """Return the lines that most likely answer a question, best first; none if its topic never came up.

    `asker` and `asked` are the speakers who asks it, and whom: a question that begins with the name of the latter is
    not about them.
    `meanings` has, by the ids of lines, how near in meaning to the question they are, from 0 to 1.
    """
    if not index.lines or limit <= 0:
        return []
    question = parse_question(text, asker, index.speakers, index.stems, asked=asked)
    return Ranking(index, question, weights or Weights(), meanings).best(limit)


def compare_nearness(similarities: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return how near in meaning lines are, from 0 to 1, by the cosine similarities of the nearest lines.

    What is left of the similarity beyond that of the last of them: models differ in how alike they find any two lines.
    """
    least = min(similarities.values(), default=1.0)
    return {key: (value - least) / (1 - least) for key, value in similarities.items() if value > least}


class Ranking:
    """One question to one conversation."""

    def __init__(
        self,
        index: ConversationIndex,
        question: Question,
        weights: Weights,
        meanings: Mapping[Hashable, float] | None = None,
    ) -> None:
        self._index, self._question, self._weights = index, question, weights
        table = related_words(index.stems.language)
        self._topics = [
            _Topic(stem, index.rarity(len(index.postings(stem))), table.likeness_to(stem)) for stem in question.stems
        ]
        self._total = sum(topic.rarity for topic in self._topics)
        self._unit = self._total / len(self._topics) if self._topics else index.rarity(1)
        names = question.names.union(*(index.names[person] for person in question.people))
        self._name_stems = {index.stems.of(name) for name in names} - {""}
        self._found = self._find_by_words(table)
        self._mean_length, self._numbers = index.mean_length, range(len(index.lines))
        self._stem_values: dict[str, tuple[tuple[int, float], ...]] = {}
        self._shares: dict[int, float] = {}
        self._scores: dict[int, float] = {}
        self._meanings: dict[int, float] = {}
        if meanings:
            self._meanings = {n: meanings[line.id] for n, line in enumerate(index.lines) if line.id in meanings}

    def best(self, limit: int) -> list[Ranked]:
        """Return the best lines."""
        near = self.find_candidates()
        if self._is_never_said(near):
            return []
        near |= self._meanings.keys()
        scores = {number: score for number in near if (score := self._score(number) + self._meaning_score(number)) > 0}
        ranked = nlargest(limit * 5, scores, key=lambda number: (scores[number], number))
        if not self._question.wants_original and (self._question.wants_latest or not self._question.is_past):
            for number in ranked:
                scores[number] *= 1 + self._weights.update * self._index.lines[number].is_update
            ranked.sort(key=lambda number: (-scores[number], -number))
        ordered = self._with_newer_first(self._with_repetitions_last(ranked)[: limit * 3], scores)[:limit]
        return [
            Ranked(self._index.lines[number].id, scores.get(number, 0.0), self._reasons(number)) for number in ordered
        ]

    def _with_repetitions_last(self, ranked: Sequence[int]) -> list[int]:
        """Move what the same person says in the same words as in a line before it behind all others."""
        seen = set[tuple[str, tuple[str, ...]]]()
        first, again = list[int](), list[int]()
        for number in ranked:
            said = self._index.lines[number].speaker, self._index.lines[number].stems
            (again if said in seen else first).append(number)
            seen.add(said)
        return first + again

    def _with_newer_first(self, ranked: Sequence[int], scores: Mapping[int, float]) -> list[int]:
        """Move what repeats or corrects a line with another value ahead of it: the latest such line of the person."""
        if self._question.wants_original:
            return list(ranked)
        ordered: list[int] = []
        limit = CORRECTED_LINES if len(self._index.lines) <= SMALL_ROOM else CORRECTED_LINES // 4
        for number in ranked:
            if number in ordered:
                continue
            newer = [other for other in ranked if other not in ordered and self._corrects(other, number, scores)]
            if newer:
                ordered.append(max(newer))
            if len(ordered) < limit:
                ordered += self._corrections_of(number, ordered)
            if number not in ordered:
                ordered.append(number)
        return ordered

    def _corrections_of(self, number: int, ordered: Sequence[int]) -> list[int]:
        """Return the lines that most likely correct a line in words that need not be those of the question."""
        found, least = find_corrections(self._index, number, load_weights()), self._weights.correction
        likely = [newer for newer, share in found.items() if share >= least and newer not in ordered]
        return sorted(nlargest(MAX_CORRECTIONS, likely, key=lambda newer: found[newer]), reverse=True)

    def _corrects(self, newer: int, older: int, scores: Mapping[int, float]) -> bool:
        line, weights = self._index.lines[newer], self._weights
        if newer <= older or line.speaker != self._index.lines[older].speaker or line.is_question:
            return False
        words = self._words_of(older)
        if words and words <= self._words_of(newer) and scores[newer] >= weights.repeated * scores[older]:
            return True
        is_near = self._shared(newer) >= weights.same_topic * self._shared(older)
        return line.is_update and is_near and scores[newer] >= weights.corrected * scores[older]

    def _words_of(self, number: int) -> set[str]:
        """Return the words of the question that a line has in any form."""
        return {*self._question.stems}.intersection(self._index.lines[number].stems)

    def _find_by_words(self, table: RelatedWords) -> dict[int, float]:
        """Return lines with a word of the question or a near one, with a first estimate of their scores."""
        weights, index = self._weights, self._index
        entries = []
        for topic in self._topics:
            near = {other: weights.related * likeness for other, likeness in table.nearest(topic.stem).items()}
            for stem, factor in (near | {topic.stem: 1.0}).items():
                if postings := index.postings(stem):
                    entries.append((len(postings), factor * min(topic.rarity, index.rarity(len(postings))), postings))
        entries.sort(key=lambda entry: entry[0])
        found: defaultdict[int, float] = defaultdict(float)
        read = 0
        for count, value, postings in entries:
            if read + count > MAX_POSTINGS:
                postings = postings[-(MAX_POSTINGS - read) :] if read < MAX_POSTINGS else ()
            read += len(postings)
            for number in postings:
                found[number] += value
        return found

    def find_candidates(self) -> set[int]:
        """Return the best lines by words with their neighbours, and what named people said or what was said of them."""
        index, found, people = self._index, self._found, self._question.people
        is_small = len(index.lines) <= SMALL_ROOM

        def estimate(number: int) -> tuple[float, int]:
            return found[number] * (1 + (index.lines[number].speaker in people)), number

        best = nlargest(MAX_CANDIDATES * (1 + is_small), found, key=estimate)
        candidates = {near for number in best for near in (number - 1, number, number + 1)} if is_small else set(best)
        for number in best[: MAX_CANDIDATES // 5]:
            candidates.update(range(number - 2, number + 3))
        limit = SMALL_ROOM if is_small else MAX_PERSON_LINES
        for person in people:
            candidates.update(index.of_speaker[person][-limit:])
        for stem in self._name_stems:
            candidates.update(index.postings(stem)[-limit:])
        return {number for number in candidates if number in self._numbers and index.lines[number].id is not None}

    def _compute_values(self, stem: str) -> tuple[tuple[int, float], ...]:
        """Return what a stem contributes to each word of the question, by the number of that word."""
        weights = self._weights
        values = []
        for number, topic in enumerate(self._topics):
            likeness = topic.likeness(stem)
            if likeness < EQUAL:
                likeness = weights.related * (likeness - weights.min_likeness) / (1 - weights.min_likeness)
            if likeness > 0:
                values.append((number, likeness * topic.rarity))
        return tuple(values)

    def _match(self, number: int) -> dict[int, float]:
        """Return how much a line has of each word of the question, up to its rarity."""
        matched: dict[int, float] = {}
        known = self._stem_values
        for stem in self._index.lines[number].stems:
            values = known.get(stem)
            if values is None:
                values = known[stem] = self._compute_values(stem)
            for topic, value in values:
                if value > matched.get(topic, 0.0):
                    matched[topic] = value
        return matched

    def _shared(self, number: int) -> float:
        """Return how much a line has of all words of the question."""
        known = self._shares.get(number)
        if known is None:
            known = self._shares[number] = sum(self._match(number).values())
        return known

    def _words_score(self, number: int) -> float:
        """Return the score of the words of a line, as BM25 has it for words that occur once."""
        if number not in self._numbers or not (share := self._shared(number)):
            return 0.0
        weights = self._weights
        length = len(self._index.lines[number].stems) / self._mean_length
        return share * 2.2 / (1 + 1.2 * (1 - weights.length + weights.length * length))

    def _score(self, number: int) -> float:
        known = self._scores.get(number)
        if known is None:
            known = self._scores[number] = self._compute_score(number)
        return known

    def _meaning_score(self, number: int) -> float:
        nearness = self._meanings.get(number, 0.0)
        return self._weights.meaning * nearness * self._total * self._factor(number) if nearness else 0.0

    def _compute_score(self, number: int) -> float:
        weights, line = self._weights, self._index.lines[number]
        own = self._words_score(number)
        if own:
            own *= 1 + weights.coverage * self._shared(number) / self._total
        near = weights.before * self._words_score(number - 1) + weights.after * self._words_score(number + 1)
        near += weights.further * (self._words_score(number - 2) + self._words_score(number + 2))
        score = (own + near) * self._factor(number) + self._unit * self._bonus(line)
        return score * self._distinctness(line)

    def _distinctness(self, line: IndexedLine) -> float:
        """Return 1 for a line whose words were said once, less for what is said again and again."""
        return 1 / (1 + self._weights.common * (self._index.times_said[line.stems] - 1))

    def _is_about(self, line: IndexedLine) -> bool:
        """Return whether a line has a name of the question, other than to address that person."""
        if self._name_stems.isdisjoint(line.stems):
            return False
        named = self._name_stems.intersection(line.stems)
        return not named <= {self._index.stems.of(word) for word in line.called}

    def _factor(self, number: int) -> float:
        """Return by how much the speaker, the form and the time of a line raise its score."""
        weights, question, line = self._weights, self._question, self._index.lines[number]
        factor = 1.0
        if line.speaker in question.people:
            factor += weights.speaker
        if line.is_question:
            factor -= weights.question_line
        if line.speaker == question.asked and line.speaker not in question.people:
            factor *= weights.answer
        share = number / len(self._index.lines)
        if question.wants_original:
            return factor + weights.latest * (1 - share)
        if question.wants_latest or not question.is_past:
            factor += (weights.latest if question.wants_latest else weights.recency) * share
        return factor

    def _bonus(self, line: IndexedLine) -> float:
        """Return what a line gains by a statement, a time or a number that may be asked for."""
        weights, question = self._weights, self._question
        bonus = weights.time * (question.wants_time and line.has_time)
        bonus += weights.number * (question.wants_number and line.has_number)
        if question.people and not line.is_question:
            is_own = line.speaker in question.people and line.is_personal
            if is_own or self._is_about(line):
                bonus += weights.statement * (0.3 + min(1.0, richness(self._index, line)))
        if question.time is not None and line.time is not None and _is_near(question.time, line):
            bonus += weights.date * len(self._topics)
        if question.pairs and len(line.stems) > 1:
            following = set(zip(line.stems, line.stems[1:], strict=False))
            bonus += weights.pair * sum(pair in following for pair in question.pairs)
        return bonus

    def _reasons(self, number: int) -> tuple[str, ...]:
        matched = self._match(number)
        return tuple(self._topics[topic].stem for topic in sorted(matched, key=lambda topic: -matched[topic]))

    def answer_features(self, near: Iterable[int]) -> tuple[float, ...] | None:
        """Return what tells whether any of some lines answers the question, as ANSWER_FEATURES names it.

        None if the question is about a time or has no words to judge by.
        """
        if not self._topics or self._question.time is not None:
            return None
        people, lines = self._question.people, self._index.lines
        score = coverage = statement = 0.0
        for number in near:
            line = lines[number]
            is_about = bool(people) and line.speaker not in people and self._is_about(line)
            if line.is_question or (people and line.speaker not in people and not is_about):
                continue
            score = max(score, self._score(number) / self._total)
            share = self._shared(number) / self._total
            if share <= statement:  # which is never above the coverage
                continue
            share *= self._distinctness(line)
            coverage = max(coverage, share)
            if share > statement and (not people or is_about or line.is_personal):
                statement = max(statement, share * min(1.0, richness(self._index, line)))
        known = sum(topic.rarity for topic in self._topics if self._is_stated(topic.stem)) / self._total
        return score, coverage, known, statement, len(self._topics) / 5

    def _is_stated(self, stem: str) -> bool:
        """Return whether a word occurs in a line that is no question, of the latest that have it."""
        latest = self._index.postings(stem)[-MAX_POSTINGS:]
        return any(not self._index.lines[number].is_question for number in latest)

    def _is_never_said(self, near: set[int]) -> bool:
        """Return whether no line is likely to tell what a question is about."""
        features = self.answer_features(near)
        if features is None:
            return not self._topics and not self._question.people
        return not is_answered(features, load_weights())


def _is_near(asked: AskedTime, line: IndexedLine) -> bool:
    """Return whether a line was said at a time or shortly afterwards."""
    time = line.time
    if time is None or (asked.year is not None and asked.year != time.year):
        return False
    if asked.month is None:
        return True
    if asked.month != time.month:
        return asked.day is None and time.month == asked.month % 12 + 1 and time.day <= 10
    return asked.day is None or 0 <= time.day - asked.day <= 7


MAX_ROOMS = 16
MAX_LINES = 100_000  # of a room: older ones are not searched
PAGE_SIZE = 500
MAX_EDITED = 1_000  # messages of a room between two questions: more are read again
MAX_NEAR = 50  # messages near in meaning: the last of them is as near as any message is by chance


@dataclass(slots=True)
class _RoomIndex:
    """The index of a room, empty until it is built, and what was edited or deleted since the last question."""

    index: ConversationIndex = field(default_factory=ConversationIndex)
    last_key: PageKey | None = None  # of the last message in the index
    edited: dict[UUID, str] = field(default_factory=dict)  # the new texts, "" of deleted messages
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RoomRecall(Service):
    """Finds what was said in a room. An index is built at the first question, and follows what is said and edited."""

    uses_models = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._rooms: BoundedDict[UUID, _RoomIndex] = BoundedDict(MAX_ROOMS, _RoomIndex)

    async def search(self, turn: Turn, question: str, limit: int) -> list[Memory]:
        """Return the messages of the turn's room that most likely answer a question, best first.

        They are read from the store again, so that nothing is quoted that was deleted or edited meanwhile. Of two
        rooms, neither is ever searched for the other.
        """
        index = await self._follow(turn.room.id, {item.message.id for item in turn.inputs})
        meanings = await self._find_by_meaning(turn, question)
        asker, asked = str(turn.author.id), str(self.agent.id)
        ranked = rank_lines(index, question, asker=asker, asked=asked, limit=limit, meanings=meanings)
        wanted = [line.id for line in ranked if isinstance(line.id, UUID)]
        stored = await self.agent.store.memories.memories(wanted)
        return [stored[memory_id] for memory_id in wanted if memory_id in stored]

    def note_edit(self, room_id: UUID, message_id: UUID, text: str) -> None:
        """Note the new text of a message, "" if it was deleted; the next question sees it."""
        room = self._rooms.get(room_id)
        if room is None:
            return
        room.edited[message_id] = text
        if len(room.edited) > MAX_EDITED:
            self.forget(room_id)

    def forget(self, room_id: UUID) -> None:
        """Drop the index of a room; the next question builds it anew."""
        self._rooms.pop(room_id, None)

    def forget_all(self) -> None:
        """Drop all indexes."""
        self._rooms.clear()

    async def _follow(self, room_id: UUID, asking: Collection[UUID]) -> ConversationIndex:
        """Return the index of a room with its messages up to those that ask: a question is no answer to itself."""
        if room_id in self._rooms and len(self._rooms[room_id].index.lines) > 2 * MAX_LINES:
            self.forget(room_id)
        room = self._rooms[room_id]
        async with room.lock:
            if room.last_key is None:
                await self._build(room, room_id, asking)
            await self._add_new(room, room_id, asking)
            edited, room.edited = room.edited, {}
            for message_id, text in edited.items():
                if not room.index.replace(message_id, "" if is_blank(text) else text):
                    self.forget(room_id)
        return room.index

    async def _add_new(self, room: _RoomIndex, room_id: UUID, asking: Collection[UUID]) -> None:
        """Add the messages that came since the last question."""
        page = None
        while room.last_key is not None and (page is None or page.next is not None):
            page = await self.agent.store.lists.messages_after(room_id, room.last_key, PAGE_SIZE)
            before = list(takewhile(lambda item: item[1].memory.id not in asking, page.items))
            room.index.add(await self._read_lines([item for _, item in before]))
            if before:
                room.last_key = before[-1][0]
            if len(before) < len(page.items):
                break

    async def _build(self, room: _RoomIndex, room_id: UUID, asking: Collection[UUID]) -> None:
        """Build the index of the last messages of a room before those that ask."""
        pages: list[list[Line]] = []
        before: PageKey | None = None
        last_key: PageKey | None = None
        while sum(map(len, pages)) < MAX_LINES:
            page = await self.agent.store.lists.messages(room_id, MessageFilter(), before=before, limit=PAGE_SIZE)
            items = list(page.items)
            if last_key is None:
                newest = 1 + max((n for n, (_, item) in enumerate(items) if item.memory.id in asking), default=-1)
                items = items[newest:]
                last_key = items[0][0] if items else None
            pages.append(await self._read_lines([item for _, item in reversed(items)]))
            before = page.next
            if before is None:
                break
        index = ConversationIndex(pages[0])  # the newest page tells the language
        if len(pages) > 1:
            index = ConversationIndex(language=index.stems.language)
            for lines in reversed(pages):
                index.add(lines)
                await asyncio.sleep(0)
        room.index, room.last_key = index, last_key or (0,)

    async def _read_lines(self, items: Sequence[ListedMessage]) -> list[Line]:
        messages = [item.memory for item in items if not is_blank(item.memory.content.text)]
        authors = {message.entity_id for message in messages} - {self.agent.id}
        people = await self.agent.store.entities.entities(authors) if authors else {}
        names = {entity.id: entity.name for entity in people.values()}
        names[self.agent.id] = f"{self.agent.name} {self.agent.character.username}".rstrip()
        return [
            Line(
                message.id,
                str(message.entity_id),
                names.get(message.entity_id, ""),
                message.content.text,
                message.created_at,
            )
            for message in messages
        ]

    async def _find_by_meaning(self, turn: Turn, question: str) -> dict[Hashable, float]:
        """Return how near in meaning the nearest messages are, if there is an embedding model."""
        models = self.agent.models
        if not models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return {}
        with suppress(ModelError):  # the words alone decide
            result = await models.embed([question], is_question=True)
            scope = RecallScope(turn.room.id, turn.world.id)
            matches = await self.agent.store.memories.recall(
                result.vectors[0], result.model, scope, MemoryKind.MESSAGE, MAX_NEAR
            )
            in_room = [match for match in matches if match.memory.room_id == turn.room.id]
            return compare_nearness({match.memory.id: match.similarity for match in in_room})
        return {}


@on(MessageEdited)
def on_message_edited(agent: Agent, event: MessageEdited) -> None:
    """Note the new text for the index; a message that had none is not in it."""
    message, recall = event.message, agent.services[RoomRecall]
    if is_blank(event.previous.content.text):
        recall.forget(message.room_id)
    else:
        recall.note_edit(message.room_id, message.id, message.content.text)


@on(MessageDeleted)
def on_message_deleted(agent: Agent, event: MessageDeleted) -> None:
    """Note for the index that the message is gone."""
    agent.services[RoomRecall].note_edit(event.room_id, event.message_id, "")


@on(ChannelCleared)
def on_room_cleared(agent: Agent, event: ChannelCleared) -> None:
    """Forget the index of the room."""
    agent.services[RoomRecall].forget(event.room_id)


@on(RoomMigrated)
def on_room_migrated(agent: Agent, event: RoomMigrated) -> None:
    """Forget the index under the room's earlier id."""
    agent.services[RoomRecall].forget(event.room_id)


@on(EntityErased)
def on_entity_erased(agent: Agent, event: EntityErased) -> None:
    """Forget everything that a person may have said."""
    agent.services[RoomRecall].forget_all()
