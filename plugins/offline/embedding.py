"""Embeddings without a model: hashed character n-grams, so that texts with similar wording are close.

Default dimension: 384. Metric: cosine; every vector has length 1. A text without content has a zero vector,
whose similarity to everything is 0.0. Stores contain the values, so a change here requires re-embedding.
Only spelling counts: "garden" is similar to "gardening", "car" is not similar to "automobile".
"""

import math
import unicodedata
import zlib
from collections import Counter

DIMENSION = 384
MAX_TEXT_LENGTH = 8_000
_NGRAM_SIZES = (3, 4, 5)
_BYTES_PER_CHARACTER = 4  # of one character in UTF-32, which lets n-grams be cut without encoding each
_HASH_MULTIPLIER = 2_654_435_761  # Knuth's multiplier: the CRC of near n-grams is near, the product is not


def _normalize(text: str) -> str:
    """Return the text with unified compatibility forms, case and white space."""
    compatible = unicodedata.normalize("NFKC", text[:MAX_TEXT_LENGTH]).casefold()[:MAX_TEXT_LENGTH]
    return " ".join("".join(c if c.isprintable() else " " for c in compatible).split())


def embed(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return the vector, of length 1, of the first 8,000 characters; the same on every machine."""
    if dimension < 1:
        raise ValueError(f"An embedding needs at least one dimension, not {dimension}.")
    vector = [0.0] * dimension
    normalized = _normalize(text)
    if not normalized:
        return vector
    padded = f" {normalized} ".encode("utf-32-le")  # the spaces mark where words begin and end
    end = len(padded)
    grams = Counter(
        padded[start : start + size * _BYTES_PER_CHARACTER]
        for size in _NGRAM_SIZES
        for start in range(0, end - size * _BYTES_PER_CHARACTER + 1, _BYTES_PER_CHARACTER)
    )
    for gram, count in grams.items():
        gram_hash = (zlib.crc32(gram) * _HASH_MULTIPLIER) & 0xFFFFFFFF
        weight = 1.0 if count == 1 else 1.0 + math.log(count)
        vector[(gram_hash >> 3 & 0xFFFFFFF) % dimension] += weight if gram_hash & 0x80000000 else -weight
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else vector
