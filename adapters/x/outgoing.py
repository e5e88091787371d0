"""Replies as threads of posts. Pure functions.

X's weighted text length, by the rules of its library twitter-text (configuration v3). Pure functions.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import chain, repeat

from bot import Content, MediaKind
from bot.platform import PostOperationKind

MAX_WEIGHT = 280
URL_WEIGHT = 23  # of any URL: X replaces it by a short one
MAX_URL_LENGTH, MAX_LABEL_LENGTH, MAX_LABELS, MAX_SHORT_ID_LENGTH = 4096, 63, 126, 40
DEFAULT_WEIGHT = 2  # also of an emoji
# Code points that count 1 instead of 2: scripts up to Georgian, and common punctuation.
LIGHT_RANGES = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))

_JOINER, _VARIANT = "\u200d", "\ufe0f"
_SKIN = "[\U0001f3fb-\U0001f3ff]"
_PERSON = "[\U0001f468\U0001f469\U0001f9d1]"
_CHILD = "[\U0001f466\U0001f467\U0001f9d2]"
# What takes a skin tone, and of these what may also be followed by a variation selector.
_TONED = (
    "\u270a\u270b\U0001f385\U0001f3c2-\U0001f3c4\U0001f3c7\U0001f3ca\U0001f442\U0001f443\U0001f446-\U0001f450"
    "\U0001f466-\U0001f478\U0001f47c\U0001f481-\U0001f483\U0001f485-\U0001f487\U0001f48f\U0001f491\U0001f4aa\U0001f57a"
    "\U0001f595\U0001f596\U0001f645-\U0001f647\U0001f64b-\U0001f64f\U0001f6a3\U0001f6b4-\U0001f6b6\U0001f6c0\U0001f6cc"
    "\U0001f90c\U0001f90f\U0001f918-\U0001f91f\U0001f926\U0001f930-\U0001f939\U0001f93c-\U0001f93e\U0001f977"
    "\U0001f9b5\U0001f9b6\U0001f9b8\U0001f9b9\U0001f9bb\U0001f9cd-\U0001f9cf\U0001f9d1-\U0001f9dd"
    "\U0001fac3-\U0001fac5\U0001faf0-\U0001faf8"
)
_TONED_TEXT = "\u261d\u26f7\u26f9\u270c\u270d\U0001f3cb\U0001f3cc\U0001f574\U0001f575\U0001f590"
# What a variation selector turns into an emoji.
_TEXT = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23ed-\u23ef\u23f1\u23f2"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2604\u260e\u2611\u2614\u2615\u2618\u2620\u2622"
    "\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2640\u2642\u2648-\u2653\u265f\u2660\u2663\u2665\u2666\u2668\u267b"
    "\u267f\u2692-\u2697\u2699\u269b\u269c\u26a0\u26a1\u26a7\u26aa\u26ab\u26b0\u26b1\u26bd\u26be\u26c4\u26c5\u26c8"
    "\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea\u26f0-\u26f5\u26f8\u26fa\u26fd\u2702\u2708\u2709\u270f\u2712\u2714\u2716"
    "\u271d\u2721\u2733\u2734\u2744\u2747\u2757\u2763\u2764\u27a1\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55"
    "\u3030\u303d\u3297\u3299\U0001f004\U0001f170\U0001f171\U0001f17e\U0001f17f\U0001f202\U0001f21a\U0001f22f"
    "\U0001f237\U0001f321\U0001f324-\U0001f32c\U0001f336\U0001f37d\U0001f396\U0001f397\U0001f399-\U0001f39b\U0001f39e"
    "\U0001f39f\U0001f3cd\U0001f3ce\U0001f3d4-\U0001f3df\U0001f3f3\U0001f3f5\U0001f3f7\U0001f43f\U0001f441\U0001f4fd"
    "\U0001f549\U0001f54a\U0001f56f\U0001f570\U0001f573\U0001f576-\U0001f579\U0001f587\U0001f58a-\U0001f58d\U0001f5a5"
    "\U0001f5a8\U0001f5b1\U0001f5b2\U0001f5bc\U0001f5c2-\U0001f5c4\U0001f5d1-\U0001f5d3\U0001f5dc-\U0001f5de\U0001f5e1"
    "\U0001f5e3\U0001f5e8\U0001f5ef\U0001f5f3\U0001f5fa\U0001f6cb\U0001f6cd-\U0001f6cf\U0001f6e0-\U0001f6e5\U0001f6e9"
    "\U0001f6f0\U0001f6f3"
)
_PROFESSION = (
    f"(?:[\u2695\u2696\u2708]{_VARIANT}|[\U0001f33e\U0001f373\U0001f37c\U0001f384\U0001f393\U0001f3a4\U0001f3a8\U0001f3eb"
    "\U0001f3ed\U0001f4bb\U0001f4bc\U0001f527\U0001f52c\U0001f680\U0001f692\U0001f9af-\U0001f9b3\U0001f9bc\U0001f9bd])"
)
# Sequences with a joiner: the first part, and what may follow it.
_JOINED = (
    (f"{_PERSON}{_SKIN}?", _PROFESSION),
    (f"{_PERSON}{_SKIN}?", f"\u2764{_VARIANT}{_JOINER}(?:\U0001f48b{_JOINER})?{_PERSON}{_SKIN}?"),
    (f"{_PERSON}{_SKIN}?", f"\U0001f91d{_JOINER}{_PERSON}{_SKIN}?"),
    (_PERSON, f"(?:{_PERSON}{_JOINER})?{_CHILD}(?:{_JOINER}{_CHILD})?"),
    (f"[{_TONED}]{_SKIN}?|[\U0001f46f\U0001f93c\U0001f9de\U0001f9df]", f"[\u2640\u2642]{_VARIANT}"),
    (f"[\u26f9\U0001f3cb\U0001f3cc\U0001f574\U0001f575](?:{_SKIN}|{_VARIANT})", f"[\u2640\u2642]{_VARIANT}"),
    (f"\U0001faf1{_SKIN}", f"\U0001faf2{_SKIN}"),
    (f"\U0001f3f3{_VARIANT}", f"(?:\U0001f308|\u26a7{_VARIANT})"),
    ("\U0001f3f4", f"\u2620{_VARIANT}"),
    (f"\U0001f441{_VARIANT}?", f"\U0001f5e8{_VARIANT}?"),
    (f"\u2764{_VARIANT}", "[\U0001f525\U0001fa79]"),
    (f"\u26d3{_VARIANT}", "\U0001f4a5"),
    ("\U0001f43b", f"\u2744{_VARIANT}"),
    ("\U0001f636", f"\U0001f32b{_VARIANT}"),
    ("\U0001f642", f"[\u2194\u2195]{_VARIANT}"),
    ("\U0001f415", "\U0001f9ba"),
    ("\U0001f408", "\u2b1b"),
    ("\U0001f426", "[\u2b1b\U0001f525]"),
    ("\U0001f62e", "\U0001f4a8"),
    ("\U0001f635", "\U0001f4ab"),
    ("\U0001f34b", "\U0001f7e9"),
    ("\U0001f344", "\U0001f7eb"),
)
# The flags of countries: a first letter, and which second ones it has.
_FLAGS = (
    "ACDEFGILMOQRSTUWXZ BABDEFGHIJLMNOQRSTVWYZ CACDFGHIKLMNOPRUVWXYZ DEGJKMOZ EACEGHRSTU FIJKMOR "
    "GABDEFGHILMNPQRSTUWY HKMNRTU ICDELMNOQRST JEMOP KEGHIMNPRWYZ LABCIKRSTUVY MACDEFGHKLMNOPQRSTUVWXYZ "
    "NACEFGILOPRUZ OM PAEFGHKLMNRSTWY QA REOSUW SABCDEGHIJKLMNORSTVXYZ TACDFGHJKLMNORTVWZ UAGMNSYZ "
    "VACEGINU WFS XK YET ZAMW"
)
_REGIONS = ("gbeng", "gbsct", "gbwls")  # England, Scotland and Wales have flags of their own


def _flags(letters: str) -> str:
    """Return the pattern of the flags of countries with the same first letter."""
    first, *seconds = (chr(ord(letter) - ord("A") + 0x1F1E6) for letter in letters)
    return f"{first}[{''.join(seconds)}]"


def _region_flag(region: str) -> str:
    """Return the flag of a part of a country."""
    return "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"


_EMOJI = re.compile(
    "|".join(
        [
            *(f"(?:{first}){_JOINER}{rest}" for first, rest in _JOINED),
            f"[0-9#*]{_VARIANT}?\u20e3",
            *map(_region_flag, _REGIONS),
            *map(_flags, _FLAGS.split()),
            f"[{_TONED}]{_SKIN}",
            f"[{_TONED_TEXT}](?:{_VARIANT}?{_SKIN}|{_VARIANT})",
            f"[{_TEXT}]{_VARIANT}",
        ]
    )
)

_ACCENTED = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0253\u0254\u0256\u0257\u0259\u025b\u0263\u0268\u026f\u0272\u0289\u028b\u02bb"
    "\u0300-\u036f\u1e00-\u1eff"
)
_DIRECTIONAL, _INVALID = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069", "\ufffe\ufeff\uffff"
_SPACES = "\t-\r \u0085\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_LABEL = rf"[^!'#%&()*+,\\\-./:;<=>?@\[\]^_{{|}}~${_SPACES}{_INVALID}{_DIRECTIONAL}]"
_PATH = rf"[a-z\u0400-\u04ff0-9!*';:=+,.$/%#\[\]\-\u2013_~@|&{_ACCENTED}]"
_PARENTHESES = rf"\((?:{_PATH}+|{_PATH}*\({_PATH}+\){_PATH}*)\)"
_PATH_END = rf"[+\-a-z\u0400-\u04ff0-9=_#/{_ACCENTED}]"
_QUERY = r"\?[a-z0-9!?*'@();:&=+$/%#\[\]\-_.,~|]*[a-z0-9\-_&=#/]"
_SHORT_URL = re.compile(rf"https?://t\.co/([a-z0-9]+)(?:{_QUERY})?", re.IGNORECASE)


_WORD = re.compile(f"[{_SPACES}]?[^{_SPACES}]+")  # with a space before it, as that may precede a URL


@cache
def _url_patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of the end of any domain, of a URL, and of a domain in Latin letters, which needs no scheme.

    X looks at UTF-16: one half of a character beyond 16 bits may precede a URL that begins with the other half.
    """
    endings = defaultdict[str, list[str]](list)  # by first letters, so that few are compared
    for domain in (files(__package__) / "top_level_domains.txt").read_text(encoding="utf-8").split():
        endings[domain[0]].append(domain[1:])
    known = "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in endings.items())
    top_level = rf"(?:(?:{known})(?![0-9a-zA-Z@+-])|xn--[\-0-9a-z]+)"
    subdomain, name = rf"{_LABEL}(?:[_-]*{_LABEL})*+\.", rf"{_LABEL}(?:-*{_LABEL})*+\."
    url = (
        rf"(?P<before>[^A-Za-z0-9@\uff20$#\uff03{_INVALID}]|^|(?=[\U00010000-\U0010ffff]))"
        rf"(?P<url>(?P<scheme>https?://)?"
        rf"(?P<domain>(?:{subdomain}){{0,{MAX_LABELS}}}{name}{top_level})(?::[0-9]+)?"
        rf"(?P<path>/(?:{_PATH}*(?:{_PARENTHESES}{_PATH}*)*{_PATH_END}|{_PARENTHESES}|@{_PATH}+/)*)?(?:{_QUERY})?)"
    )
    latin_domain = rf"(?:[\-a-z0-9{_ACCENTED}]+\.)+{top_level}"
    ending, url_pattern, latin = (re.compile(item, re.IGNORECASE) for item in (rf"\.{top_level}", url, latin_domain))
    return ending, url_pattern, latin


def text_weight(text: str) -> int:
    """Return the length of a text by X's rules; a post has at most MAX_WEIGHT."""
    return sum(piece_weight for _, piece_weight in weighted_pieces(text))


def weighted_pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the unbreakable pieces of a text, each with its weight."""
    text = unicodedata.normalize("NFC", text)
    position = 0
    for start, end in _find_urls(text):
        yield from _weighted_characters(text[position:start])
        yield text[start:end], URL_WEIGHT
        position = end
    yield from _weighted_characters(text[position:])


def _find_urls(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each URL that X makes a link."""
    ending, url_pattern, _ = _url_patterns()
    for word in _WORD.finditer(text):
        if ending.search(word[0]):
            for match in url_pattern.finditer(word[0]):
                for start, end in _urls_in(match):
                    yield word.start() + start, word.start() + end


def _urls_in(match: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the URLs within a match of the pattern of a URL: without a scheme, of its Latin parts."""
    start, end = match.span("url")
    scheme, domain = match["scheme"] or "", match["domain"]
    is_long = len(scheme or "https://") + end - start > MAX_URL_LENGTH
    if is_long or any(_encoded_length(label) > MAX_LABEL_LENGTH for label in domain.split(".")):
        return
    if scheme:
        short_url = _SHORT_URL.match(match["url"])
        if short_url is None:
            yield start, end
        elif len(short_url[1]) <= MAX_SHORT_ID_LENGTH:
            yield start, start + short_url.end()
    elif match["before"] not in ("-", "_", ".", "/"):
        _, _, latin_domain = _url_patterns()
        domains = [(start + found.start(), start + found.end()) for found in latin_domain.finditer(domain)]
        yield from domains[:-1]
        if domains:
            last_start, last_end = domains[-1]
            yield last_start, end if match["path"] else last_end


def _encoded_length(label: str) -> int:
    """Return the length of a part of a domain in ASCII."""
    return len(label) if label.isascii() else len("xn--") + len(label.encode("punycode"))


def _weighted_characters(text: str) -> Iterator[tuple[str, int]]:
    position = 0
    while position < len(text):
        match = _EMOJI.match(text, position)
        if match is not None:
            yield match[0], DEFAULT_WEIGHT
            position = match.end()
            continue
        end = position + 1
        while end < len(text) and unicodedata.category(text[end]).startswith("M"):
            end += 1
        yield text[position:end], sum(_character_weight(character) for character in text[position:end])
        position = end


def _character_weight(character: str) -> int:
    code = ord(character)
    return 1 if any(first <= code <= last for first, last in LIGHT_RANGES) else DEFAULT_WEIGHT


MAX_PICTURES = 4
MAX_REPLY_POSTS = 5  # posts with which one mention may be answered
ELLIPSIS = "…"
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")
_LEADING_MENTIONS = re.compile(r"^(?:\s*[@＠]\w{1,15}\b[,:]?)+\s*")
_MENTION = re.compile(  # as X detects them: after any character but a letter, and after RT
    r"(https?://\S+)|(?:(?<![A-Za-z0-9_])|(?<=\b[Rr][Tt]))[@＠](?=[A-Za-z0-9_])"
)


def split_reply(content: Content, label: str = "") -> list[Content]:
    """Split a text into posts, the pictures with the first; a like or a repost is one part.

    More than four pictures go with the posts after it, if need be with posts of their number alone. URLs of files
    without data are appended to the text, and the names of files that cannot be posted. A reply has at most
    MAX_REPLY_POSTS parts. The first one leaves room for a label before it.
    """
    operation = content.operation
    if operation is not None and not operation.creates_post:
        return [Content(text=content.text, operation=operation)]
    is_reply = content.in_reply_to is not None or (operation is not None and operation.kind is PostOperationKind.REPLY)
    files = [item for item in content.attachments if item.data is not None]
    pictures = [item for item in files if item.kind is MediaKind.IMAGE]
    if is_reply:
        pictures = pictures[: MAX_REPLY_POSTS * MAX_PICTURES]
    batches = [tuple(pictures[start : start + MAX_PICTURES]) for start in range(0, len(pictures), MAX_PICTURES)]
    links = [item.url for item in content.attachments if item.data is None and item.url.startswith("http")]
    refused = [item.name or item.title or item.id for item in files if item not in pictures]
    notes = [f"(could not be posted: {', '.join(refused)})"] if refused else []
    pieces = split_text(label + "\n".join([content.text, *links, *notes]).strip())
    pieces[0] = pieces[0].removeprefix(label)
    pieces += [f"{number}/{len(batches)}" for number in range(len(pieces) + 1, len(batches) + 1)]
    if is_reply:
        pieces = _limit_posts(pieces)
    of_posts = chain(batches, repeat(()))
    posts = [Content(text=text, attachments=files) for text, files in zip(pieces, of_posts, strict=False)]
    return [replace(posts[0], operation=operation), *posts[1:]]


def split_text(text: str) -> list[str]:
    """Split a text at the ends of sentences, else between words, else between characters."""
    pieces: list[str] = []
    remaining = unicodedata.normalize("NFC", text).strip()
    while (fitting := _fitting_length(remaining)) < len(remaining):
        end = _last_break(_SENTENCE_END, remaining, fitting) or remaining.rfind(" ", 1, fitting + 1)
        end = end if end > 0 else fitting
        while end > 1 and text_weight(remaining[:end].rstrip()) > MAX_WEIGHT:  # the cut has made a word a URL
            end -= 1
        pieces.append(remaining[:end].rstrip())
        remaining = remaining[end:].lstrip()
    return [*pieces, remaining]


def remove_mentions(text: str) -> str:
    """Remove the @ of mentions in a reply: X notifies the participants, and no one else may be notified."""
    remaining = _LEADING_MENTIONS.sub("", text)
    return _MENTION.sub(lambda match: re.sub("[@＠]", "%40", match[1] or ""), remaining or text)


def _limit_posts(pieces: list[str]) -> list[str]:
    """Return at most MAX_REPLY_POSTS pieces, with an ellipsis if some were dropped."""
    if len(pieces) <= MAX_REPLY_POSTS:
        return pieces
    last_piece = pieces[MAX_REPLY_POSTS - 1]
    fitting = _fitting_length(last_piece, MAX_WEIGHT - text_weight(ELLIPSIS))
    end = len(last_piece) if fitting == len(last_piece) else max(last_piece.rfind(" ", 1, fitting + 1), 0) or fitting
    return [*pieces[: MAX_REPLY_POSTS - 1], last_piece[:end].rstrip() + ELLIPSIS]


def _fitting_length(text: str, max_weight: int = MAX_WEIGHT) -> int:
    """Return how many characters fit into one post without splitting an unbreakable piece."""
    total = length = 0
    for piece, piece_weight in weighted_pieces(text):
        if total + piece_weight > max_weight:
            break
        total, length = total + piece_weight, length + len(piece)
    return length or 1


def _last_break(pattern: re.Pattern[str], text: str, max_length: int) -> int:
    """Return the last end of a match within `max_length`, spaces apart; 0 if it is in the first quarter."""
    ends = [match.end() for match in pattern.finditer(text, 0, max_length + 2)]
    fitting = [end for end in ends if len(text[:end].rstrip()) <= max_length]
    return max((end for end in fitting if end >= max_length // 4), default=0)
