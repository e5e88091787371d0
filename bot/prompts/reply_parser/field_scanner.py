"""One linear pass over a model's answer that finds its fields and where each one ends.

JSON objects in model output: inside prose or fences, slightly broken, or truncated.

No function raises on any string: what the decoder refuses (depth, 10,000-digit numbers) is no object.

Parses nested tags of any name into dictionaries, lists and strings.

Escapes, CDATA, invisible characters and tags of model output.

This is no XML parser: no entity definitions, DOCTYPE or namespaces; anything unknown is text. No function
raises on any string, and all run in linear time.
"""

import ast
import json
import re
from bisect import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

MAX_CHARS = 256 * 1024
MAX_TAGS = 4096  # no real answer has more; tags after these are text
FENCE = "```"

_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED_ENTITIES = MappingProxyType({"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"})
_JSON_ESCAPES = MappingProxyType({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"})
_PARTIAL_ENTITY = re.compile(r"&(?:lt?|gt?|a|amp?|ap|apos?|q|quo?|quot|#[0-9]*|#[xX][0-9a-fA-F]*)?\Z")


class Tag(NamedTuple):
    """A tag of interest: `text[start:end]`, its name in lower case."""

    name: str
    start: int
    end: int
    is_opening: bool
    is_empty: bool  # <name/>


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


_TILDES = re.compile(r"(?:\A|(?<=>))[ \t]*+(~{3,}+)")
_TICKS = re.compile(r"`{3,}+\Z")
_CLOSING_FENCE = re.compile(r"([ \t>]*+(`{3,}+|~{3,}+)[`~]*+[ \t]*+)(?:</\w{1,16}>[ \t]*+)*+")  # a field may end there
_INLINE_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`\n]+\1(?!`)")


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of closed fences, and of code between backticks in one line outside them."""
    position = 0
    for start, end in _closed_fences(text):
        yield from (span.span() for span in _INLINE_CODE.finditer(text, position, start))
        yield start, end
        position = end
    yield from (span.span() for span in _INLINE_CODE.finditer(text, position))


def _closed_fences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the fences that a later line closes, with at least as many backticks or tildes.

    A fence may begin in a quotation or behind a tag, and end before closing tags. One pass forward and one back: the
    time is linear.
    """
    # Those with a mark: position, line, and the mark and its end if it may close a fence.
    lines: list[tuple[int, str, str, int]] = []
    position = 0
    for line in text.split("\n"):
        if "```" in line or "~~~" in line:
            closing = _CLOSING_FENCE.fullmatch(line)
            lines.append((position, line, *((closing[2], closing.end(1)) if closing else ("", 0))))
        position += len(line) + 1
    longest = {"`": 0, "~": 0}
    may_close: list[dict[str, int]] = []  # the longest marks behind each line
    for _, _, mark, _ in reversed(lines):
        may_close.append(dict(longest))
        if mark:
            longest[mark[0]] = max(longest[mark[0]], len(mark))
    start, opening = 0, ""
    for (position, line, closing_mark, closing_end), behind in zip(lines, reversed(may_close), strict=True):
        if not opening:
            offset, opening = _find_opening(line)
            start = position + offset
            opening = opening if opening and behind[opening[0]] >= len(opening) else ""
        elif closing_mark.startswith(opening):
            yield start, position + closing_end
            opening = ""


def _find_opening(line: str) -> tuple[int, str]:
    """Return where a fence begins in a line, and its mark; no mark if none begins there."""
    last_tick = line.rfind("`")
    if ticks := _TICKS.search(line[: last_tick + 1]):
        before = line[: ticks.start()].rstrip(" \t")
        if not before or before.endswith(">"):
            return ticks.start(), ticks[0]
    tildes = _TILDES.search(line, last_tick + 1)  # no backtick may follow in the line
    return (tildes.start(1), tildes[1]) if tildes else (0, "")


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


ROOTS = frozenset({"response", "output"})
REASONING = frozenset({"think", "thinking"})

_SPACE = re.compile(r"\s*+")
_REGULAR = re.compile(r"<response>\s*+(?:<([a-z]++)>[^<]*+</\1>\s*+)++</response>")
_REGULAR_FIELD = re.compile(r"<([a-z]++)>([^<]*+)</")
_ANY_TAG = re.compile(r"<(/?)[a-z_][^<>]*?(/?)>", re.IGNORECASE)
_MAX_PARTIAL_TAG = 64


class Field(NamedTuple):
    """A field as written, not yet unescaped."""

    name: str
    body: str
    is_closed: bool = True  # by its own tag
    is_cut: bool = False  # the answer ended in the middle of it


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The fields of one kind of answer, and how each ends if its closing tag is missing or doubtful."""

    names: frozenset[str]  # all of them, and the roots
    lists: frozenset[str]  # short lists of names: end at the next tag that is not one of `items`
    items: frozenset[str]
    arguments: frozenset[str]  # hold tags of any name, these fields' names among them
    message: frozenset[str]  # what is said to the room: runs to the end of the answer
    pattern: re.Pattern[str]


def build_shape(
    names: Collection[str],
    *,
    lists: Collection[str] = (),
    items: Collection[str] = (),
    arguments: Collection[str] = (),
    message: Collection[str] = (),
) -> AnswerShape:
    """Build a shape from field names in lower case; fields in no other group are free text."""
    all_names = frozenset({*names, *lists, *items, *arguments, *message, *ROOTS})
    alternatives = "|".join(re.escape(name) for name in sorted(all_names))
    pattern = re.compile(rf"<(?:(/?)(?=\w)({alternatives})(?=[\s/>])[^<>]*?(/?)>|!\[CDATA\[)", re.IGNORECASE)
    return AnswerShape(all_names, frozenset(lists), frozenset(items), frozenset(arguments), frozenset(message), pattern)


@dataclass(slots=True)
class ScanResult:
    """The fields of an answer and the prose around them."""

    fields: list[Field] = field(default_factory=list)
    start: int = 0  # where the first field opens
    before: str = ""  # prose before the root, or before that field
    prose: str = ""  # prose between and behind the fields
    has_root: bool = False
    is_ended: bool = False  # by </response>
    is_partial: bool = False  # ends in the middle of a tag
    may_quote: bool = False  # a field that does not surely end may be quoting the actions behind it

    def first_field(self, *names: str) -> Field | None:
        """Return the first field of the first of these names that occurs."""
        return next((candidate for name in names for candidate in self.fields if candidate.name == name), None)

    def texts(self) -> dict[str, list[str]]:
        """Return the texts of the fields by their names, in order."""
        texts: dict[str, list[str]] = {}
        for part in self.fields:
            texts.setdefault(part.name, []).append(unescape_field(part.body))
        return texts


def scan_fields(text: str, shape: AnswerShape) -> ScanResult | None:
    """Return the fields of `shape` in `text`, None for prose without tags. Never raises; linear time."""
    if _REGULAR.fullmatch(text) and (result := _scan_regular(text, shape)):
        return result
    return scan_tag_by_tag(text, shape)


def scan_tag_by_tag(text: str, shape: AnswerShape) -> ScanResult | None:
    """Return the fields as `scan_fields` does, tag by tag, also of an irregular answer.

    Tags in code, in fences or backticks, are text.
    """
    tags = list(find_tags(text, shape.pattern))
    if tags and ("`" in text or "~~~" in text):
        ends = dict(code_spans(text))
        starts = sorted(ends)
        tags = [tag for tag in tags if not (at := bisect(starts, tag.start)) or ends[starts[at - 1]] <= tag.start]
    return _Scanner(text, shape, tags).run() if any(tag.is_opening for tag in tags) else None


def _scan_regular(text: str, shape: AnswerShape) -> ScanResult | None:
    """Return the fields of an answer that has only fields, each closed by its own tag."""
    matches = list(_REGULAR_FIELD.finditer(text, 1))
    fields = [Field(name, body) for name, body in (match.groups() for match in matches)]
    is_known = all(field.name in shape.names and field.name not in ROOTS for field in fields)
    is_short = len(fields) < MAX_TAGS // 2
    start = matches[0].start()
    return ScanResult(fields, start, has_root=True, is_ended=True) if is_known and is_short else None


def strip_last_tags(text: str, shape: AnswerShape) -> str:
    """Return a text without closing tags and a fence at its end: the model began in the middle."""
    return _strip_closing_tags(text.rstrip(), list(find_tags(text, shape.pattern)))


def strip_partial_tag(text: str, shape: AnswerShape) -> str:
    """Return a text without a partial tag at its end."""
    position = text.rfind("<")
    if position < 0 or ">" in text[position:] or len(text) - position > _MAX_PARTIAL_TAG:
        return text
    tail = text[position + 1 :].removeprefix("/").lower()
    names = shape.names | REASONING
    is_name = tail.partition(" ")[0] in names or any(name.startswith(tail) for name in names)
    return text[:position] if is_name and (tail or not text[:position].strip()) else text


class _Scanner:
    """The tags of one answer, and the index of every closing tag."""

    def __init__(self, text: str, shape: AnswerShape, tags: list[Tag]) -> None:
        self.text, self.shape, self.tags = text, shape, tags
        self.action_fields = shape.lists | shape.items | shape.arguments
        self.is_doubtful = False  # the end of an earlier field is uncertain
        self.closing_tags: dict[str, list[int]] = {}
        for index, tag in enumerate(tags):
            if not tag.is_opening:
                self.closing_tags.setdefault(tag.name, []).append(index)

    def run(self) -> ScanResult | None:
        """Read field after field until the first root with content is closed."""
        index = self._first_tag()
        position = self.tags[index].start
        result, prose_parts = ScanResult(before=self.text[:position].strip()), list[str]()
        has_content = is_done = False
        while index < len(self.tags) and not is_done:
            tag = self.tags[index]
            prose_parts.append(self.text[position : tag.start])
            has_content = has_content or bool(prose_parts[-1].strip())
            if tag.is_opening and tag.name not in ROOTS:
                result.start = result.start if result.fields else tag.start
                result.may_quote |= self.is_doubtful and tag.name in self.action_fields
                part, index, position = self._read_field(index)
                result.fields.append(part)
                has_content = True
                continue
            index, position = index + 1, tag.end
            if tag.name in ROOTS:
                is_second = result.has_root and tag.name == "response"
                is_done = has_content and (is_second or not tag.is_opening)
                result.is_ended = is_done and not tag.is_opening
                result.has_root = True
        result.may_quote &= not (result.is_ended and self._is_paired(position))
        end = self.tags[index].start if index < len(self.tags) else len(self.text)
        return self._finish(result, prose_parts, self.text[position:end])

    def _first_tag(self) -> int:
        """Return the first tag: at the start of the text, else the first root followed by a field."""
        first = self.tags[0]
        if first.is_opening and not self.text[: first.start].strip():
            return 0
        for index, tag in enumerate(self.tags[:-1]):
            after = self.tags[index + 1]
            if (
                tag.is_opening
                and tag.name == "response"
                and after.is_opening
                and self._skip_space(tag.end) == after.start
            ):
                return index
        return 0

    def _finish(self, result: ScanResult, prose_parts: list[str], rest: str) -> ScanResult | None:
        visible = rest if result.is_ended else strip_partial_tag(rest, self.shape)
        result.is_partial = visible != rest and rest[len(visible) + 1 :][:1] not in ("", "/")
        result.prose = "".join((*prose_parts, visible)).strip().removesuffix(FENCE).strip()
        if not result.has_root:
            is_structure = not result.before.strip("`") or any(part.is_closed for part in result.fields)
        else:
            is_structure = bool(result.fields) or result.is_ended or not result.before
        return result if is_structure else None

    def _is_paired(self, end: int) -> bool:
        """Whether the root is the whole answer: then nothing was cut off."""
        roots = [tag.is_opening for tag in self.tags if tag.name == "response"]
        is_outermost = (
            self.tags[self._first_tag()].name in ROOTS and len(_strip_closing_tags(self.text, self.tags)) <= end
        )
        return is_outermost and roots.count(True) == roots.count(False)

    def _skip_space(self, position: int) -> int:
        space = _SPACE.match(self.text, position)
        return space.end() if space else position

    def _read_field(self, index: int) -> tuple[Field, int, int]:
        """Read the field that opens at tag `index`; return it, the next tag and the next position."""
        opening = self.tags[index]
        if opening.is_empty:
            return Field(opening.name, ""), index + 1, opening.end
        is_short = opening.name in self.shape.lists or opening.name in self.shape.items
        end = self._find_next_tag(index) if is_short else self._find_closing_tag(index)
        if end is not None and not self.tags[end].is_opening and self.tags[end].name == opening.name:
            closing = self.tags[end]
            return Field(opening.name, self.text[opening.end : closing.start]), end + 1, closing.end
        if end is None and opening.name not in self.shape.message:
            end = self._find_next_tag(index)
        if end is None or (opening.name in self.shape.arguments and not self._is_balanced(index, end)):
            return self._read_to_end(opening), len(self.tags), len(self.text)
        self.is_doubtful |= opening.name not in self.action_fields
        next_start = self.tags[end].start
        return Field(opening.name, self.text[opening.end : next_start], is_closed=False), end, next_start

    def _find_closing_tag(self, index: int) -> int | None:
        """Return the first closing tag followed by structure, else the last one; the others are quoted."""
        closings = self.closing_tags.get(self.tags[index].name, [])
        first = bisect(closings, index)
        for position in range(first, len(closings)):
            if self._is_followed_by_structure(closings[position]):
                return closings[position]
        if first == len(closings):
            return None
        self.is_doubtful = True
        return closings[-1]

    def _is_followed_by_structure(self, index: int) -> bool:
        next_position = self._skip_space(self.tags[index].end)
        if next_position == len(self.text) or self.text.startswith(FENCE, next_position):
            return True
        if index + 1 == len(self.tags):
            is_short = len(self.text) - next_position <= _MAX_PARTIAL_TAG
            return is_short and not strip_partial_tag(self.text[next_position:], self.shape)
        after = self.tags[index + 1]
        return after.start == next_position and (after.is_opening or after.name in ROOTS)

    def _find_next_tag(self, index: int) -> int | None:
        """Return the next tag that can end an unclosed field: its own, another field's, or the root's end."""
        name = self.tags[index].name
        inner = self.shape.items if name in self.shape.lists else frozenset()
        for position in range(index + 1, len(self.tags)):
            tag = self.tags[position]
            if tag.name not in inner if tag.is_opening else tag.name == name or tag.name in ROOTS:
                return position
        return None

    def _is_balanced(self, index: int, end: int) -> bool:
        """Whether arguments are complete and only their closing tag is missing."""
        if self.closing_tags.get("response", [-1])[-1] < end:
            return False
        depth = 0
        for tag in _ANY_TAG.finditer(self.text, self.tags[index].end, self.tags[end].start):
            depth += 0 if tag[2] else -1 if tag[1] else 1
        return depth == 0

    def _read_to_end(self, opening: Tag) -> Field:
        """Return a field that runs to the end of the answer, without closing tags there."""
        stripped = self.text.rstrip()
        text = _strip_closing_tags(stripped, self.tags)
        is_cut = len(text) == len(stripped) or opening.name not in self.shape.message
        body = text[opening.end :]
        body = strip_partial_markup(body, opening.name) if is_cut else body
        return Field(opening.name, body, is_closed=False, is_cut=is_cut)


def _strip_closing_tags(text: str, tags: list[Tag]) -> str:
    end = len(text)
    for tag in reversed(tags):
        if tag.is_opening or text[tag.end : end].strip(" \t\r\n`"):
            break
        end = tag.start
    return text[:end]


def _merge_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the members of an object; objects under one key are a list, of other values the last counts."""
    members: dict[str, object] = {}
    for key, value in pairs:
        existing = members.get(key)
        if isinstance(value, dict) and existing and isinstance(existing, dict | list):
            members[key] = [*existing, value] if isinstance(existing, list) else [existing, value]
        else:
            members[key] = value
    return members


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_merge_members)
_MAX_OBJECTS = 64  # prose with more of them holds no answer
_OPENING = re.compile(r'\{(?=\s*+(?:\}|"[^"]*+"\s*+:))')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEY = re.compile(r'[\s,]*+"([^"\\]*+)"\s*+:\s*+')
_VALUE_END = re.compile(r"\s*+(?:[,}]|\Z)")
_OBJECT_END = re.compile(r"[\s,]*+\}")
_STRING = re.compile(r'"([^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+)')
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_STRING_END = re.compile(r'"(?=\s*+(?:\}|,\s*+"\w++"\s*+:))')
_BARE_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_MAX_PYTHON = 20_000  # characters; a longer text is not read as Python
_COMMENT = re.compile(r"^[ \t]*//[^\n]*$", re.MULTILINE)
_UNQUOTED_KEY = re.compile(r"([{,]\s*)([A-Za-z_]\w{0,40})\s*:(?!/)")
_CUT_EARLY = re.compile(r'\{\s*+(?:\Z|"[^"]*+(?:\Z|"\s*+\Z))')


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object at `text[start:end]`; `cut_key` is the member whose value is truncated."""

    members: dict[str, object]
    start: int
    end: int
    is_complete: bool = True
    cut_key: str = ""  # in lower case
    partial_text: str = ""  # the beginning of that value, if it is a string

    def lowercase_members(self) -> dict[str, object]:
        """Return the members by key in lower case; the first of a key wins."""
        return {key.lower(): value for key, value in reversed(self.members.items())}


def decode_value(text: str, position: int = 0) -> tuple[object, int] | None:
    """Decode the JSON value at a position; return it and its end, or None."""
    try:
        value, end = _DECODER.raw_decode(text, position)
        if _SURROGATE.search(text, position, end):
            value = json.loads(fix_surrogates(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return value, end


def find_objects(text: str) -> Iterator[JsonObject]:
    """Yield the non-empty objects in `text`, none of them inside another; a truncated one is the last."""
    position = 0
    for _ in range(_MAX_OBJECTS):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        value = decode_value(text, opening.start())
        if value and isinstance(value[0], dict):
            candidate = JsonObject(value[0], opening.start(), value[1])
        else:
            candidate = _parse_leniently(text, opening.start())
        if candidate.members or not candidate.is_complete:
            yield candidate
        position = candidate.end


def first_object(text: str) -> dict[str, object]:
    """Return the first non-empty object in `text`; {} if there is none or it is truncated."""
    candidate = next(find_objects(text), None)
    return candidate.members if candidate and candidate.is_complete else {}


def parse_object(text: str) -> dict[str, object] | None:
    """Parse a text that is one object, fenced or not; None for anything else."""
    stripped = text.strip(" \t\r\n`").removeprefix("json").lstrip()
    if not stripped.startswith("{"):
        return None
    value = decode_value(stripped)
    if value and isinstance(value[0], dict):
        return value[0]
    candidate = _parse_leniently(stripped, 0)
    return candidate.members if candidate.is_complete else None


def parse_objects(text: str) -> list[dict[str, object]] | None:
    """Parse a text that is one list of objects, fenced or not; None for anything else."""
    stripped = text.strip(" \t\r\n`").removeprefix("json").lstrip()
    value = decode_value(stripped) if stripped.startswith("[") else None
    entries = value[0] if value else None
    if not entries or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return entries


def read_mapping(text: str) -> tuple[object, bool]:
    """Return the JSON or Python value at the start of a text, and whether it is the whole text; None if there is none.

    Trailing commas, bare quotes, unquoted keys and Python's quotes and names are accepted.
    """
    decoded = decode_value(text)
    if decoded is None and text.startswith("{") and _OPENING.match(text):
        candidate = _parse_leniently(text, 0)
        decoded = (candidate.members, candidate.end) if candidate.is_complete and candidate.members else None
    if decoded is None and len(text) <= _MAX_PYTHON:
        decoded = _read_python(text)
    return (None, False) if decoded is None else (decoded[0], not text[decoded[1] :].strip())


def _read_python(text: str) -> tuple[object, int] | None:
    """Return a Python dictionary or list, or an object with unquoted keys, that is the whole text."""
    without_comments = _COMMENT.sub("", text)
    for candidate in (without_comments, _UNQUOTED_KEY.sub(r'\1"\2":', without_comments)):
        try:
            value = read_literal(candidate.strip())
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return value, len(text)
        if candidate != text and (decoded := decode_value(candidate)) and not candidate[decoded[1] :].strip():
            return decoded[0], len(text)
    return None


class _JsonConstants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        constants = {"true": True, "false": False, "null": None}
        return ast.Constant(constants[node.id]) if node.id in constants else node


def read_literal(source: str | ast.expr) -> object:
    """Return the JSON value that a Python literal is, in which `true`, `false` and `null` may be used.

    Raises SyntaxError, ValueError, TypeError, MemoryError or RecursionError for anything else, such as bytes or sets.
    """
    node = ast.parse(source, mode="eval").body if isinstance(source, str) else source
    value = ast.literal_eval(_JsonConstants().visit(node))
    return json.loads(fix_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False)))


def find_answer(text: str, keys: Collection[str]) -> JsonObject | None:
    """Return the object with a key of `keys`, complete or truncated; None if there is none.

    An object in the middle of a sentence counts only if it has two of the keys.
    """
    for candidate in find_objects(text):
        if matching_keys := {*candidate.lowercase_members(), candidate.cut_key} & set(keys):
            rest_of_line = text[candidate.end :].partition("\n")[0].strip(" \t\r`")
            return candidate if len(matching_keys) > 1 or not rest_of_line or rest_of_line.startswith("<") else None
        if not candidate.is_complete and candidate.start == 0:
            return candidate
    return _parse_leniently(text, 0) if _CUT_EARLY.match(text) else None


def _parse_leniently(text: str, start: int) -> JsonObject:
    """Parse members as far as possible; trailing commas and bare quotes in strings are accepted."""
    members: dict[str, object] = {}
    position = start + 1
    while key := _KEY.match(text, position):
        value = decode_value(text, key.end())
        if value is None or not _VALUE_END.match(text, value[1]):
            value = _parse_bare_quotes(text, key.end())
        if value is None:
            return JsonObject(members, start, len(text), False, key[1].lower(), _read_partial_string(text, key.end()))
        members.setdefault(key[1], value[0])
        position = value[1]
    end = _OBJECT_END.match(text, position)
    return JsonObject(members, start, end.end() if end else len(text), is_complete=end is not None)


def _parse_bare_quotes(text: str, position: int) -> tuple[object, int] | None:
    """Parse a string with unescaped quotes in it."""
    end = _STRING_END.search(text, position + 1) if text.startswith('"', position) else None
    if end is None:
        return None
    inner = _BARE_QUOTE.sub(lambda quote: quote[1] or '\\"', text[position + 1 : end.start()])
    value = decode_value(f'"{inner}"')
    return None if value is None else (value[0], end.end())


def _read_partial_string(text: str, position: int) -> str:
    """Return the beginning of a truncated string."""
    string = _STRING.match(text, position)
    value = decode_value(f'"{_HALF_PAIR.sub("", string[1])}"') if string else None
    return str(value[0]) if value else ""


MAX_DEPTH = 64

TagTree: TypeAlias = "str | dict[str, TagTree] | list[TagTree]"

_TAG = re.compile(r"<(?:(/?)([a-z_][\w.:-]*+)(?=[\s/>])[^<>]*?(/?)>|!\[CDATA\[)", re.IGNORECASE)
_MARKUP = frozenset(("a", "b", "i", "u", "s", "p", "br", "em", "strong", "code", "pre", "span", "del", "sub", "sup"))
_JSON = re.compile(r"\s*+[\[{]")


def parse_tags(text: str, *, root: str = "") -> TagTree:
    """Parse the nested tags of a cleaned-up text, up to the end of `root`."""
    stack = _Stack(text)
    for tag in find_tags(text, _TAG):
        stack.add_tag(tag)
        if tag.name == root and len(stack.nodes) == 1:
            break
    return stack.build_tree()


class _Node:
    """An open tag and its content so far."""

    __slots__ = ("children", "has_words", "name", "start", "words_start", "written")

    def __init__(self, name: str, written: str, start: int) -> None:
        self.name, self.written, self.start = name, written, start
        self.words_start = start  # where the words after the last child begin
        self.has_words = False
        self.children: list[tuple[str, TagTree]] = []

    def note_words(self, text: str, until: int, after: int) -> None:
        """Note words before a child or the end."""
        self.has_words = self.has_words or bool(text[self.words_start : until].strip())
        self.words_start = after

    def is_text(self) -> bool:
        """Whether this is text with mark-up and not a list of values."""
        return not self.children or (self.has_words and all(name.lower() in _MARKUP for name, _ in self.children))


class _Stack:
    """The open tags of one answer, innermost last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = [_Node("", "", 0)]
        self.open: dict[str, int] = {}
        self.skipped_depth = 0

    def add_tag(self, tag: Tag) -> None:
        """Add the next tag; one that closes nothing is text."""
        written = self.text[tag.start + 1 : tag.start + 1 + len(tag.name)]
        if tag.is_empty:
            self.nodes[-1].note_words(self.text, tag.start, tag.end)
            self.nodes[-1].children.append((written, ""))
        elif tag.is_opening and len(self.nodes) <= MAX_DEPTH:
            self.nodes[-1].note_words(self.text, tag.start, tag.end)
            self.nodes.append(_Node(tag.name, written, tag.end))
            self.open[tag.name] = self.open.get(tag.name, 0) + 1
        elif tag.is_opening:
            self.skipped_depth += 1
        elif self.skipped_depth:
            self.skipped_depth -= 1
        elif self.open.get(tag.name):
            self._close(tag)

    def _close(self, tag: Tag) -> None:
        """Close the innermost tag of this name; unclosed tags inside it are text."""
        while self.nodes[-1].name != tag.name:
            orphan = self._pop()
            self.nodes[-1].children += orphan.children
            self.nodes[-1].has_words = True
        node = self._pop()
        node.note_words(self.text, tag.start, tag.end)
        self.nodes[-1].children.append((node.written, self._node_value(node, tag.start)))
        self.nodes[-1].words_start = tag.end

    def _pop(self) -> _Node:
        node = self.nodes.pop()
        self.open[node.name] -= 1
        return node

    def build_tree(self) -> TagTree:
        """Return the tree; complete values in open tags count, a truncated value does not."""
        is_cut = len(self.nodes) > 1
        while len(self.nodes) > 1:
            node = self._pop()
            if node.children:
                self.nodes[-1].children.append((node.written, _group_children(node.children)))
        top = self.nodes[0]
        top.note_words(self.text, len(self.text), len(self.text))
        if not top.is_text():
            return _group_children(top.children)
        return {} if is_cut and self.text.lstrip().startswith("<") else unescape_field(self.text).strip()

    def _node_value(self, node: _Node, end: int) -> TagTree:
        if not node.is_text() and not _JSON.match(self.text, node.start, end):
            return _group_children(node.children)
        return unescape_field(self.text[node.start : end]).strip()


def _group_children(children: list[tuple[str, TagTree]]) -> dict[str, TagTree]:
    grouped: dict[str, TagTree] = {}
    for name, value in children:
        existing = grouped.get(name)
        if isinstance(existing, list):
            existing.append(value)
        else:
            grouped[name] = value if existing is None else [existing, value]
    return grouped
