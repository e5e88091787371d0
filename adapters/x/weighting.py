"""How long a post is by X's own count: the published configuration, version 3, of its text library."""

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 280
ADDRESS = 23  # whatever its length: X puts a short address in its place
DEFAULT = 2
# Code points that count one instead of two: scripts up to Georgian, and the common punctuation.
LIGHT = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))

# What may be an address. X knows every top-level domain and takes `it.Then` for two words; here whatever
# looks like one is weighed as the heavier of both, so that nothing is ever longer there than it is here.
_URL = re.compile(
    r"https?://[^\s<>\"]*[\w/=&#]"
    r"|(?<![A-Za-z0-9_@.\-/#$])(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?::\d+)?(?:[/?][!-~]*[A-Za-z0-9/])?(?![@A-Za-z0-9])",
    re.IGNORECASE,
)
_SURE = re.compile(
    r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:[/?][a-z0-9_./~%+&=#?:@!-]*)?", re.IGNORECASE
)
_JOIN, _KEYCAP, _VARIANT = "\u200d", "\u20e3", "\ufe0f"
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_SKIN = "[\U0001f3fb-\U0001f3ff]"
_ONE = f"{_PICTURE}(?:{_SKIN}|{_VARIANT})?"
_EMOJI = re.compile(
    rf"[0-9#*]{_VARIANT}?{_KEYCAP}"
    r"|[\U0001f1e6-\U0001f1ff]{2}"
    r"|\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]+\U000e007f"
    rf"|{_ONE}(?:{_JOIN}{_ONE})*"
)


def weight(text: str) -> int:
    """Weigh a text as X does; more than `LONGEST` is not one post any more."""
    return sum(one for _, one in weighed(text))


def weighed(text: str) -> Iterator[tuple[str, int]]:
    """Walk the pieces of a text that must not be cut, each with its weight."""
    text = unicodedata.normalize("NFC", text)
    start = 0
    for found in _URL.finditer(text):
        yield from _signs(text[start : found.start()])
        plain = sum(one for _, one in _signs(found[0]))
        sure = _SURE.match(found[0])
        beyond = plain if sure is None else sum(one for _, one in _signs(found[0][sure.end() :]))
        yield found[0], ADDRESS + beyond if sure else max(plain, ADDRESS)
        start = found.end()
    yield from _signs(text[start:])


def _signs(text: str) -> Iterator[tuple[str, int]]:
    place = 0
    while place < len(text):
        found = _EMOJI.match(text, place)
        if found is not None:
            yield found[0], DEFAULT
            place = found.end()
            continue
        end = place + 1
        while end < len(text) and unicodedata.category(text[end]).startswith("M"):
            end += 1
        yield text[place:end], sum(_of(one) for one in text[place:end])
        place = end


def _of(sign: str) -> int:
    code = ord(sign)
    return 1 if any(first <= code <= last for first, last in LIGHT) else DEFAULT
