"""Two judgements with trained weights: which earlier line a line corrects, and whether what was found answers at all.

`python -m benchmarks.train_recall` makes the weights file from the half of the generated topics that is for tuning.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, log1p, sqrt
from operator import mul

from plugins.bootstrap.recall.index import ConversationIndex, IndexedLine
from plugins.bootstrap.recall.words import related_words

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
