"""How much two texts have in common by their words alone, for agents without an embedding model."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from math import log

WORD = re.compile(r"\w{3,}")


def words_of(text: str) -> frozenset[str]:
    """Give the words of a text, folded; of four letters and more only the beginning, so that cases meet."""
    return frozenset(word[:6] for word in WORD.findall(text.casefold()))


def ranked(question: str, texts: Sequence[Collection[str]], limit: int) -> list[int]:
    """Rank texts, given as their words, by those they share with a question; rare words count more.

    Words that most texts have do not count. Gives places in `texts`, the best first, and none that
    shares as little as any text would: a word that a tenth of them have is enough.
    """
    asked = words_of(question)
    found = [asked.intersection(words) for words in texts]
    known = Counter(word for shared in found for word in shared)
    most = max(2, len(texts) / 2)
    weights = {word: log(1 + len(texts) / count) for word, count in known.items() if count <= most}
    scores = [sum(weights.get(word, 0.0) for word in shared) for shared in found]
    best = sorted(range(len(texts)), key=lambda place: (-scores[place], place))
    return [place for place in best[:limit] if scores[place] >= log(1 + len(texts) / 10)]
