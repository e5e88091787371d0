"""Train what recall judges by: `python -m benchmarks.train_recall` writes weights.json and change_words.json.

It reads only the topics, the corrections and the questions about what was never said of the half that is for tuning.
The same generator leads to the same file, byte for byte; numpy is needed (in the dependency group `training`).
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from benchmarks.group_talks import CHATTER, generate_talks, load_half, small_talk
from benchmarks.recall import build_index
from plugins.bootstrap.recall import index, ranking
from plugins.bootstrap.recall.index import change_words
from plugins.bootstrap.recall.question import parse_question
from plugins.bootstrap.recall.ranking import ANSWER_FEATURES, CORRECTION_FEATURES, Ranking, Weights, correction_cases

TALKS, DIGITS = 48, 3
FALSE_EMPTINESS = 0.04  # of answered questions in the tuning half; the limit of 0.05 is for unseen topics
STEPS, RATE, PENALTY = 400, 0.05, 0.003
ANSWER_STEPS, ANSWER_RATE, ANSWER_PENALTY = 2_000, 0.5, 0.01
CHANGE_STEPS, CHANGE_RATE, CHANGE_PENALTY = 600, 1.0, 0.003
MIN_TOPICS = 5  # a word of fewer topics says more of its topic than of a change
VALUE = "|"  # no word
SOURCE = "Trained on the tuning half of the generated group talks by python -m benchmarks.train_recall."
Group = tuple[list[tuple[float, ...]], int | None]
Case = tuple[tuple[float, ...], bool]


def main() -> int:
    """Write the weights files: first the words of changes, since the other weights depend on them."""
    words, bias = train_changes(load_half("tune")["topic"])
    _write(index.WEIGHTS_NAME, {"words": words, "bias": bias})
    talks = generate_talks("tune", count=TALKS)
    correction, no_correction = train_corrections([group for talk in talks for group in find_groups(talk)])
    answer, answer_bias = train_answers([case for talk in talks for case in find_cases(talk)])
    stored = {
        "correction": dict(zip(CORRECTION_FEATURES, correction, strict=True)),
        "no_correction": no_correction,
        "answer": dict(zip(ANSWER_FEATURES, answer, strict=True)),
        "answer_bias": answer_bias,
    }
    _write(ranking.WEIGHTS_NAME, stored)
    return 0


def _write(name: str, stored: Mapping[str, Any]) -> None:
    path = Path(ranking.__file__).with_name(name)
    path.write_text(json.dumps({"source": SOURCE, **stored}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def train_changes(topics: Sequence[Mapping[str, Sequence[str]]]) -> tuple[dict[str, float], float]:
    """Return weights of words by which a line tells of a change, and a bias: a logistic regression."""
    numpy = import_module("numpy")
    random = Random(1)
    lines = [(change_words(small_talk(random, template)), False) for template in CHATTER]
    counts = Counter[str]()
    for topic in topics:
        examples = [(line, kind == "changed") for kind in ("said", "about", "changed") for line in topic[kind]]
        found = [(change_words(line.format(v=VALUE, p=VALUE)), is_change) for line, is_change in examples]
        counts.update(set[str]().union(*(words for words, _ in found)))
        lines += found
    known = sorted(word for word, count in counts.items() if count >= MIN_TOPICS)
    data = numpy.array([[float(word in words) for word in known] for words, _ in lines])
    truth = numpy.array([float(is_change) for _, is_change in lines])
    weights, bias = numpy.zeros(len(known)), 0.0
    for _ in range(CHANGE_STEPS):
        slope = 1 / (1 + numpy.exp(-(data @ weights + bias))) - truth
        weights -= CHANGE_RATE * (data.T @ slope / len(lines) + CHANGE_PENALTY * weights)
        bias -= CHANGE_RATE * slope.mean()
    return dict(zip(known, (round(float(weight), DIGITS) for weight in weights), strict=True)), round(
        float(bias), DIGITS
    )


def find_groups(talk: dict[str, Any]) -> Iterator[Group]:
    """Yield for each line that tells of a change its author's earlier lines, as features, and which it corrects.

    Of the lines that correct nothing, one of three is taken.
    """
    index = build_index(talk["turns"])
    numbers = {line.id: number for number, line in enumerate(index.lines)}
    changed = [question for question in talk["questions"] if question.get("superseded")]
    corrected = {numbers[each["evidence"][0]]: numbers[each["superseded"][0]] for each in changed}
    for newer, line in enumerate(index.lines):
        if not line.is_update or line.is_question:
            continue
        older = corrected.get(newer)
        if older is None and crc32(line.text.encode()) % 3:
            continue
        earlier, cases = correction_cases(index, newer)
        if cases:
            yield cases, earlier.index(older) if older in earlier else None


def find_cases(talk: dict[str, Any]) -> Iterator[Case]:
    """Yield for each question what tells whether it is answered, and whether it is."""
    index = build_index(talk["turns"])
    for question in talk["questions"]:
        parsed = parse_question(question["question"], question["asker"], index.speakers, index.stems)
        ranking = Ranking(index, parsed, Weights())
        features = ranking.answer_features(ranking.find_candidates())
        if features is not None:
            yield features, bool(question["evidence"])


def train_corrections(groups: Sequence[Group]) -> tuple[list[float], float]:
    """Return the weights of a choice among an author's earlier lines and "none", and the weight of "none"."""
    numpy = import_module("numpy")
    count = len(CORRECTION_FEATURES)
    weights, mean, spread = numpy.zeros(count + 1), numpy.zeros(count + 1), numpy.zeros(count + 1)
    tables = [(numpy.array([(*case, 0.0) for case in cases] + [(0.0,) * count + (1.0,)]), at) for cases, at in groups]
    for _ in range(STEPS):
        slope = PENALTY * numpy.append(weights[:-1], 0.0)
        for table, truth in tables:
            values = table @ weights
            shares = numpy.exp(values - values.max())
            shares /= shares.sum()
            shares[-1 if truth is None else truth] -= 1
            slope += table.T @ shares / len(tables)
        mean, spread = 0.9 * mean + 0.1 * slope, 0.99 * spread + 0.01 * slope * slope
        weights -= RATE * mean / (numpy.sqrt(spread) + 1e-8)
    *chosen, none = (round(float(weight), DIGITS) for weight in weights)
    return chosen, none


def train_answers(cases: Sequence[Case]) -> tuple[list[float], float]:
    """Return the weights of a logistic regression, and a bias at which so few answered questions are left empty."""
    numpy = import_module("numpy")
    data, truth = (
        numpy.array([features for features, _ in cases]),
        numpy.array([float(is_spoken) for _, is_spoken in cases]),
    )
    middle, scale = data.mean(axis=0), data.std(axis=0)
    scaled, balance = (data - middle) / scale, numpy.where(truth > 0, 0.5 / truth.mean(), 0.5 / (1 - truth.mean()))
    weights, bias = numpy.zeros(data.shape[1]), 0.0
    for _ in range(ANSWER_STEPS):
        slope = (1 / (1 + numpy.exp(-(scaled @ weights + bias))) - truth) * balance
        weights -= ANSWER_RATE * (scaled.T @ slope / len(cases) + ANSWER_PENALTY * weights)
        bias -= ANSWER_RATE * slope.mean()
    plain = numpy.round(weights / scale, DIGITS)
    limit = float(numpy.quantile((data @ plain)[truth > 0], FALSE_EMPTINESS))
    return [float(weight) for weight in plain], round(-limit, DIGITS)


if __name__ == "__main__":
    sys.exit(main())
