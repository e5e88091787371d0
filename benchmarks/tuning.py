"""Search weights for recall: change some at random, and accept what answers more questions of the tuning half.

    python -m benchmarks.tuning [seconds]

Prints each better choice. It never reads the half of the topics that the figures are stated on.
"""

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import mean
from typing import Any

from benchmarks.group_talks import generate_talks
from benchmarks.recall import ask, build_index, read_two_person_talks
from plugins.bootstrap.recall.index import ConversationIndex
from plugins.bootstrap.recall.ranking import Weights

FACTORS = (0.0, 0.5, 0.7, 0.85, 1.2, 1.4, 2.0)
KEPT_BY_HAND = frozenset({"correction", "date"})  # the generated talks tell nothing of them
GROUP_DEPTHS, PAIR_DEPTHS = (1, 5, 10, 20), (1, 3, 5, 10)
Case = tuple[ConversationIndex, dict[str, Any]]


def main() -> None:
    """Search until the time is over."""
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 300)
    generator = random.Random(1)
    groups, pairs = _cases(generate_talks("tune", count=5)), _cases(read_two_person_talks())
    weights = Weights()
    best = _score(groups, GROUP_DEPTHS, weights) + _score(pairs, PAIR_DEPTHS, weights)
    names = [item.name for item in fields(weights) if item.name not in KEPT_BY_HAND]
    while time.monotonic() < end:
        chosen = generator.sample(names, generator.choice((1, 1, 2, 3)))
        changes = {name: round(getattr(weights, name) * generator.choice(FACTORS), 3) for name in chosen}
        changed = replace(weights, **changes)
        score = _score(groups, GROUP_DEPTHS, changed) + _score(pairs, PAIR_DEPTHS, changed)
        if score > best:
            best, weights = score, changed
            print(f"{best:.3f}  {changes}", flush=True)
    print(weights)


def _cases(talks: Sequence[dict[str, Any]]) -> list[Case]:
    return [(build_index(talk["turns"]), question) for talk in talks for question in talk["questions"]]


def _score(cases: Sequence[Case], depths: Sequence[int], weights: Weights) -> float:
    """Return the sum of recall at several depths, less what was said and not found at all."""
    shares = []
    for index, question in cases:
        ids = [line.id for line in ask(index, question, max(depths), weights)]
        evidence = {*question["evidence"]}
        if evidence:
            shares.append(sum(len(evidence & {*ids[:depth]}) for depth in depths) / len(evidence))
    return mean(shares)


if __name__ == "__main__":
    main()
