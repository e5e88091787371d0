"""One linear pass over a model's answer: which fields stand there, and where each one ends.

What a field means is the reader's business.
"""

import re
from bisect import bisect
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from bot.prompts.reply_parser.cleanup import FENCE, MAX_TAGS, Tag, tags_in, without_partial

ROOTS = frozenset({"response", "output"})
REASONING = frozenset({"think", "thinking"})

_SPACE = re.compile(r"\s*+")
_REGULAR = re.compile(r"<response>\s*+(?:<([a-z]++)>[^<]*+</\1>\s*+)++</response>")
_REGULAR_FIELD = re.compile(r"<([a-z]++)>([^<]*+)</")
_ANY_TAG = re.compile(r"<(/?)[a-z_][^<>]*?(/?)>", re.IGNORECASE)
_LONGEST_PARTIAL = 64


class Field(NamedTuple):
    """A field as written, not yet unescaped."""

    name: str
    body: str
    is_closed: bool = True  # by its own tag
    is_cut: bool = False  # the answer ended in the middle of it


@dataclass(frozen=True, slots=True)
class Shape:
    """Which fields one kind of answer has, and how each ends when its closing tag is missing or doubtful."""

    names: frozenset[str]  # all of them, and the roots
    lists: frozenset[str]  # short lists of names: end at the next tag that is not one of `items`
    items: frozenset[str]
    arguments: frozenset[str]  # hold tags of any name, these fields' names among them
    message: frozenset[str]  # what is said to the room: runs to the end of the answer
    pattern: re.Pattern[str]


def shape_of(
    names: Collection[str],
    *,
    lists: Collection[str] = (),
    items: Collection[str] = (),
    arguments: Collection[str] = (),
    message: Collection[str] = (),
) -> Shape:
    """Say in lower case which fields to look for; what is neither list nor arguments is free text."""
    known = frozenset({*names, *lists, *items, *arguments, *message, *ROOTS})
    choice = "|".join(re.escape(name) for name in sorted(known))
    pattern = re.compile(rf"<(?:(/?)(?=\w)({choice})(?=[\s/>])[^<>]*?(/?)>|!\[CDATA\[)", re.IGNORECASE)
    return Shape(known, frozenset(lists), frozenset(items), frozenset(arguments), frozenset(message), pattern)


@dataclass(slots=True)
class Scan:
    """What the pass found."""

    fields: list[Field] = field(default_factory=list)
    start: int = 0  # where the first field opens
    before: str = ""  # prose before the root, or before that field
    prose: str = ""  # prose between and behind the fields
    has_root: bool = False
    is_ended: bool = False  # by </response>
    is_partial: bool = False  # ends in the middle of a tag
    may_quote: bool = False  # a field that does not surely end may be quoting the actions behind it

    def first(self, *names: str) -> Field | None:
        """Return the first field of the first of these names that occurs."""
        return next((found for name in names for found in self.fields if found.name == name), None)

    def every(self, name: str) -> list[Field]:
        """Return all fields of this name, in order."""
        return [found for found in self.fields if found.name == name]


def scan(text: str, shape: Shape) -> Scan | None:
    """Find the fields of `shape` in `text`; None if it is prose and no tagged answer. Never raises.

    Time grows with the length of the text, whatever it holds.
    """
    if _REGULAR.fullmatch(text) and (found := _regular(text, shape)):
        return found
    return scan_closely(text, shape)


def scan_closely(text: str, shape: Shape) -> Scan | None:
    """Find the fields likewise, tag by tag: also in an answer that is not as it was asked for."""
    tags = list(tags_in(text, shape.pattern))
    return _Pass(text, shape, tags).walk() if any(tag.opens for tag in tags) else None


def _regular(text: str, shape: Shape) -> Scan | None:
    """Take the fields of an answer with nothing but fields in it, each closed by its own tag."""
    written = list(_REGULAR_FIELD.finditer(text, 1))
    fields = [Field(name, body) for name, body in (one.groups() for one in written)]
    is_known = all(field.name in shape.names and field.name not in ROOTS for field in fields)
    is_short = len(fields) < MAX_TAGS // 2
    start = written[0].start()
    return Scan(fields, start, has_root=True, is_ended=True) if is_known and is_short else None


def without_last_tags(text: str, shape: Shape) -> str:
    """Take closing tags, and a fence behind them, off the end: the model began in the middle."""
    return _trimmed(text.rstrip(), list(tags_in(text, shape.pattern)))


def without_partial_tag(text: str, shape: Shape) -> str:
    """Take off the tag of a field, or of a root, in whose middle the answer was cut off."""
    at = text.rfind("<")
    if at < 0 or ">" in text[at:] or len(text) - at > _LONGEST_PARTIAL:
        return text
    tail = text[at + 1 :].removeprefix("/").lower()
    names = shape.names | REASONING
    is_name = tail.partition(" ")[0] in names or any(name.startswith(tail) for name in names)
    return text[:at] if is_name and (tail or not text[:at].strip()) else text


class _Pass:
    """The tags of one answer, and the place of every closing tag among them."""

    def __init__(self, text: str, shape: Shape, tags: list[Tag]) -> None:
        self.text, self.shape, self.tags = text, shape, tags
        self.acting = shape.lists | shape.items | shape.arguments
        self.is_doubtful = False  # a field so far may not have ended where it was taken to end
        self.closings: dict[str, list[int]] = {}
        for index, tag in enumerate(tags):
            if not tag.opens:
                self.closings.setdefault(tag.name, []).append(index)

    def walk(self) -> Scan | None:
        """Go from field to field until the first root that holds anything is closed."""
        index = self._first()
        at = self.tags[index].start
        found, around = Scan(before=self.text[:at].strip()), list[str]()
        has_content = is_over = False
        while index < len(self.tags) and not is_over:
            tag = self.tags[index]
            around.append(self.text[at : tag.start])
            has_content = has_content or bool(around[-1].strip())
            if tag.opens and tag.name not in ROOTS:
                found.start = found.start if found.fields else tag.start
                found.may_quote |= self.is_doubtful and tag.name in self.acting
                part, index, at = self._field(index)
                found.fields.append(part)
                has_content = True
                continue
            index, at = index + 1, tag.end
            if tag.name in ROOTS:
                is_second = found.has_root and tag.name == "response"
                is_over = has_content and (is_second or not tag.opens)
                found.is_ended = is_over and not tag.opens
                found.has_root = True
        found.may_quote &= not (found.is_ended and self._is_paired(at))
        end = self.tags[index].start if index < len(self.tags) else len(self.text)
        return self._finished(found, around, self.text[at:end])

    def _first(self) -> int:
        """Begin at the very start if a field stands there, else at the first root that opens on a field."""
        first = self.tags[0]
        if first.opens and not self.text[: first.start].strip():
            return 0
        for index, tag in enumerate(self.tags[:-1]):
            after = self.tags[index + 1]
            if tag.opens and tag.name == "response" and after.opens and self._skip(tag.end) == after.start:
                return index
        return 0

    def _finished(self, found: Scan, around: list[str], rest: str) -> Scan | None:
        kept = rest if found.is_ended else without_partial_tag(rest, self.shape)
        found.is_partial = kept != rest and rest[len(kept) + 1 :][:1] not in ("", "/")
        found.prose = "".join((*around, kept)).strip().removesuffix(FENCE).strip()
        if not found.has_root:
            is_structure = not found.before.strip("`") or any(part.is_closed for part in found.fields)
        else:
            is_structure = bool(found.fields) or found.is_ended or not found.before
        return found if is_structure else None

    def _is_paired(self, end: int) -> bool:
        """Tell a root that is the whole answer: then nothing in it was cut off."""
        roots = [tag.opens for tag in self.tags if tag.name == "response"]
        is_outermost = self.tags[self._first()].name in ROOTS and len(_trimmed(self.text, self.tags)) <= end
        return is_outermost and roots.count(True) == roots.count(False)

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at

    def _field(self, index: int) -> tuple[Field, int, int]:
        """Read the field that opens at tag `index`: the field, the next tag, the next character."""
        opening = self.tags[index]
        if opening.is_empty:
            return Field(opening.name, ""), index + 1, opening.end
        is_short = opening.name in self.shape.lists or opening.name in self.shape.items
        end = self._next_tag(index) if is_short else self._closing(index)
        if end is not None and not self.tags[end].opens and self.tags[end].name == opening.name:
            closing = self.tags[end]
            return Field(opening.name, self.text[opening.end : closing.start]), end + 1, closing.end
        if end is None and opening.name not in self.shape.message:
            end = self._next_tag(index)
        if end is None or (opening.name in self.shape.arguments and not self._is_whole(index, end)):
            return self._unended(opening), len(self.tags), len(self.text)
        self.is_doubtful |= opening.name not in self.acting
        after = self.tags[end].start
        return Field(opening.name, self.text[opening.end : after], is_closed=False), end, after

    def _closing(self, index: int) -> int | None:
        """The first closing tag with structure behind it, else the last: those between are quoted."""
        closings = self.closings.get(self.tags[index].name, [])
        first = bisect(closings, index)
        for place in range(first, len(closings)):
            if self._has_structure_behind(closings[place]):
                return closings[place]
        if first == len(closings):
            return None
        self.is_doubtful = True
        return closings[-1]

    def _has_structure_behind(self, index: int) -> bool:
        behind = self._skip(self.tags[index].end)
        if behind == len(self.text) or self.text.startswith(FENCE, behind):
            return True
        if index + 1 == len(self.tags):
            is_short = len(self.text) - behind <= _LONGEST_PARTIAL
            return is_short and not without_partial_tag(self.text[behind:], self.shape)
        after = self.tags[index + 1]
        return after.start == behind and (after.opens or after.name in ROOTS)

    def _next_tag(self, index: int) -> int | None:
        """The next tag that can end an unclosed field: its own, another field's, the end of the root."""
        own = self.tags[index].name
        inner = self.shape.items if own in self.shape.lists else frozenset()
        for place in range(index + 1, len(self.tags)):
            tag = self.tags[place]
            if tag.name not in inner if tag.opens else tag.name == own or tag.name in ROOTS:
                return place
        return None

    def _is_whole(self, index: int, end: int) -> bool:
        """Tell arguments whose closing tag was forgotten from arguments that were cut off."""
        if self.closings.get("response", [-1])[-1] < end:
            return False
        depth = 0
        for tag in _ANY_TAG.finditer(self.text, self.tags[index].end, self.tags[end].start):
            depth += 0 if tag[2] else -1 if tag[1] else 1
        return depth == 0

    def _unended(self, opening: Tag) -> Field:
        """The field runs to the end of the answer, less closing tags that stand there."""
        stripped = self.text.rstrip()
        text = _trimmed(stripped, self.tags)
        is_cut = len(text) == len(stripped) or opening.name not in self.shape.message
        body = text[opening.end :]
        body = without_partial(body, opening.name) if is_cut else body
        return Field(opening.name, body, is_closed=False, is_cut=is_cut)


def _trimmed(text: str, tags: list[Tag]) -> str:
    end = len(text)
    for tag in reversed(tags):
        if tag.opens or text[tag.end : end].strip(" \t\r\n`"):
            break
        end = tag.start
    return text[:end]
