"""Choice without chance: draws that a key decides, and texts as they are told apart from those before."""

import zlib
from collections.abc import Sequence

from plugins.offline.wording import LONGEST_POST


def drawn(key: str, purpose: str, count: int) -> int:
    """A number below `count` that looks like chance and is the same every time."""
    checksum = zlib.crc32(f"{key}|{purpose}".encode("utf-8", "backslashreplace"))
    return (checksum * 2_654_435_761 >> 16) % count


def rotated(items: Sequence[str], key: str, purpose: str) -> list[str]:
    """The same items from a drawn place on, all of them."""
    start = drawn(key, purpose, len(items)) if items else 0
    return [*items[start:], *items[:start]]


def freshest(offers: Sequence[str], *, stale: Sequence[str], lately: Sequence[str]) -> str:
    """The first offer that is not stale, rather one that opens unlike those of lately; empty if all are."""
    openings = {_opening(answer) for answer in lately}
    fresh = [offer for offer in offers if folded(offer) not in stale]
    return next((offer for offer in fresh if _opening(offer) not in openings), fresh[0] if fresh else "")


def folded(text: str) -> str:
    """An answer as it is compared with others, however a platform spaced it."""
    return " ".join(text[: 2 * LONGEST_POST].casefold().split())


def _opening(answer: str) -> str:
    """The first two words of an answer, by which two of them sound alike."""
    return " ".join(folded(answer).split()[:2])
