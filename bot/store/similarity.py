"""Comparison of vectors and of words."""

import re
from collections.abc import Sequence
from math import sqrt
from operator import mul
from typing import TypeVar

from bot.domain.memory import MemoryKind

K = TypeVar("K")
TRANSCRIPT_KINDS = frozenset({MemoryKind.MESSAGE, MemoryKind.REACTION, MemoryKind.ACTION_RESULT})


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine of two vectors: 1 for the same direction, 0 for unrelated or if one of them is zero.

    Raises ValueError if their dimensions differ: vectors of two models are never compared.
    """
    if len(first) != len(second):
        raise ValueError(f"vectors of {len(first)} and {len(second)} dimensions cannot be compared")
    lengths = sqrt(sum(map(mul, first, first)) * sum(map(mul, second, second)))
    return sum(map(mul, first, second)) / lengths if lengths else 0.0


_WORD = re.compile(r"\w{3,}")


def index_words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, cut to six letters so that inflected forms match."""
    return frozenset(word[:6] for word in _WORD.findall(text.casefold()))


def normalize_wording(text: str) -> str:
    """Return the text in lower case with single spaces, to compare texts by their words."""
    return " ".join(text.casefold().split())
