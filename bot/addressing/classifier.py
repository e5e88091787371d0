"""Gradient-boosted trees that estimate whether a line is addressed to the agent; the weights are data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp
from pathlib import Path
from types import MappingProxyType

from bot.addressing.lines import UTTERANCE
from bot.addressing.talk import FEATURES

WEIGHTS = Path(__file__).with_name("weights.json")
LEAF = -1
MIN_EFFECT = 0.25  # in log odds; what a feature must have added to be named
MAX_NAMED = 3

# What a feature is about. People read the groups, not the features: `groups_of` names those that decided.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "name": ("name_kind", "opening_kind"),
        "other name": ("opens_with_other", "other_names"),
        "turn": (
            "agent_to_author",
            "agent_to_author_since",
            "agent_lines_since_author",
            "lines_since_agent_named_author",
            "agent_named_other",
            "agent_to_other",
            "agent_asked",
            "agent_length",
        ),
        "others' turn": (
            "others_to_author",
            "others_to_author_since",
            "pair_to_others",
            "speakers_since_agent",
            "other_asked_since",
        ),
        "exchange": (
            "author_last_to_agent",
            "lines_since_author_named_agent",
            "author_lines_since_agent",
            "pair_to_agent",
            "pair_from_agent",
        ),
        "distance": ("lines_since_agent", "minutes_since_agent", "agent_spoke_last"),
        "wording": UTTERANCE,
        "room": (
            "lines_since_author",
            "minutes_since_author",
            "author_lines",
            "speakers_in_10",
            "speakers_in_30",
            "author_last_length",
        ),
    }
)
_GROUP_OF = {feature: group for group, features in GROUPS.items() for feature in features}

Node = tuple[int, float, int, int, float]  # feature, threshold, the nodes at most and above it, value


@dataclass(frozen=True, slots=True)
class Estimate:
    """How probable it is that a line is addressed to the agent, and the groups of features that say so."""

    probability: float
    reasons: tuple[str, ...] = ()


class AddressClassifier:
    """Evaluates the trees of a weights file. Immutable; one serves all rooms."""

    def __init__(self, trees: Sequence[Sequence[Node]]) -> None:
        self._trees = tuple(tuple(tree) for tree in trees)

    def probability(self, features: Sequence[float]) -> float:
        """Return the probability, 0 to 1, for features in the order of `FEATURES`."""
        score = 0.0
        for tree in self._trees:
            feature, threshold, low, high, value = tree[0]
            while feature != LEAF:
                feature, threshold, low, high, value = tree[low if features[feature] <= threshold else high]
            score += value
        return 1.0 / (1.0 + exp(-score))

    def estimate(self, features: Sequence[float]) -> Estimate:
        """Return the probability with the groups of features that moved it most, the strongest first.

        A group that made the agent less probable to be meant is named with `not` before it.
        """
        effects: dict[str, float] = {}
        for tree in self._trees:
            feature, threshold, low, high, value = tree[0]
            while feature != LEAF:
                group = _GROUP_OF[FEATURES[feature]]
                before = value
                feature, threshold, low, high, value = tree[low if features[feature] <= threshold else high]
                effects[group] = effects.get(group, 0.0) + value - before
        probability = self.probability(features)
        pointing = 1 if probability >= 0.5 else -1
        strongest = sorted(effects.items(), key=lambda effect: -effect[1] * pointing)
        named = [group for group, effect in strongest[:MAX_NAMED] if effect * pointing >= MIN_EFFECT]
        return Estimate(probability, tuple(named if pointing > 0 else (f"not {group}" for group in named)))


@cache
def load_classifier() -> AddressClassifier:
    """Return the classifier of the weights file that is part of the package. Raises ValueError if they do not fit."""
    weights = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    if tuple(weights["features"]) != FEATURES:
        raise ValueError(f"{WEIGHTS.name} was trained for other features; run benchmarks/train_addressed.py")
    return AddressClassifier([[_read_node(node) for node in tree] for tree in weights["trees"]])


def _read_node(node: Sequence[float]) -> Node:
    feature, threshold, low, high, value = node
    return int(feature), threshold, int(low), int(high), value
