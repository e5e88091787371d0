"""Last filter before sending: secrets, markup that models leave around answers, claims to be human, links with data.

Platforms open the links of a message to preview them. So a link that carries data to a host that the operator
did not allow is written as text: it can be read, and nothing opens it.

Replaces claims to be human in outgoing texts, in the languages of `human_claims.toml`.
"""

import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from urllib.parse import unquote
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import BoundedDict
from bot.domain.content import MAX_CHOICES, Attachment, Choice, Content
from bot.prompts.reply_parser.dialects import clean
from bot.prompts.reply_parser.reader import read_reply
from bot.text import is_blank, redact, redactor_of, sanitize_text
from bot.user_texts import UNSPACED

CLAUSE_END = re.compile(r"[,.;:!?…\n()—–。、，！？；]")
QUOTES = '"“”«»„「」'
PARTS = ("self", "sure", "real", "bot", "end")
MAX_CLAUSE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class ClaimLanguage:
    """How texts of one language claim to be by a human; see the file. Patterns are compiled when they are needed."""

    words: tuple[str, ...]
    claims: str
    doubts: str
    replacement: str


def replace_human_claims(text: str) -> tuple[str, int]:
    """Return a text in which each claim to be human says that an AI writes, and how many claims there were.

    What is quoted, doubted or denied is no claim.
    """
    folded, count = text.casefold(), 0
    for language in _load_languages():
        if any(word in folded for word in language.words):
            text, found = _replace_in(text, language)
            count += found
    return text, count


def _replace_in(text: str, language: ClaimLanguage) -> tuple[str, int]:
    count, doubts = 0, re.compile(language.doubts, re.IGNORECASE)

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        before = text[max(0, match.start() - MAX_CLAUSE_LENGTH) : match.start()]
        line = before.rpartition("\n")[2]
        clause = CLAUSE_END.split(before)[-1]
        if sum(map(line.count, QUOTES)) % 2 or doubts.search(clause):
            return match[0]
        count += 1
        replacement = language.replacement
        return replacement[0].upper() + replacement[1:] if match[0][0].isupper() else replacement

    return re.sub(language.claims, replace, text, flags=re.IGNORECASE), count


@cache
def _load_languages() -> tuple[ClaimLanguage, ...]:
    source = files("bot.outbound").joinpath("human_claims.toml").read_text(encoding="utf-8")
    languages = []
    for entry in tomllib.loads(source).values():
        claims = "|".join(entry["claims"])
        for name in PARTS:
            claims = claims.replace(f"<{name.upper()}>", entry[name])
        doubts = "|".join(entry["doubts"])
        if not UNSPACED.match(doubts):
            doubts = rf"(?<!\w)(?:{doubts})(?!\w)"
        languages.append(ClaimLanguage(tuple(entry["words"]), claims, doubts, str(entry["replacement"])))
    return tuple(languages)


LINK_LIMITS = (64, 128, 64)  # the length of the host, the path and the query of one link
MAX_MESSAGE_LINK_DATA, MAX_ROOM_LINK_DATA = 1_000, 5_000  # characters in the links of a message; of a room in an hour
LINK_DATA_WINDOW = timedelta(hours=1)
MAX_ROOMS = 10_000
SECRET_LINK_TEXT = "[a link that held a secret]"
_SCHEME = r"https?:[/\\]+"  # browsers read a backslash as a slash
_BARE_HOST = (  # Telegram makes links of such names and addresses
    r"(?<![\w.-])(?=(?:(?:[^\W_][\w-]{0,62}\.)+(?:[^\W\d_]{2,24}|xn--[\w-]{1,59})|(?:\d{1,3}\.){3}\d{1,3})[/?:\\])"
)
_NEXT_LINK = rf"{_SCHEME}|\]\("
_LINK = (
    rf"(?P<scheme>{_SCHEME}|{_BARE_HOST})(?P<host>(?:(?!{_NEXT_LINK})[^\s/?#\\])+)"
    rf"(?P<path>(?:(?!{_NEXT_LINK})[^\s?#])*)(?:\?(?P<query>(?:(?!{_NEXT_LINK})[^\s#])*))?"
)
_ANY_LINK = re.compile(_LINK, re.IGNORECASE)
_MAY_BE_LINK = re.compile(rf"{_SCHEME}|\.[\w-]{{1,63}}[/?:\\]", re.IGNORECASE)  # in each link, and much faster to find
_UNFINISHED_LINK = re.compile(rf"(?:{_LINK}|{_SCHEME})\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """What links may carry: anything to these hosts and their subdomains, elsewhere little data."""

    hosts: Collection[str] = ()

    def defang(self, text: str, secrets: Collection[str] = (), budget: int = MAX_MESSAGE_LINK_DATA) -> tuple[str, int]:
        """Rewrite each link that carries too much as `hxxps://host[.]example/...`, which no platform opens.

        All links to other hosts together may have `budget` characters; return the text, and how many they have.
        A link that contains a secret, in any encoding, is replaced.
        """
        if not _MAY_BE_LINK.search(text):
            return text, 0
        redactor, seen = redactor_of(frozenset(secrets)), dict[str, int]()

        def check_link(link: re.Match[str]) -> str:
            if not redactor.is_clean(unquote(link[0])):
                return SECRET_LINK_TEXT
            if self._is_known(link["host"]):
                return link[0]
            size = seen.get(link[0], len(link[0]) - len(link["scheme"]))
            if not _is_short(link) or sum((seen | {link[0]: size}).values()) > budget:
                return _defang_link(link)
            seen[link[0]] = size
            return link[0]

        return _ANY_LINK.sub(check_link, text), sum(seen.values())

    def has_other_host(self, text: str) -> bool:
        """Return whether a link of a text leads to another host than these and their subdomains."""
        if not _MAY_BE_LINK.search(text):
            return False
        return not all(self._is_known(link["host"]) for link in _ANY_LINK.finditer(text))

    def _is_known(self, host: str) -> bool:
        name = host.rpartition("@")[2].partition(":")[0].lower()
        return any(
            name == allowed_host or name.endswith(f".{allowed_host}") for allowed_host in map(str.lower, self.hosts)
        )


def _is_short(link: re.Match[str]) -> bool:
    sizes = (len(link["host"]), len(link["path"]), len(link["query"] or ""))
    return all(size <= limit for size, limit in zip(sizes, LINK_LIMITS, strict=True))


def strip_unfinished_link(text: str) -> str:
    """Remove the link with which an unfinished text ends."""
    return _UNFINISHED_LINK.sub("", text)


def _defang_link(link: re.Match[str]) -> str:
    scheme, host = link["scheme"], link["host"]
    rest = link[0][len(scheme) + len(host) :]
    return scheme.lower().replace("http", "hxxp") + host.replace(".", "[.]") + rest


MAX_REPLY_LENGTH = 32_768
MAX_PASSES = 10
OWN_LINE_PREFIX = re.compile(r"^\[\d\d:\d\d\] [^()\[\]\n]{1,64} \(you\): ?", re.MULTILINE)
SPEAKER_ID = re.compile(r"^(\[\d\d:\d\d\] [^()\[\]\n]{1,64}) \(id [0-9A-Fa-f]{1,32}\):", re.MULTILINE)
PARTIAL_MARKUP = re.compile(r"<[^<>]{0,100}\Z|^\[(?:[\d:]{0,5}|\d\d:\d\d\][^\n]{0,100})\Z", re.MULTILINE)


class OutgoingFilter:
    """The content filter of one agent, which knows what each room was sent before.

    So a secret cannot leave in two messages, nor data in many links. `on_claims` is given the room of a reply, and how
    many claims to be human were replaced in it.
    """

    def __init__(
        self,
        secrets: Collection[str] = (),
        link_policy: LinkPolicy | None = None,
        *,
        on_claims: Callable[[UUID, int], None] = lambda room_id, count: None,
        clock: Clock = system_clock,
    ) -> None:
        self._on_claims = on_claims
        self._secrets = frozenset(secrets)
        self._link_policy = link_policy
        self._clock = clock
        self._tail_length = redactor_of(self._secrets).max_length
        self._tails = BoundedDict[UUID, str](MAX_ROOMS)
        self._link_data = BoundedDict[UUID, list[tuple[datetime, int]]](MAX_ROOMS)

    def filter(
        self, content: Content, room_id: UUID, *, is_by_person: bool = False
    ) -> tuple[Content | None, list[str]]:
        """Return a reply that may be sent to a room, or None where nothing is left of it; note it as sent.

        What a person wrote may claim to be human. Return also the names of the markup that was removed from it.
        """
        before, budget = self._tails.get(room_id, ""), self._link_budget(room_id)
        filtered, link_data, markup, claim_count = _filter(
            content, self._secrets, self._link_policy, before, budget, is_by_person=is_by_person
        )
        if filtered is None:
            return None, markup
        if claim_count:
            self._on_claims(room_id, claim_count)
        if self._tail_length:
            self._tails[room_id] = (before + filtered.text)[-self._tail_length :]
        if link_data:
            self._link_data.setdefault(room_id, []).append((self._clock(), link_data))
        return filtered, markup

    def filter_partial(self, text: str, room_id: UUID) -> str:
        """Return the part of an unfinished text that may be shown in a room; as `filter_partial_text`."""
        before, budget = self._tails.get(room_id, ""), self._link_budget(room_id)
        return _filter_partial(text, self._secrets, self._link_policy, before, budget)

    def _link_budget(self, room_id: UUID) -> int:
        since = self._clock() - LINK_DATA_WINDOW
        recent = [entry for entry in self._link_data.get(room_id, ()) if entry[0] > since]
        if not recent:
            self._link_data.pop(room_id, None)
            return MAX_MESSAGE_LINK_DATA
        self._link_data[room_id] = recent
        return min(MAX_MESSAGE_LINK_DATA, MAX_ROOM_LINK_DATA - sum(size for _, size in recent))


def filter_outgoing(
    content: Content, secrets: Collection[str] = (), link_policy: LinkPolicy | None = None
) -> Content | None:
    """Return a reply that may be sent, or None where nothing is left of it.

    Markup that models leave around answers is removed, claims to be human are replaced, secrets are redacted, links
    that carry too much are defanged, and the length is bounded. The visible texts of attachments are redacted too.
    """
    return _filter(content, secrets, link_policy)[0]


def _filter(
    content: Content,
    secrets: Collection[str],
    link_policy: LinkPolicy | None,
    before: str = "",
    link_budget: int = MAX_MESSAGE_LINK_DATA,
    *,
    is_by_person: bool = False,
) -> tuple[Content | None, int, list[str], int]:
    """Return the filtered reply, the characters of its links, the names of the markup that was removed from it, and how
    many claims to be human were replaced.

    The room was sent the text `before`.
    """
    text, markup = remove_markup(_sanitize(content.text))
    text, claim_count = (text, 0) if is_by_person else replace_human_claims(text)
    text, link_data = redactor_of(frozenset(secrets)).redact(text, before).strip(), 0
    if is_blank(text):
        text = ""
    if link_policy is not None:
        text, link_data = link_policy.defang(text, secrets, link_budget)
    if len(text) > MAX_REPLY_LENGTH:
        text = text[: MAX_REPLY_LENGTH - 1].rstrip() + "…"
    if not text and not content.attachments:
        return None, 0, markup, 0
    attachments = tuple(_filter_attachment(attachment, secrets) for attachment in content.attachments)
    choices = tuple(Choice(redact(choice.label, secrets), choice.value) for choice in content.choices[:MAX_CHOICES])
    if (text, attachments, choices) == (content.text, content.attachments, content.choices):
        return content, link_data, markup, 0
    return replace(content, text=text, attachments=attachments, choices=choices), link_data, markup, claim_count


def is_empty_reply(text: str) -> bool:
    """Return whether nothing of a text would be sent."""
    return is_blank(remove_markup(text)[0])


def filter_partial_text(text: str, secrets: Collection[str] = (), link_policy: LinkPolicy | None = None) -> str:
    """Return the part of an unfinished text that may be shown, filtered as by `filter_outgoing`.

    What may be the beginning of a secret, of markup or of a link is held back until that is known.
    """
    return _filter_partial(text, secrets, link_policy)


def _filter_partial(
    text: str,
    secrets: Collection[str],
    link_policy: LinkPolicy | None,
    before: str = "",
    link_budget: int = MAX_MESSAGE_LINK_DATA,
) -> str:
    text = PARTIAL_MARKUP.sub("", remove_markup(_sanitize(text))[0])
    if link_policy is not None:
        text = strip_unfinished_link(text)
    text = text[: len(text) - redactor_of(frozenset(secrets)).pending_length(text)]
    content = _filter(Content(text=text), secrets, link_policy, before, link_budget)[0]
    return "" if content is None else content.text


def remove_markup(text: str) -> tuple[str, list[str]]:
    """Return a text without what models leave around answers, and the names of what was removed.

    It is the last check against the table of dialects and for heads of lines as in our prompts. Code is not changed.
    """
    found: list[str] = []
    for _ in range(MAX_PASSES):
        before = text
        cleaned = clean(text, with_own=False)
        text = cleaned.text
        found += cleaned.found
        if text.lstrip().startswith("<response>"):
            text = read_reply(text).text
            found.append("tags")
        if "[" in text:
            text = SPEAKER_ID.sub(r"\1:", OWN_LINE_PREFIX.sub("", text))
        if text == before:
            break
        found += [] if cleaned.found else ["line headers"]
    return text, list(dict.fromkeys(found))


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
