"""Conversion of Markdown to text with formatted spans; pure."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from urllib.parse import urlsplit

from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from adapters.telegram.markdown import markdown_parser

STYLES = {"strong": "bold", "em": "italic", "s": "strikethrough", "spoiler": "spoiler"}
CODE, PRE, LINK, BOLD, QUOTE, SPOILER = "code", "pre", "text_link", "bold", "blockquote", "spoiler"
STRONGER_THAN_CODE = frozenset({LINK, SPOILER, "strikethrough"})  # Telegram shows no code within them
FENCE_LANGUAGE = re.compile(r"([\w.+#/-]+)(?:\s*\{.*\}|(?:\s+\w+=(?:\S+|\".*\"))*)\s*")
LINKABLE_SCHEMES = frozenset({"http", "https"})  # Telegram drops `mailto`; `tg` could notify users outside the chat
MAX_TABLE_WIDTH = 40  # columns of code: more are wrapped on most telephones, and the table falls apart
MAX_MARKDOWN_LENGTH = 40_000
# Paragraphs whose lines begin with a letter, and which have no character that CommonMark gives a meaning.
PLAIN_LINE = r"[^\W\d_](?: ?[^\\`*_\[\]<>~|&\s\0])*"
PLAIN_PATTERN = re.compile(rf"{PLAIN_LINE}(?:\n\n?{PLAIN_LINE})*")


@dataclass(frozen=True, slots=True)
class Span:
    """A formatted range of a text; `detail` is the URL of a link or the language of code."""

    kind: str
    start: int
    end: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FormattedText:
    """A text with its spans, counted in Python characters."""

    text: str
    spans: tuple[Span, ...] = ()

    def cut(self, start: int, end: int) -> "FormattedText":
        """Return a range without surrounding white space; spans are clipped to it."""
        piece = self.text[start:end]
        start += len(piece) - len(piece.lstrip("\n"))
        piece = piece.strip("\n").rstrip()
        end = start + len(piece)
        clipped = (replace(span, start=max(span.start, start), end=min(span.end, end)) for span in self.spans)
        shifted = (replace(span, start=span.start - start, end=span.end - start) for span in clipped)
        return FormattedText(piece, tuple(span for span in shifted if piece[span.start : span.end].strip()))


def parse_markdown(markdown: str) -> FormattedText:
    """Parse CommonMark with tables, strike-through and spoilers; HTML is plain text."""
    if len(markdown) > MAX_MARKDOWN_LENGTH or PLAIN_PATTERN.fullmatch(markdown):
        return FormattedText(markdown)
    markdown = re.sub(r"\r\n?", "\n", markdown)
    writer = _TextWriter(markdown.split("\n"))
    writer.write(markdown_parser().parse(markdown))
    result = writer.build()
    return result if result.text.strip() else FormattedText(markdown)


@dataclass(slots=True)
class _TextWriter:
    """Writes tokens as text and collects the spans."""

    lines: Sequence[str] = ()
    _text: list[str] = field(default_factory=list)
    _length: int = 0
    _spans: list[Span] = field(default_factory=list)
    _open_spans: list[Span] = field(default_factory=list)
    _lists: list[tuple[str, int]] = field(default_factory=list)  # last numbers: as in the source, as shown
    _last_line: int = 0
    _bullet: str = ""
    _item_line: int = 0

    def write(self, tokens: Iterable[Token]) -> None:
        """Write all blocks."""
        remaining = iter(tokens)
        for token in remaining:
            if token.type == "table_open":
                self._write_table(token, takewhile(lambda item: item.type != "table_close", remaining))
            else:
                self._write_block(token)

    def write_inline(self, tokens: Iterable[Token]) -> None:
        """Write the tokens of a line or a paragraph."""
        for token in tokens:
            self._write_inline(token)

    def build(self) -> FormattedText:
        """Return the text with its spans; within code there are no others."""
        text = "".join(self._text)
        code_spans = [span for span in self._spans if span.kind in (CODE, PRE)]
        spans = [
            part
            for span in self._spans
            for part in ([span] if span.kind in (CODE, PRE) else _split_around_code(span, code_spans))
        ]
        spans.sort(key=lambda span: (span.start, -span.end, span.kind != QUOTE))
        return FormattedText(text, tuple(spans)).cut(0, len(text))

    def _write_block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._start_block(token)
                self.write_inline(token.children or ())
            case "fence" | "code_block":
                self._write_code(token)
            case "hr":
                line = self._source(token).strip(" \t>")
                self._start_block(token)
                self._add(line if "_" in line or len(line.split()) > 3 else "———")
            case "heading_open":
                self._open_span(BOLD, at_block=True)
            case "blockquote_open":
                self._open_span(QUOTE, at_block=True)
            case "heading_close" | "blockquote_close":
                self._close_span()
            case _:
                self._write_list(token)

    def _write_list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                self._lists.append(("", 0))
            case "list_item_open":
                self._bullet = self._bullet or "  " * (len(self._lists) - 1) or self._indentation(token)
                self._bullet += self._next_bullet(token)
                self._item_line = token.map[0] if token.map else 0
            case "list_item_close" if self._bullet:
                self._start_block(replace(token, map=[self._item_line, self._item_line + 1]))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()

    def _write_code(self, token: Token) -> None:
        if token.type == "code_block":
            is_whole = not self._lists and not self._open_spans
            self._add_code(self._source(token) if is_whole else token.content.removesuffix("\n"), token)
            return
        text = token.content.removesuffix("\n").removesuffix(token.markup)  # models close fences at ends of lines
        language = FENCE_LANGUAGE.fullmatch(token.info.strip())
        if token.info.strip() and language is None:
            text = f"{token.info.strip()}\n{text}"
        self._add_code(text.removesuffix("\n"), token, language[1] if language else "")

    def _write_table(self, opening: Token, tokens: Iterator[Token]) -> None:
        """Write a table as aligned code; as lines if its cells have links, struck text or spoilers.

        A table that is wider than a telephone is written row by row, each cell with its heading.
        """
        rows: list[list[FormattedText]] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                cell = _TextWriter()
                cell.write_inline(token.children or ())
                rows[-1].append(cell.build())
        source, aligned = self._source(opening), _align([[cell.text for cell in row] for row in rows])
        if any(_count_cells(line) > len(rows[0]) for line in source.split("\n")):
            self._add_code(source, opening)  # the parser drops cells that have no heading
        elif len(rows) > 1 and _display_width(aligned.split("\n")[0]) > MAX_TABLE_WIDTH:
            self._start_block(opening)
            self._write_records(rows)
        elif any(span.kind in STRONGER_THAN_CODE for row in rows for cell in row for span in cell.spans):
            self._start_block(opening)
            self._write_rows(rows)
        else:
            self._add_code(aligned, opening)

    def _write_rows(self, rows: Iterable[Sequence[FormattedText]]) -> None:
        for number, row in enumerate(rows):
            self._add("\n" if number else "")
            self._open_span("" if number else BOLD)
            for position, cell in enumerate(row):
                self._add(" | " if position else "")
                self._add_cell(cell, is_bold=not number)
            self._close_span()

    def _write_records(self, rows: Sequence[Sequence[FormattedText]]) -> None:
        """Write each row as its first cell, in bold, and a line for each other cell that is not blank."""
        headings, *records = rows
        for number, (first, *others) in enumerate(records):
            self._add("\n\n" if number else "")
            self._open_span(BOLD)
            self._add_cell(first, is_bold=True)
            self._close_span()
            for label, cell in zip(headings[1:], others, strict=True):
                if cell.text:
                    self._add(f"\n{label.text}: " if label.text else "\n")
                    self._add_cell(cell)

    def _add_cell(self, cell: FormattedText, *, is_bold: bool = False) -> None:
        start = self._length
        self._add(cell.text)
        shifted = (replace(item, start=item.start + start, end=item.end + start) for item in cell.spans)
        self._spans += [item for item in shifted if not is_bold or item.kind != BOLD]

    def _write_inline(self, token: Token) -> None:
        match token.type:
            case "hardbreak":
                self._add("\n")
            case "code_inline" if any(span.kind in STRONGER_THAN_CODE for span in self._open_spans):
                self._add(token.content)
            case "code_inline":
                start = self._length
                self._add(token.content)
                self._spans.append(Span(CODE, start, self._length))
            case "link_open":
                self._open_span(LINK, str(token.attrGet("href") or ""))
            case "image":
                self._open_span(LINK, str(token.attrGet("src") or ""))
                self.write_inline(token.children or ())
                self._close_span()
            case "strong_open" | "em_open" | "s_open" | "spoiler_open":
                self._open_span(STYLES[token.type.removesuffix("_open")])
            case "strong_close" | "em_close" | "s_close" | "spoiler_close" | "link_close":
                self._close_span()
            case _:
                self._add(token.content)

    def _start_block(self, token: Token) -> None:
        """Start a block with the blank lines and the indentation of the source, or the bullet of its list item."""
        first, last = token.map or (self._last_line, self._last_line)
        if self._length:
            blank_lines = sum(not line.strip(" \t>") for line in self.lines[self._last_line : first])
            self._add("\n" * (blank_lines + 1))
        self._last_line = max(self._last_line, last)
        if self._bullet:
            self._add(self._bullet)
            self._bullet = ""
        elif token.type == "inline" and not self._lists and not self._open_spans:
            self._add(self._indentation(token))
        for index, span in enumerate(self._open_spans):
            if span.start < 0:
                self._open_spans[index] = replace(span, start=self._length)

    def _source(self, token: Token) -> str:
        first, last = token.map or (0, 0)
        return "\n".join(self.lines[first:last]).strip("\n")

    def _indentation(self, token: Token) -> str:
        source = self._source(token)
        return source[: len(source) - len(source.lstrip(" \t"))]

    def _next_bullet(self, token: Token) -> str:
        """Return the bullet, or the number of the source; lists numbered 1, 1, 1 are counted."""
        if not token.info:
            return "• "
        source, shown = self._lists[-1]
        number = str(shown + 1) if token.info == source else token.info
        self._lists[-1] = (token.info, int(number))
        return f"{number}{token.markup or '.'} "

    def _add_code(self, text: str, token: Token, language: str = "") -> None:
        self._start_block(token)
        start = self._length
        self._add(text)
        self._spans.append(Span(PRE, start, self._length, language))

    def _add(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _open_span(self, kind: str, detail: str = "", *, at_block: bool = False) -> None:
        """Open a span; one within another of its kind is not sent."""
        if any(span.kind == kind for span in self._open_spans):
            kind = ""
        self._open_spans.append(Span(kind, -1 if at_block else self._length, 0, detail))

    def _close_span(self) -> None:
        span = self._open_spans.pop()
        address = span.detail.removeprefix("mailto:")
        if span.kind == LINK and span.start == self._length:
            self._add(address)
        elif span.kind == LINK and urlsplit(span.detail).scheme.lower() not in LINKABLE_SCHEMES:
            is_shown = not address or "".join(self._text).endswith(address)
            self._add("" if is_shown else f" ({address})")
        elif span.kind and 0 <= span.start < self._length:
            self._spans.append(replace(span, end=self._length))


def _count_cells(line: str) -> int:
    """Return how many cells a line of a table has, as the parser counts them."""
    cells = escapedSplit(line.strip(" \t>"))
    return len(cells) - (cells[0] == "") - (len(cells) > 1 and cells[-1] == "")


def _align(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows of a table with columns of equal width, and a line under the first row."""
    widths = [max(map(_display_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        "".join(f"| {cell}{' ' * (width - _display_width(cell))} " for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "".join(f"|{'-' * (width + 2)}" for width in widths))
    return "|\n".join(lines) + "|"


def _display_width(text: str) -> int:
    """Return the width in columns of a monospaced font."""
    return sum(0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def _split_around_code(span: Span, code_spans: Iterable[Span]) -> list[Span]:
    """Return the parts of a span outside code; a quotation may contain code."""
    if span.kind == QUOTE:
        return [span]
    parts, start = [], span.start
    for code in code_spans:
        if start < code.end and code.start < span.end:
            parts.append(replace(span, start=start, end=max(start, code.start)))
            start = code.end
    return [*parts, replace(span, start=start)] if start < span.end else parts
