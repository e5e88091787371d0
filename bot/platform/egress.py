"""What may leave: the last look at a text before anybody outside sees it."""

import re
from collections.abc import Collection
from dataclasses import replace

from bot.domain.content import MOST_CHOICES, Attachment, Choice, Content
from bot.text import is_blank, tidy

REDACTED = "[redacted]"
LONGEST_REPLY = 32_768
SCAFFOLDING = re.compile(
    r"</?(?:response|output|thought|actions|providers|parameters|params|isFinish)\b[^<>]{0,80}>",
    re.IGNORECASE,
)
PERHAPS_SCAFFOLDING = re.compile(r"<[^<>]{0,100}\Z")


def cleared(content: Content, secrets: Collection[str] = ()) -> Content | None:
    """Make a reply fit to leave, or None where nothing is left of it.

    Leaked prompt scaffolding is taken out, secrets are replaced, and the length is bounded. Of an
    attachment, what is shown beside it is treated likewise.
    """
    text = _redacted(SCAFFOLDING.sub("", _storable(content.text)), secrets).strip()
    if len(text) > LONGEST_REPLY:
        text = text[: LONGEST_REPLY - 1].rstrip() + "…"
    if is_blank(text):
        text = ""
    if not text and not content.attachments:
        return None
    attachments = tuple(_cleared(attachment, secrets) for attachment in content.attachments)
    choices = tuple(
        Choice(_redacted(one.label, secrets), one.value) for one in content.choices[:MOST_CHOICES]
    )
    return replace(content, text=text, attachments=attachments, choices=choices)


def cleared_so_far(text: str, secrets: Collection[str] = ()) -> str:
    """Make a text that is still being written fit to be seen, as `cleared` does a whole one.

    What may turn out to be the beginning of a secret, or of scaffolding, is held back until that is known.
    """
    text = SCAFFOLDING.sub("", PERHAPS_SCAFFOLDING.sub("", _storable(text)))
    while begun := max((_begun(secret, text) for secret in secrets), default=0):
        text = text[:-begun]
    content = cleared(Content(text=text), secrets)
    return "" if content is None else content.text


def _begun(secret: str, text: str) -> int:
    """Count the characters at the end of a text with which a secret begins, but for the whole of it."""
    most = min(len(secret) - 1, len(text))
    return next((size for size in range(most, 0, -1) if text.endswith(secret[:size])), 0)


def _redacted(text: str, secrets: Collection[str]) -> str:
    """Take secrets out, the longest first: one may begin with another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def _storable(text: str) -> str:
    return tidy(text, len(text))


def _cleared(attachment: Attachment, secrets: Collection[str]) -> Attachment:
    return replace(
        attachment,
        url=_redacted(_storable(attachment.url), secrets),
        name=_redacted(_storable(attachment.name), secrets),
        title=_redacted(_storable(attachment.title), secrets),
        description=_redacted(_storable(attachment.description), secrets),
    )
