"""Comparing vectors: exact cosine, in plain Python, for the few that memory holds."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from math import sqrt
from operator import mul
from typing import TypeVar

K = TypeVar("K")


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Compare two vectors: 1 the same direction, 0 unrelated, also where one of them is zero.

    Raises ValueError where their dimensions differ: vectors of two models are never compared.
    """
    if len(first) != len(second):
        raise ValueError(f"vectors of {len(first)} and {len(second)} dimensions cannot be compared")
    lengths = sqrt(sum(map(mul, first, first)) * sum(map(mul, second, second)))
    return sum(map(mul, first, second)) / lengths if lengths else 0.0


def nearest(
    wanted: Sequence[float], candidates: Iterable[tuple[K, Sequence[float]]], limit: int
) -> list[tuple[K, float]]:
    """Find the candidates nearest to a vector, the nearest first."""
    scored = ((key, cosine(wanted, vector)) for key, vector in candidates)
    return nlargest(limit, scored, key=lambda pair: pair[1])
