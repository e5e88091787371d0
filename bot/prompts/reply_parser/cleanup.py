"""Escapes, CDATA, invisible characters and tags of model output.

This is no XML parser: no entity definitions, DOCTYPE or namespaces; anything unknown is text. No function
raises on any string, and all run in linear time.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

MAX_CHARS = 256 * 1024
MAX_TAGS = 4096  # no real answer has more; tags after these are text
FENCE = "```"

_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED_ENTITIES = MappingProxyType({"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"})
_JSON_ESCAPES = MappingProxyType({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"})
_PARTIAL_ENTITY = re.compile(r"&(?:lt?|gt?|a|amp?|ap|apos?|q|quo?|quot|#[0-9]*|#[xX][0-9a-fA-F]*)?\Z")
_INVISIBLE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]*+\Z"
)


class Tag(NamedTuple):
    """A tag of interest: `text[start:end]`, its name in lower case."""

    name: str
    start: int
    end: int
    is_opening: bool
    is_empty: bool  # <name/>


def visible_text(text: str) -> str:
    """Return the text stripped, or an empty string if no character is visible."""
    return "" if _INVISIBLE.match(text) else text.strip()


def fix_surrogates(text: str) -> str:
    """Return a text with surrogate pairs joined and lone surrogates replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def unescape_field(body: str, *, for_json: bool = False) -> str:
    """Return the text of a field: CDATA unwrapped, the rest unescaped exactly once.

    With `for_json` the unescaped characters stay valid inside a JSON string.
    """
    decode = _decode_entity_for_json if for_json else _decode_entity
    pieces: list[str] = []
    position = 0
    while (start := body.find(_CDATA, position)) >= 0:
        end = body.find(_CDATA_END, start)
        if end < 0:
            break
        pieces += _ENTITY.sub(decode, body[position:start]), body[start + len(_CDATA) : end]
        position = end + len(_CDATA_END)
    if start >= 0 and not body[position:start].strip():  # an unclosed section ends with the field
        return "".join(pieces) + body[start + len(_CDATA) :]
    return "".join(pieces) + _ENTITY.sub(decode, body[position:])


def _decode_entity(entity: re.Match[str]) -> str:
    name, decimal, hexadecimal = entity.groups()
    if name:
        return _NAMED_ENTITIES[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_control = (code < 0x20 and code not in (0x09, 0x0A)) or 0x7F <= code < 0xA0
    is_valid = code <= 0x10FFFF and not 0xD800 <= code < 0xE000 and not is_control
    return chr(code) if is_valid else entity[0]


def _decode_entity_for_json(entity: re.Match[str]) -> str:
    char = _decode_entity(entity)
    return _JSON_ESCAPES.get(char, char)


def strip_partial_markup(body: str, name: str) -> str:
    """Return a truncated field without a partial closing tag, escape or CDATA end."""
    position = body.rfind("<")
    tail = body[position:].lower().rstrip() if position >= 0 and len(body) - position < 64 else ""
    endings = (f"</{name}", "</response", "</output", _CDATA.lower())
    if tail and any(ending.startswith(tail) for ending in endings):
        body = body[:position]
    if body.rfind(_CDATA) > body.rfind(_CDATA_END):
        body = body.rstrip("]")
    return _PARTIAL_ENTITY.sub("", body)


_CLOSED_FENCE = re.compile(r"(?:^|(?<=>))[ \t>]*(`{3,}|~{3,})[^\n`]*\n(?:.*\n)*?[ \t>]*\1[`~]*[ \t]*$", re.MULTILINE)
_INLINE_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`\n]+\1(?!`)")


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of closed fences, and of code between backticks in one line outside them."""
    position = 0
    for fence in _CLOSED_FENCE.finditer(text):
        yield from (span.span() for span in _INLINE_CODE.finditer(text, position, fence.start()))
        yield fence.span()
        position = fence.end()
    yield from (span.span() for span in _INLINE_CODE.finditer(text, position))


def find_tags(text: str, pattern: re.Pattern[str]) -> Iterator[Tag]:
    """Yield the first MAX_TAGS tags that match `pattern`, skipping CDATA sections.

    Groups of the pattern: a slash or nothing, the name, a slash or nothing; none of them for CDATA.
    """
    skip_until, count = 0, 0
    for match in pattern.finditer(text):
        start, match_end = match.span()
        slash, name, empty = match.groups()
        if start < skip_until:
            continue
        if name is not None:
            yield Tag(name.lower(), start, match_end, not slash, bool(empty))
            count += 1
            if count == MAX_TAGS:
                return
        elif skip_until >= 0:
            end = text.find(_CDATA_END, match_end)
            skip_until = (
                end + len(_CDATA_END) if end >= 0 else -1
            )  # searched without success only once: the pass stays linear
