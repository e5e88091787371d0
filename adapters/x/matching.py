"""Whether a post on our timeline is the one whose sending was unclear; pure."""

import re
import unicodedata

from adapters.x.incoming import text_of
from adapters.x.payloads import Page, Post

_SCHEME = re.compile(r"\bhttps?://", re.IGNORECASE)
_STATUS = re.compile(r"(?:twitter|x)\.com/\w+/status/\d+\S*", re.IGNORECASE)


def found_in(page: Page, text: str, *, answers: str = "", quotes: str = "") -> str:
    """Find the post that says this, in answer to the same post; gives its id, or blank."""
    wanted = _bare(text, quotes)
    for post in page.posts:
        is_there = post.refers("replied_to") == answers and post.refers("quoted") == quotes
        if is_there and not post.refers("retweeted") and _said(post, quotes) == wanted:
            return post.id
    return ""


def _said(post: Post, quotes: str) -> str:
    return _bare(text_of(post), quotes)


def _bare(text: str, quotes: str) -> str:
    """Leave out what X changes: how addresses begin and end, white space, the address of what is quoted."""
    plain = _SCHEME.sub("", unicodedata.normalize("NFC", text))
    if quotes:
        plain = _STATUS.sub("", plain)
    return " ".join(word.rstrip("/") for word in plain.split())
