"""Conversion of Markdown to text with formatted spans; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

STYLES = {"strong": "bold", "em": "italic", "s": "strikethrough", "blockquote": "blockquote"}
CODE, PRE, LINK, BOLD, QUOTE = "code", "pre", "text_link", "bold", "blockquote"
LINKABLE_SCHEMES = frozenset({"http", "https", "mailto"})  # `tg` links could notify users outside the chat
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
        return FormattedText(piece, tuple(span for span in shifted if span.start < span.end))


def parse_markdown(markdown: str) -> FormattedText:
    """Parse CommonMark with tables and strike-through; HTML is plain text."""
    if len(markdown) > MAX_MARKDOWN_LENGTH or PLAIN_PATTERN.fullmatch(markdown):
        return FormattedText(markdown)
    writer = _TextWriter(markdown.split("\n"))
    writer.write(_parser().parse(markdown))
    result = writer.build()
    return result if result.text.strip() else FormattedText(markdown)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(slots=True)
class _TextWriter:
    """Writes tokens as text and collects the spans."""

    lines: Sequence[str]
    _text: list[str] = field(default_factory=list)
    _length: int = 0
    _spans: list[Span] = field(default_factory=list)
    _open_spans: list[Span] = field(default_factory=list)
    _lists: list[int | None] = field(default_factory=list)
    _last_line: int = 0
    _bullet: str = ""

    def write(self, tokens: Iterable[Token]) -> None:
        """Write all blocks; a table is written as its source."""
        table_end = -1
        for token in tokens:
            if token.map and token.map[0] < table_end:
                continue
            if token.type == "table_open" and token.map:
                table_end = token.map[1]
                self._add_code("\n".join(self.lines[token.map[0] : table_end]).strip("\n"), token)
            elif not token.type.startswith(("table_", "thead_", "tbody_", "tr_", "th_", "td_")):
                self._write_block(token)

    def build(self) -> FormattedText:
        """Return the text with its spans; within code there are no others."""
        text = "".join(self._text)
        code_spans = [span for span in self._spans if span.kind in (CODE, PRE)]
        spans = [
            part
            for span in self._spans
            for part in ([span] if span.kind in (CODE, PRE) else _split_around_code(span, code_spans))
        ]
        spans = [span for span in spans if span.start < span.end]
        return FormattedText(text, tuple(sorted(spans, key=lambda span: (span.start, -span.end)))).cut(0, len(text))

    def _write_block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._start_block(token)
                for child in token.children or ():
                    self._write_inline(child)
            case "fence" | "code_block":
                self._add_code(token.content.removesuffix("\n"), token)
            case "hr":
                self._start_block(token)
                self._add("———")
            case "heading_open":
                self._open_span(BOLD, at_block=True)
            case "blockquote_open":
                is_inner = any(span.kind == QUOTE for span in self._open_spans)
                self._open_span("" if is_inner else QUOTE, at_block=True)
            case "heading_close" | "blockquote_close":
                self._close_span()
            case _:
                self._write_list(token)

    def _write_list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(int(token.attrGet("start") or 1))
            case "list_item_open":
                self._bullet += self._next_bullet(token)
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()

    def _write_inline(self, token: Token) -> None:
        match token.type:
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "code_inline":
                start = self._length
                self._add(token.content)
                self._spans.append(Span(CODE, start, self._length))
            case "link_open":
                self._open_span(LINK, str(token.attrGet("href") or ""))
            case "image":
                self._open_span(LINK, str(token.attrGet("src") or ""))
                self._add(token.content or str(token.attrGet("src") or ""))
                self._close_span()
            case "strong_open" | "em_open" | "s_open":
                self._open_span(STYLES[token.type.removesuffix("_open")])
            case "strong_close" | "em_close" | "s_close" | "link_close":
                self._close_span()
            case _:
                self._add(token.content)

    def _start_block(self, token: Token) -> None:
        """Start a block with the blank lines of the source and the bullet of its list item."""
        first, last = token.map or (self._last_line, self._last_line)
        if self._length:
            is_spaced = any(not line.strip(" \t>") for line in self.lines[self._last_line : first])
            self._add("\n\n" if is_spaced else "\n")
        self._last_line = last
        if self._bullet:
            self._add("  " * (len(self._lists) - 1) + self._bullet)
            self._bullet = ""
        for index, span in enumerate(self._open_spans):
            if span.start < 0:
                self._open_spans[index] = replace(span, start=self._length)

    def _next_bullet(self, token: Token) -> str:
        number = self._lists[-1]
        if number is None:
            return "• "
        self._lists[-1] = number + 1
        return f"{number}{token.markup or '.'} "

    def _add_code(self, text: str, token: Token) -> None:
        self._start_block(token)
        start = self._length
        self._add(text)
        language = token.info.split()[0] if token.info.strip() else ""
        self._spans.append(Span(PRE, start, self._length, language))

    def _add(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _open_span(self, kind: str, detail: str = "", *, at_block: bool = False) -> None:
        self._open_spans.append(Span(kind, -1 if at_block else self._length, 0, detail))

    def _close_span(self) -> None:
        span = self._open_spans.pop()
        if span.kind == LINK and urlsplit(span.detail).scheme.lower() not in LINKABLE_SCHEMES:
            self._add(f" ({span.detail})" if span.detail else "")
        elif span.kind and span.start >= 0:
            self._spans.append(replace(span, end=self._length))


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
