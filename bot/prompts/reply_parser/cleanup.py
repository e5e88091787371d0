"""What a model's answer looks like before it means anything: wrapping, tags, escapes.

It is no XML parser: it knows no entity definitions, no DOCTYPE, no namespaces, opens nothing, and takes
whatever it does not know for text. Nothing here raises on any string, and all of it runs in linear time.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

MAX_CHARS = 256 * 1024
MAX_TAGS = 4096  # no honest answer has as many; what stands behind them is text
FENCE = "```"

_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED = MappingProxyType({"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"})
_JSON_ESCAPES = MappingProxyType({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"})
_PARTIAL_ENTITY = re.compile(r"&(?:lt?|gt?|a|amp?|ap|apos?|q|quo?|quot|#[0-9]*|#[xX][0-9a-fA-F]*)?\Z")
_INVISIBLE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]*+\Z"
)
_OPEN_FENCE = re.compile(r"```(?:xml|json|html|text|txt|md|markdown)?[ \t]*+(?:\r?\n|\Z)|```[a-z]*\Z", re.I)
_THOUGHT_OR_ANSWER = re.compile(
    r"<(?P<slash>/?)think(?:ing)?\s*+>"
    r"|<(?P<answer>response|output|thought|reasoning|actions?|parameters|providers|text)\s*+>",
    re.IGNORECASE,
)
_BEGUN_OBJECT = re.compile(r'(?:\s|```(?:json)?)*+\{\s*+"', re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?\s*+>", re.IGNORECASE)
_RESPONSE = re.compile(r"<response[\s>]", re.IGNORECASE)


class Tag(NamedTuple):
    """A tag of interest: `text[start:end]`, its name in lower case."""

    name: str
    start: int
    end: int
    opens: bool
    is_empty: bool  # <name/>


def bare(raw: str) -> tuple[str, bool]:
    """Return the answer itself, and whether its end is missing.

    Off come what exceeds MAX_CHARS, the reasoning block before the answer, and a code fence around
    all of it; lone surrogates, which no database and no platform takes, are paired or replaced.
    """
    text, is_lost = _without_reasoning(whole(raw[:MAX_CHARS]))
    return _unfenced(text.strip("\ufeff \t\r\n")), is_lost or len(raw) > MAX_CHARS


def said(text: str) -> str:
    """Return the text stripped, or nothing if no character of it can be seen."""
    return "" if _INVISIBLE.match(text) else text.strip()


def whole(text: str) -> str:
    """Join surrogates that belong together and replace those that do not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _without_reasoning(text: str) -> tuple[str, bool]:
    if "think" not in text.lower():
        return text, False
    kept: list[str] = []
    at = 0
    while (found := _THOUGHT_OR_ANSWER.search(text, at)) and not found["answer"]:
        if _BEGUN_OBJECT.match(text, at):
            break
        if found["slash"]:  # the opening tag stood in the prompt: all up to here was reasoning
            kept, at = [], found.end()
            continue
        kept.append(text[at : found.start()])
        end = _THOUGHT_END.search(text, found.end())
        if end is None:
            return _without_unclosed(text, "".join(kept), found)
        at = end.end()
    return "".join(kept) + text[at:], False


def _without_unclosed(text: str, before: str, found: re.Match[str]) -> tuple[str, bool]:
    """Reasoning that never ends is left where an answer begins; standing alone it is no answer at all."""
    answer = _RESPONSE.search(text, found.end())
    if answer is None and before.strip(" \t\r\n`"):
        return before + text[found.start() :], False  # prose that speaks of such a tag
    if answer is None:
        answer = next((m for m in _THOUGHT_OR_ANSWER.finditer(text, found.end()) if m["answer"]), None)
    return ("", True) if answer is None else (text[answer.start() :], False)


def _unfenced(text: str) -> str:
    opening = _OPEN_FENCE.match(text)
    if opening is None:
        return text.strip("`") and text
    inner = text[opening.end() :].rstrip().removesuffix(FENCE)
    return text if FENCE in inner else inner.strip()


def plain(body: str, *, for_json: bool = False) -> str:
    """Return what a field says: CDATA unwrapped, the rest unescaped exactly once.

    `for_json` keeps what is unescaped valid inside a JSON string.
    """
    decode = _json_char if for_json else _char
    pieces: list[str] = []
    at = 0
    while (start := body.find(_CDATA, at)) >= 0:
        end = body.find(_CDATA_END, start)
        if end < 0:
            break
        pieces += _ENTITY.sub(decode, body[at:start]), body[start + len(_CDATA) : end]
        at = end + len(_CDATA_END)
    if start >= 0 and not body[at:start].strip():  # the section was never closed: it ends with the field
        return "".join(pieces) + body[start + len(_CDATA) :]
    return "".join(pieces) + _ENTITY.sub(decode, body[at:])


def _char(entity: re.Match[str]) -> str:
    name, decimal, hexadecimal = entity.groups()
    if name:
        return _NAMED[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_control = (code < 0x20 and code not in (0x09, 0x0A)) or 0x7F <= code < 0xA0
    is_sound = code <= 0x10FFFF and not 0xD800 <= code < 0xE000 and not is_control
    return chr(code) if is_sound else entity[0]


def _json_char(entity: re.Match[str]) -> str:
    char = _char(entity)
    return _JSON_ESCAPES.get(char, char)


def without_partial(body: str, name: str) -> str:
    """Take off what a cut left half written at the end of field `name`: closing tag, escape, CDATA end."""
    at = body.rfind("<")
    tail = body[at:].lower().rstrip() if at >= 0 and len(body) - at < 64 else ""
    endings = (f"</{name}", "</response", "</output", _CDATA.lower())
    if tail and any(ending.startswith(tail) for ending in endings):
        body = body[:at]
    if body.rfind(_CDATA) > body.rfind(_CDATA_END):
        body = body.rstrip("]")
    return _PARTIAL_ENTITY.sub("", body)


def tags_in(text: str, pattern: re.Pattern[str]) -> Iterator[Tag]:
    """Yield the first MAX_TAGS tags that `pattern` knows, skipping whole CDATA sections.

    Groups of the pattern: a slash or nothing, the name, a slash or nothing; none of them for CDATA.
    """
    skipped, tags = 0, 0
    for found in pattern.finditer(text):
        start, at = found.span()
        slash, name, empty = found.groups()
        if start < skipped:
            continue
        if name is not None:
            yield Tag(name.lower(), start, at, not slash, bool(empty))
            tags += 1
            if tags == MAX_TAGS:
                return
        elif skipped >= 0:
            end = text.find(_CDATA_END, at)
            skipped = end + len(_CDATA_END) if end >= 0 else -1  # in vain only once: the pass is linear
