"""From a reply to what X takes: posts of 280 at most, cut where a sentence ends; pure."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from adapters.x.weighting import LONGEST, weighed, weight
from bot import Attachment, Content, MediaKind

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
