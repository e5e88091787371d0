"""Last filter before sending: secrets, prompt scaffolding, data-carrying links.

Platforms open the links of a message by themselves, to show what is behind them. So a link that carries
data to a host nobody has vouched for leaves as words: it can be read, and nothing opens it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from urllib.parse import unquote

from bot.domain.content import MOST_CHOICES, Attachment, Choice, Content
from bot.text import is_blank, tidy

LONGEST_HOST, LONGEST_PATH, LONGEST_QUERY = 64, 128, 64
LEFT_OUT = "[a link that held a secret]"
_SCHEME = r"https?://"
_BARE = r"(?<![\w.-])(?=(?:[^\W_][\w-]{0,62}\.)+[^\W\d_]{2,24}[/?:])"  # Telegram makes links of such names
_NEXT = rf"{_SCHEME}|\]\("
_LINK = (
    rf"(?P<scheme>{_SCHEME}|{_BARE})(?P<host>(?:(?!{_NEXT})[^\s/?#\\])+)"
    rf"(?P<path>(?:(?!{_NEXT})[^\s?#])*)(?:\?(?P<query>(?:(?!{_NEXT})[^\s#])*))?"
)
_ANY = re.compile(_LINK, re.IGNORECASE)
_UNFINISHED = re.compile(rf"(?:{_LINK}|{_SCHEME})\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hyperlinks:
    """What links may carry: anything to these hosts and those below them, elsewhere little but an address."""

    hosts: Collection[str] = ()

    def defanged(self, text: str, secrets: Collection[str] = ()) -> str:
        """Write each link that carries too much as `hxxps://host[.]example/...`, which no platform opens.

        One that holds a secret, however its signs are written, is left out.
        """

        def checked(link: re.Match[str]) -> str:
            if any(secret in unquote(link[0]) for secret in filter(None, secrets)):
                return LEFT_OUT
            return link[0] if self._may_leave(link) else _as_words(link)

        return _ANY.sub(checked, text)

    def _may_leave(self, link: re.Match[str]) -> bool:
        host, path, query = link["host"], link["path"], link["query"] or ""
        if len(host) <= LONGEST_HOST and len(path) <= LONGEST_PATH and len(query) <= LONGEST_QUERY:
            return True
        name = host.rpartition("@")[2].partition(":")[0].lower()
        return any(name == one or name.endswith(f".{one}") for one in map(str.lower, self.hosts))


def without_unfinished(text: str) -> str:
    """Leave out the link with which a text that is still being written breaks off."""
    return _UNFINISHED.sub("", text)


def _as_words(link: re.Match[str]) -> str:
    scheme, host = link["scheme"], link["host"]
    rest = link[0][len(scheme) + len(host) :]
    return scheme.lower().replace("http", "hxxp") + host.replace(".", "[.]") + rest


REDACTED = "[redacted]"
LONGEST_REPLY = 32_768
SCAFFOLDING = re.compile(
    r"</?(?:response|output|thought|actions|providers|parameters|params|isFinish)\b[^<>]{0,80}>",
    re.IGNORECASE,
)
OWN_HEAD = re.compile(r"^\[\d\d:\d\d\] [^()\[\]\n]{1,64} \(you\): ?", re.MULTILINE)
ID = re.compile(r"^(\[\d\d:\d\d\] [^()\[\]\n]{1,64}) \(id [0-9A-Fa-f]{1,32}\):", re.MULTILINE)
PERHAPS_SCAFFOLDING = re.compile(r"<[^<>]{0,100}\Z|^\[(?:[\d:]{0,5}|\d\d:\d\d\][^\n]{0,100})\Z", re.MULTILINE)


def cleared(
    content: Content, secrets: Collection[str] = (), hyperlinks: Hyperlinks | None = None
) -> Content | None:
    """Make a reply fit to leave, or None where nothing is left of it.

    Leaked prompt scaffolding is taken out, secrets are replaced, links that carry too much are none any
    more, and the length is bounded. Of an attachment, what is shown beside it is treated likewise.
    """
    text = _redacted(unscaffolded(_storable(content.text)), secrets).strip()
    if hyperlinks is not None:
        text = hyperlinks.defanged(text, secrets)
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
    if (text, attachments, choices) == (content.text, content.attachments, content.choices):
        return content
    return replace(content, text=text, attachments=attachments, choices=choices)


def is_nothing(text: str) -> bool:
    """Tell whether nothing of a text may leave."""
    return is_blank(unscaffolded(_storable(text)))


def cleared_so_far(text: str, secrets: Collection[str] = (), hyperlinks: Hyperlinks | None = None) -> str:
    """Make a text that is still being written fit to be seen, as `cleared` does a whole one.

    What may turn out to be the beginning of a secret, of scaffolding or of a link is held back until that
    is known.
    """
    text = PERHAPS_SCAFFOLDING.sub("", unscaffolded(_storable(text)))
    if hyperlinks is not None:
        text = without_unfinished(text)
    while begun := max((_begun(secret, text) for secret in secrets), default=0):
        text = text[:-begun]
    content = cleared(Content(text=text), secrets, hyperlinks)
    return "" if content is None else content.text


def unscaffolded(text: str) -> str:
    """Take out of a text what belongs to the form that a model was asked in, or was to answer in."""
    return ID.sub(r"\1:", OWN_HEAD.sub("", SCAFFOLDING.sub("", text)))


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
