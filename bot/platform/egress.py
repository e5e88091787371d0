"""What may leave: the last look at a text before anybody outside sees it."""

import re
from collections.abc import Collection
from dataclasses import replace

from bot.domain.content import Content
from bot.text import is_blank

REDACTED = "[redacted]"
LONGEST_REPLY = 32_768
SCAFFOLDING = re.compile(
    r"</?(?:response|output|thought|actions|providers|parameters|params|isFinish)\b[^<>]{0,80}>",
    re.IGNORECASE,
)


def cleared(content: Content, secrets: Collection[str] = ()) -> Content | None:
    """Make a reply fit to leave, or None where nothing is left of it.

    Leaked prompt scaffolding is taken out, secrets are replaced, and the length is bounded.
    """
    text = SCAFFOLDING.sub("", content.text)
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    text = text.strip()
    if len(text) > LONGEST_REPLY:
        text = text[: LONGEST_REPLY - 1].rstrip() + "…"
    if is_blank(text):
        text = ""
    if not text and not content.attachments:
        return None
    return replace(content, text=text)
