"""Reply → thread of posts; weighted length."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from bot import Attachment, Content, MediaKind

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


MOST_PICTURES = 4
MOST_REPLIES = 5  # posts of ours that one mention may call forth
ELLIPSIS = "…"
ACT, SUBJECT = "x_act", "x_subject"  # in a content's metadata: what is done, and to which post
QUOTE, REPLY, LIKE, REPOST = "quote", "reply", "like", "repost"
_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")
_HANDLES = re.compile(r"^(?:\s*[@＠]\w{1,15}\b[,:]?)+\s*")
_HANDLE = re.compile(  # as X finds them: after any sign but a letter, and after RT
    r"(https?://\S+)|(?:(?<![A-Za-z0-9_])|(?<=\b[Rr][Tt]))[@＠](?=[A-Za-z0-9_])"
)


def parts(content: Content) -> list[Content]:
    """Cut a text into posts, the pictures with the first; a like or a repost is one part.

    The address of a file that we do not have ourselves is said after the text. A reply ends after a few.
    """
    pictures = tuple(one for one in content.attachments if is_picture(one))[:MOST_PICTURES]
    addresses = [one.url for one in content.attachments if one.data is None and one.url.startswith("http")]
    metadata = deed(content.metadata)
    if metadata.get(ACT) in (LIKE, REPOST):
        return [Content(text=content.text, metadata=metadata)]
    text = "\n".join([content.text, *addresses]).strip()
    is_reply = content.in_reply_to is not None or metadata.get(ACT) == REPLY
    first, *others = _few(cut(text)) if is_reply else cut(text)
    head = Content(text=first, attachments=pictures, metadata=metadata)
    return [head, *(Content(text=one) for one in others)]


def is_picture(attachment: Attachment) -> bool:
    """Tell whether an attachment can be shown beside a post: a picture that we hold ourselves."""
    return attachment.kind is MediaKind.IMAGE and attachment.data is not None


def deed(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Take from a content's metadata what is to be done to which post."""
    return {name: str(metadata[name]) for name in (ACT, SUBJECT) if metadata.get(name)}


def cut(text: str) -> list[str]:
    """Cut a text where a sentence ends, else between words, else between signs."""
    pieces: list[str] = []
    rest = unicodedata.normalize("NFC", text).strip()
    while (reach := _reach(rest)) < len(rest):
        end = _last(_END, rest, reach) or rest.rfind(" ", 1, reach + 1)
        end = end if end > 0 else reach
        pieces.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*pieces, rest]


def unaddressed(text: str) -> str:
    """Take the @ off names in a reply: X tells those who take part, and nobody else is called in by us."""
    without = _HANDLES.sub("", text)
    return _HANDLE.sub(lambda found: re.sub("[@＠]", "%40", found[1] or ""), without or text)


def _few(pieces: list[str]) -> list[str]:
    """Leave out what is beyond the bound; that something is left out is to be seen."""
    if len(pieces) <= MOST_REPLIES:
        return pieces
    last = pieces[MOST_REPLIES - 1]
    reach = _reach(last, LONGEST - weight(ELLIPSIS))
    end = len(last) if reach == len(last) else max(last.rfind(" ", 1, reach + 1), 0) or reach
    return [*pieces[: MOST_REPLIES - 1], last[:end].rstrip() + ELLIPSIS]


def _reach(text: str, longest: int = LONGEST) -> int:
    """How many characters of a text one post takes; no sign and no address is cut in two."""
    total = place = 0
    for piece, one in weighed(text):
        if total + one > longest:
            break
        total, place = total + one, place + len(piece)
    return place or 1


def _last(pattern: re.Pattern[str], text: str, reach: int) -> int:
    """The last place within reach at which a pattern allows a cut, but for a piece of a few words only."""
    ends = [found.end() for found in pattern.finditer(text, 0, reach + 2) if found.start() <= reach]
    return max((end for end in ends if end >= reach // 4), default=0)
