"""Ranking by cosine similarity and by word overlap."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from math import log, sqrt
from operator import mul
from typing import TypeVar

from bot.domain.memory import MemoryKind

K = TypeVar("K")
TRANSCRIPT_KINDS = frozenset({MemoryKind.MESSAGE, MemoryKind.REACTION, MemoryKind.ACTION_RESULT})
MAX_TRANSCRIPT_SCAN = 5_000  # per room: searches are too rare to index every message
MAX_WORDS = 32


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


def word_weights(counts: Mapping[str, int], total: int) -> dict[str, float]:
    """Return a weight per word: the rarer, the higher; words in more than half of the texts have none."""
    max_count = max(2, total / 2)
    weights = {word: log(1 + total / count) for word, count in counts.items() if count <= max_count}
    top_words = sorted(weights, key=lambda word: (-weights[word], word))[:MAX_WORDS]
    return {word: weights[word] for word in top_words}


def top_by_word_overlap(
    candidates: Mapping[K, Collection[str]], weights: Mapping[str, float], total: int, limit: int
) -> list[K]:
    """Return the candidates that share the most with a question, best first; of equals the earlier ones.

    Candidates that share less than a word found in a tenth of all texts are left out.
    """
    least = log(1 + min(total / 10, 10))  # of a word that a tenth of the texts have; of fewer than 100 texts, ten
    scores = _score(candidates, weights)
    return [key for key in nlargest(limit, scores, key=lambda key: scores[key]) if scores[key] >= least]


def _score(candidates: Mapping[K, Collection[str]], weights: Mapping[str, float]) -> dict[K, float]:
    return {key: sum(weights.get(word, 0.0) for word in words) for key, words in candidates.items()}


def rank_by_word_overlap(query: str, texts: Sequence[str], limit: int, *, is_transcript: bool = False) -> list[int]:
    """Return the indexes of the texts that share words with a question, best first; of equals the earlier ones.

    In a transcript a text is found by every word, however many others have it: people look for what they have read.
    """
    query_words = index_words(query)
    shared = {index: words for index, text in enumerate(texts) if (words := query_words & index_words(text))}
    counts = Counter(word for words in shared.values() for word in words)
    weights = word_weights(counts, len(texts))
    if not is_transcript:
        return top_by_word_overlap(shared, weights, len(texts), limit)
    scores = _score(shared, weights)
    return nlargest(limit, scores, key=lambda index: scores[index])
