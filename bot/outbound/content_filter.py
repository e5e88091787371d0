"""Last filter before sending: secrets, prompt scaffolding, data-carrying links.

Platforms open the links of a message to preview them. So a link that carries data to a host that the operator
did not allow is written as text: it can be read, and nothing opens it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from urllib.parse import unquote

from bot.domain.content import MAX_CHOICES, Attachment, Choice, Content
from bot.text import is_blank, redact, sanitize_text

MAX_HOST_LENGTH, MAX_PATH_LENGTH, MAX_QUERY_LENGTH = 64, 128, 64
SECRET_LINK_TEXT = "[a link that held a secret]"
_SCHEME = r"https?://"
_BARE_HOST = r"(?<![\w.-])(?=(?:[^\W_][\w-]{0,62}\.)+[^\W\d_]{2,24}[/?:])"  # Telegram makes links of such names
_NEXT_LINK = rf"{_SCHEME}|\]\("
_LINK = (
    rf"(?P<scheme>{_SCHEME}|{_BARE_HOST})(?P<host>(?:(?!{_NEXT_LINK})[^\s/?#\\])+)"
    rf"(?P<path>(?:(?!{_NEXT_LINK})[^\s?#])*)(?:\?(?P<query>(?:(?!{_NEXT_LINK})[^\s#])*))?"
)
_ANY_LINK = re.compile(_LINK, re.IGNORECASE)
_UNFINISHED_LINK = re.compile(rf"(?:{_LINK}|{_SCHEME})\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """What links may carry: anything to these hosts and their subdomains, elsewhere little data."""

    hosts: Collection[str] = ()

    def defang(self, text: str, secrets: Collection[str] = ()) -> str:
        """Rewrite each link that carries too much as `hxxps://host[.]example/...`, which no platform opens.

        A link that contains a secret, in any encoding, is replaced.
        """

        def check_link(link: re.Match[str]) -> str:
            if any(secret in unquote(link[0]) for secret in filter(None, secrets)):
                return SECRET_LINK_TEXT
            return link[0] if self._is_allowed(link) else _defang_link(link)

        return _ANY_LINK.sub(check_link, text)

    def _is_allowed(self, link: re.Match[str]) -> bool:
        host, path, query = link["host"], link["path"], link["query"] or ""
        if len(host) <= MAX_HOST_LENGTH and len(path) <= MAX_PATH_LENGTH and len(query) <= MAX_QUERY_LENGTH:
            return True
        name = host.rpartition("@")[2].partition(":")[0].lower()
        return any(
            name == allowed_host or name.endswith(f".{allowed_host}") for allowed_host in map(str.lower, self.hosts)
        )


def strip_unfinished_link(text: str) -> str:
    """Remove the link with which an unfinished text ends."""
    return _UNFINISHED_LINK.sub("", text)


def _defang_link(link: re.Match[str]) -> str:
    scheme, host = link["scheme"], link["host"]
    rest = link[0][len(scheme) + len(host) :]
    return scheme.lower().replace("http", "hxxp") + host.replace(".", "[.]") + rest


MAX_REPLY_LENGTH = 32_768
SCAFFOLDING = re.compile(
    r"</?(?:response|output|thought|actions|providers|parameters|params|isFinish)\b[^<>]{0,80}>", re.IGNORECASE
)
OWN_LINE_PREFIX = re.compile(r"^\[\d\d:\d\d\] [^()\[\]\n]{1,64} \(you\): ?", re.MULTILINE)
SPEAKER_ID = re.compile(r"^(\[\d\d:\d\d\] [^()\[\]\n]{1,64}) \(id [0-9A-Fa-f]{1,32}\):", re.MULTILINE)
PARTIAL_SCAFFOLDING = re.compile(r"<[^<>]{0,100}\Z|^\[(?:[\d:]{0,5}|\d\d:\d\d\][^\n]{0,100})\Z", re.MULTILINE)


def filter_outgoing(
    content: Content, secrets: Collection[str] = (), link_policy: LinkPolicy | None = None
) -> Content | None:
    """Return a reply that may be sent, or None where nothing is left of it.

    Leaked prompt scaffolding is removed, secrets are redacted, links that carry too much are defanged, and
    the length is bounded. The visible texts of attachments are redacted too.
    """
    text = redact(strip_scaffolding(_sanitize(content.text)), secrets).strip()
    if link_policy is not None:
        text = link_policy.defang(text, secrets)
    if len(text) > MAX_REPLY_LENGTH:
        text = text[: MAX_REPLY_LENGTH - 1].rstrip() + "…"
    if is_blank(text):
        text = ""
    if not text and not content.attachments:
        return None
    attachments = tuple(_filter_attachment(attachment, secrets) for attachment in content.attachments)
    choices = tuple(Choice(redact(choice.label, secrets), choice.value) for choice in content.choices[:MAX_CHOICES])
    if (text, attachments, choices) == (content.text, content.attachments, content.choices):
        return content
    return replace(content, text=text, attachments=attachments, choices=choices)


def is_empty_reply(text: str) -> bool:
    """Return whether nothing of a text would be sent."""
    return is_blank(strip_scaffolding(_sanitize(text)))


def filter_partial_text(text: str, secrets: Collection[str] = (), link_policy: LinkPolicy | None = None) -> str:
    """Return the part of an unfinished text that may be shown, filtered as by `filter_outgoing`.

    What may be the beginning of a secret, of scaffolding or of a link is held back until that is known.
    """
    text = PARTIAL_SCAFFOLDING.sub("", strip_scaffolding(_sanitize(text)))
    if link_policy is not None:
        text = strip_unfinished_link(text)
    while prefix_length := max((_secret_prefix_length(secret, text) for secret in secrets), default=0):
        text = text[:-prefix_length]
    content = filter_outgoing(Content(text=text), secrets, link_policy)
    return "" if content is None else content.text


def strip_scaffolding(text: str) -> str:
    """Return a text without the tags and line headers of our prompts."""
    return SPEAKER_ID.sub(r"\1:", OWN_LINE_PREFIX.sub("", SCAFFOLDING.sub("", text)))


def _secret_prefix_length(secret: str, text: str) -> int:
    """Return how many characters at the end of a text are the beginning of a secret."""
    max_size = min(len(secret) - 1, len(text))
    return next((size for size in range(max_size, 0, -1) if text.endswith(secret[:size])), 0)


def _sanitize(text: str) -> str:
    return sanitize_text(text, len(text))


def _filter_attachment(attachment: Attachment, secrets: Collection[str]) -> Attachment:
    return replace(
        attachment,
        url=redact(_sanitize(attachment.url), secrets),
        name=redact(_sanitize(attachment.name), secrets),
        title=redact(_sanitize(attachment.title), secrets),
        description=redact(_sanitize(attachment.description), secrets),
    )
