"""From Markdown to a text and the marks on it, as Telegram takes them; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

STYLES = {"strong": "bold", "em": "italic", "s": "strikethrough", "blockquote": "blockquote"}
CODE, PRE, LINK, BOLD, QUOTE = "code", "pre", "text_link", "bold", "blockquote"
LINKED = frozenset({"http", "https", "mailto"})  # `tg` would call somebody who is not there
LONGEST_MARKDOWN = 40_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of a text that looks different; `more` is a link's address, or the language of code."""

    kind: str
    start: int
    end: int
    more: str = ""


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text with its marks, counted in characters of Python's."""

    text: str
    marks: tuple[Mark, ...] = ()

    def part(self, start: int, end: int) -> "Formatted":
        """Give a stretch of it without the white space around it; marks that reach out are cut."""
        piece = self.text[start:end]
        start += len(piece) - len(piece.lstrip("\n"))
        piece = piece.strip("\n").rstrip()
        end = start + len(piece)
        inside = (replace(one, start=max(one.start, start), end=min(one.end, end)) for one in self.marks)
        moved = (replace(one, start=one.start - start, end=one.end - start) for one in inside)
        return Formatted(piece, tuple(one for one in moved if one.start < one.end))


def formatted(markdown: str) -> Formatted:
    """Read Markdown as CommonMark has it, with tables and strike-through; HTML is text like any."""
    if len(markdown) > LONGEST_MARKDOWN:
        return Formatted(markdown)
    writer = _Writer(markdown.split("\n"))
    writer.write(_parser().parse(markdown))
    found = writer.finished()
    return found if found.text.strip() else Formatted(markdown)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(slots=True)
class _Writer:
    """Writes tokens down one after another, and remembers where marks have begun."""

    lines: Sequence[str]
    _text: list[str] = field(default_factory=list)
    _length: int = 0
    _marks: list[Mark] = field(default_factory=list)
    _open: list[Mark] = field(default_factory=list)
    _lists: list[int | None] = field(default_factory=list)
    _last_line: int = 0
    _bullet: str = ""

    def write(self, tokens: Iterable[Token]) -> None:
        """Write block after block; what stands in a table is written as it was."""
        table_end = -1
        for token in tokens:
            if token.map and token.map[0] < table_end:
                continue
            if token.type == "table_open" and token.map:
                table_end = token.map[1]
                self._code("\n".join(self.lines[token.map[0] : table_end]).strip("\n"), token)
            elif not token.type.startswith(("table_", "thead_", "tbody_", "tr_", "th_", "td_")):
                self._block(token)

    def finished(self) -> Formatted:
        """Give what was written, with marks that do not stand in code."""
        text = "".join(self._text)
        codes = [one for one in self._marks if one.kind in (CODE, PRE)]
        marks = [
            part
            for one in self._marks
            for part in ([one] if one.kind in (CODE, PRE) else _around(one, codes))
        ]
        marks = [one for one in marks if one.start < one.end]
        return Formatted(text, tuple(sorted(marks, key=lambda one: (one.start, -one.end)))).part(0, len(text))

    def _block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._begin(token)
                for child in token.children or ():
                    self._inline(child)
            case "fence" | "code_block":
                self._code(token.content.removesuffix("\n"), token)
            case "hr":
                self._begin(token)
                self._add("———")
            case "heading_open":
                self._open_mark(BOLD, at_block=True)
            case "blockquote_open":
                is_inner = any(one.kind == QUOTE for one in self._open)
                self._open_mark("" if is_inner else QUOTE, at_block=True)
            case "heading_close" | "blockquote_close":
                self._close_mark()
            case _:
                self._list(token)

    def _list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(int(token.attrGet("start") or 1))
            case "list_item_open":
                self._bullet += self._next_bullet(token)
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()

    def _inline(self, token: Token) -> None:
        match token.type:
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "code_inline":
                start = self._length
                self._add(token.content)
                self._marks.append(Mark(CODE, start, self._length))
            case "link_open":
                self._open_mark(LINK, str(token.attrGet("href") or ""))
            case "image":
                self._open_mark(LINK, str(token.attrGet("src") or ""))
                self._add(token.content or str(token.attrGet("src") or ""))
                self._close_mark()
            case "strong_open" | "em_open" | "s_open":
                self._open_mark(STYLES[token.type.removesuffix("_open")])
            case "strong_close" | "em_close" | "s_close" | "link_close":
                self._close_mark()
            case _:
                self._add(token.content)

    def _begin(self, token: Token) -> None:
        """Begin a block: as far from the one before as in the source, and behind its bullet."""
        first, last = token.map or (self._last_line, self._last_line)
        if self._length:
            gap = any(not line.strip(" \t>") for line in self.lines[self._last_line : first])
            self._add("\n\n" if gap else "\n")
        self._last_line = last
        if self._bullet:
            self._add("  " * (len(self._lists) - 1) + self._bullet)
            self._bullet = ""
        for place, one in enumerate(self._open):
            if one.start < 0:
                self._open[place] = replace(one, start=self._length)

    def _next_bullet(self, token: Token) -> str:
        number = self._lists[-1]
        if number is None:
            return "• "
        self._lists[-1] = number + 1
        return f"{number}{token.markup or '.'} "

    def _code(self, text: str, token: Token) -> None:
        self._begin(token)
        start = self._length
        self._add(text)
        language = token.info.split()[0] if token.info.strip() else ""
        self._marks.append(Mark(PRE, start, self._length, language))

    def _add(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _open_mark(self, kind: str, more: str = "", *, at_block: bool = False) -> None:
        self._open.append(Mark(kind, -1 if at_block else self._length, 0, more))

    def _close_mark(self) -> None:
        mark = self._open.pop()
        if mark.kind == LINK and urlsplit(mark.more).scheme.lower() not in LINKED:
            self._add(f" ({mark.more})" if mark.more else "")
        elif mark.kind and mark.start >= 0:
            self._marks.append(replace(mark, end=self._length))


def _around(mark: Mark, codes: Iterable[Mark]) -> list[Mark]:
    """Give what is left of a mark where code is taken out of it; a quotation may hold code."""
    if mark.kind == QUOTE:
        return [mark]
    parts, start = [], mark.start
    for code in codes:
        if start < code.end and code.start < mark.end:
            parts.append(replace(mark, start=start, end=max(start, code.start)))
            start = code.end
    return [*parts, replace(mark, start=start)] if start < mark.end else parts
