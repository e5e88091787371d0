"""One linear pass over a model's answer that finds its fields and where each one ends."""

import re
from bisect import bisect
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from bot.prompts.reply_parser.cleanup import FENCE, MAX_TAGS, Tag, code_spans, find_tags, strip_partial_markup

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

    def fields_named(self, name: str) -> list[Field]:
        """Return all fields of this name, in order."""
        return [candidate for candidate in self.fields if candidate.name == name]


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
    if "`" in text or "~~~" in text:
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
