"""Splitting of replies into parts with entities, and the limit on @mentions.

Conversion of Markdown to text with formatted spans; pure.

CommonMark parser that leaves unchanged what only looks like Markdown: URLs, paths, code, formulas, emoticons.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, fence, heading, lheading, list_block, reference, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline, emphasis, strikethrough
from markdown_it.token import Token
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity

from bot import Attachment, Choice, Content, MediaKind
from bot.text import grapheme_boundary_before

MAX_DEPTH = 40  # the text of deeper blocks is lost; brackets take time in proportion to it
# Scripts that write no spaces between words, with their punctuation.
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\uffef]")
ENCLOSING = frozenset({"()", "[]", "{}", "<>", '""', "''", "“”", "‘’", "«»"})
DUNDERS = """FILE LINE DIR FUNCTION CLASS METHOD NAMESPACE abs add aenter aexit aiter all and anext annotations author
    await bases bool builtins bytes call class closure code complex construct contains copy ctor debug deepcopy defaults
    del delattr delete delitem destruct dict dir dirname divmod doc dunder enter eq exit file filename fixtures float
    floordiv format future ge get getattr getattribute getitem getnewargs getstate globals gt hash iadd index init
    instancecheck int invert invoke ior isub iter le len length_hint loader lshift lt main magic matmul members missing
    mocks mod module mro mul name ne neg new next or package path pos pow prepare proto pycache qualname radd reduce
    repr reversed rmul round rshift set setattr setitem setstate sizeof slots snapshots spec str sub subclasses
    subclasshook tablename tests toString truediv trunc typename version weakref xor"""

URL = r"""(?:(?!\*\*|~~|\|\|)[^\s<>"`\[\]，。、；：！？（）「」『』《》【】“”]|\[[^\s\[\]]*\])+"""
WINDOWS_PATH = r"""(?:[^\s*`"<>|\]]|\*(?=[.\\])|[ ](?=[\w().&-]+\\))*(?<![_~.,;:!?)'])"""
# What is plain text at a position where Markdown could begin; each line is needed for texts that models write.
LITERAL = re.compile(
    rf"""
      [^!$&*:<@\[\\\]_`|~]+
    | (?<=[A-Za-z])://{URL}(?<![*_~|.,;:!?)'])
    | (?!_\S{{0,64}}@\S{{0,64}}_(?!\w))<?[\w.+-]{{0,64}}@[\w-]+(?:\.[\w-]+)+(?<!_)      # mail_me@example.org
    | (?<=[A-Za-z])(?<![A-Za-z0-9]{{2}}):\\{WINDOWS_PATH}                 # C:\_a\*.txt
    | (?<![\w\\])\\\\[\w.-]+\\{WINDOWS_PATH}                              # \\server\_share
    | (?:(?<=[.%])\\(?=\w)|(?<=\w)\\(?=[^\W_])){WINDOWS_PATH}             # ..\_a, %TEMP%\_a, a\b\_c
    | \\\(.{{1,500}}?\\\)                                                 # LaTeX
    | \\\[(?=\s|(?:(?!\\\]).){{0,300}}?(?:[\^_=+<>{{}}*/|]|\\(?!\]))).{{1,1000}}?\\\]
    | \$\$.{{1,2000}}?\$\$
    | \$(?=\S)(?=[^$\n]*[\\^_*{{=])[^$\n]*(?<=\S)\$(?!\w)
    | \\begin\{{(?P<environment>\w+\*?)\}}.{{1,2000}}?\\end\{{(?P=environment)\}}
    | (?<=¯)\\_\(ツ\)\\?_/
    | (?<=[\s\\])\\(?=\n)                                                 # a shell command continues
    | \\(?![*_`~|\[\]<>\#!$%&"'\n]|\.(?:\s|\d|$)|[-+](?:\s|\d))           # not an escape
    | __(?:{"|".join(DUNDERS.split())})__(?![^\W_])                       # __init__
    | __[a-z]+_[a-z_]{{1,40}}__(?![^\W_])                                   # __post_init__
    | __\w{{1,40}}__(?=\.\w|/\w|[(\[@])                                     # __any__.py, __any__()
    | (?<=[/@\#$%\\])_\w*                                                 # /_next, @_kim_, $_GET
    | (?<=\w\.)_\w*                                                       # self._a_
    | (?<=([^\w\s]))_+(?=\1)                                              # ^_^
    | (?<=[-^><=°¬@])_+(?=[-^><=°¬@])                                     # >_<
    | (?<![\w*])\*(?:[!-)+-/:-@\[-`{{-~]|[-^_<>=;~@'"´`°▽∀ω≧≦・]{{2,7}})\*(?![\w*])  # *.*, *_*, *^_^*
    | (?<![\w*])\*(?=\.[\w{{*]|/)                                         # *.py, */5
    | (?<=[/^=])\*(?!\*)                                                  # /*, a^*
    | (?<=\.)\*(?=[$?|\\])|(?<=[(^|\]]\.)\*                               # .*$, (.*)
    | (?<=/)\*\*(?!\w)                                                    # src/**
    | (?<!\*)\*\*(?=/)(?![^*\n]*[^\s*/]\*\*)                              # **/*.py, not **/start**
    | (?<=[)\]])\*+(?=[(\[])                                              # (a)*(b)
    | ~{{3,}}
    | (?<=[\w\])])\[[^\[\]\n]{{0,200}}\]\((?!<?(?:https?:|mailto:))       # handlers[name](event)
    | <(?!https?:|mailto:)[A-Za-z][\w+.-]*:                               # <std::string>
    """,
    re.VERBOSE | re.DOTALL,
)
URL_END = re.compile(rf"{URL}(?<![*_~|.,;:!?)'])")
BARE_URL = re.compile(
    r"(?<![\w@./-])(?:[a-z\d-]{1,63}\.)+[a-z]{2,24}(?::\d{1,5})?[/?\#]\S*\Z", re.IGNORECASE
)  # x.org/?a=
MAX_URL_LENGTH = 300
PRODUCT = re.compile(r"[)\]]\*\*?\d|[%€£°²³]\*\*?\w")  # (a)**2, 10%*x
WORD_PART = re.compile(r"(?<=[^\W\d_]{2})\*\*([^\W\d_]+)\*\*")  # Hyper**T**ext
SPOILER_PATTERN = re.compile(r"(?<![A-Za-z0-9_|])\|\|(?=[^\s|])(.{1,2000}?)(?<=[^\s|])\|\|(?![A-Za-z0-9_|])", re.DOTALL)
MATH_BLOCK = re.compile(
    r"(?:\$\$.{1,4000}?\$\$|\\\[.{1,4000}?\\\]|\\begin\{(\w+\*?)\}.{1,4000}?\\end\{\1\})[^\n]*", re.DOTALL
)
TILDES = re.compile(r"^[ \t>]*~{3,}[ \t]*$", re.MULTILINE)
DEFINITION = re.compile(r"(\[[^\]]+\]):\s*<?(?:https?:|mailto:)")

BlockRule = Callable[[StateBlock, int, int, bool], bool]
InlineRule = Callable[[StateInline, bool], bool]


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables, strike-through and spoilers; HTML and line breaks are text."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_DEPTH})
    parser.enable(["table", "strikethrough"]).disable("newline")
    inline, block = parser.inline.ruler, parser.block.ruler
    inline.at("text", _text)
    inline.before("emphasis", "spoiler", _spoiler)
    inline.at("strikethrough", _limit_delimiters(strikethrough.tokenize))
    inline.before("emphasis", "word_part", _word_part)
    inline.at("emphasis", _limit_delimiters(emphasis.tokenize))
    paragraphs = ["paragraph", "reference"]
    rows = _where(r".*\|.*\n[ \t>]*[|:-][ \t|:-]*$", _while_lines(r".*\|", table))
    block.at("table", rows, {"alt": paragraphs})
    block.at("fence", _fence, {"alt": [*paragraphs, "blockquote", "list"]})
    quote = _where(r">(?:>?[ \t]|>?$)", _while_lines(">", blockquote))  # not >_<, >>> 1 + 1
    block.at("blockquote", quote, {"alt": [*paragraphs, "blockquote", "list"]})
    # Not "* * * * 1", "1. 2. 2030", nor a text that is one bullet.
    items = r"(?!([-*+])[ \t]+\1(?:\s|$)|\d+[.)] +\d+[.)](?:\s|$)|(?<![\s\S])[-*+]\s*\Z)"
    block.at("list", _where(items, list_block), {"alt": [*paragraphs, "blockquote"]})
    block.at("heading", _where(r"#+[ \t]+#*[^#\s]", heading), {"alt": [*paragraphs, "blockquote"]})
    block.at("lheading", _where(r".*[^\s.!?:;,…][ \t]*\n[ \t>]*(?:-{3,}|={3,})[ \t]*$", lheading))
    block.at("reference", _reference)
    block.before("fence", "math", _math, {"alt": paragraphs})
    return parser


def _text(state: StateInline, silent: bool) -> bool:
    match = LITERAL.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    end = match.end()
    if BARE_URL.search(state.src[max(state.pos, end - MAX_URL_LENGTH) : end]):
        rest = URL_END.match(state.src, end, state.posMax)
        end = rest.end() if rest is not None else end
    if not silent:
        state.pending += state.src[state.pos : end]
    state.pos = end
    return True


def _word_part(state: StateInline, silent: bool) -> bool:
    match = WORD_PART.match(state.src, state.pos, state.posMax)
    return match is not None and _wrap("strong", match, state, silent)


def _spoiler(state: StateInline, silent: bool) -> bool:
    match = SPOILER_PATTERN.match(state.src, state.pos, state.posMax)
    return match is not None and _wrap("spoiler", match, state, silent)


def _wrap(name: str, match: re.Match[str], state: StateInline, silent: bool) -> bool:
    """Add what the first group contains between two tokens."""
    if not silent:
        end = state.posMax
        state.push(f"{name}_open", "", 1)
        state.pos, state.posMax = match.span(1)
        state.md.inline.tokenize(state)
        state.push(f"{name}_close", "", -1)
        state.posMax = end
    state.pos = match.end()
    return True


def _limit_delimiters(rule: InlineRule) -> InlineRule:
    """Return the rule with delimiters that emphasize words, but not those of 2*3*4 or x**2."""

    def limited(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.delimiters)
        if not rule(state, silent):
            return False
        before = state.src[start - 1] if start else " "
        after = state.src[state.pos] if state.pos < state.posMax else " "
        is_product = PRODUCT.match(state.src, max(start - 1, 0)) is not None
        for item in state.delimiters[known:]:
            item.open, item.close = _sides(state.src[start : state.pos], before, after, item.open, item.close)
            item.open = item.open and not is_product
        return True

    return limited


def _sides(run: str, before: str, after: str, can_open: bool, can_close: bool) -> tuple[bool, bool]:
    """Return whether a run of delimiters between two characters opens and closes, given the result of CommonMark."""
    if before + after in ENCLOSING:
        return False, False
    if not before.isspace() and before not in "([{\"'“‘«" and after in ".,;:!?)]}":
        can_open = False
    if run[0] == "_":
        return can_open, can_close
    is_operand = len(run) == 1 and (before.isdigit() or after.isdigit())
    if (UNSPACED.match(before) or UNSPACED.match(after)) and not is_operand:
        return not after.isspace(), not before.isspace()
    if before.isalnum() and after.isalnum():
        return False, len(run) == 2 and (before + after).isalpha()
    if len(run) == 1 and re.match(r"[)\]][\w\\]|\d[(-]", before + after):  # (a)*2, 2*-3
        return False, False
    return can_open, can_close or (len(run) > 1 and before in ".!?:,;…)]}\"'”’" and after.isalnum())


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _where(pattern: str, rule: BlockRule) -> BlockRule:
    """Return the rule for blocks whose beginning matches."""
    compiled = re.compile(pattern, re.MULTILINE)

    def limited(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        found = compiled.match(state.src, state.bMarks[start] + state.tShift[start])
        return found is not None and rule(state, start, end, silent)

    return limited


def _while_lines(pattern: str, rule: BlockRule) -> BlockRule:
    """Return the rule for blocks that end before the first line without the pattern."""
    compiled = re.compile(pattern)

    def limited(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        last, old_end = start, state.lineMax
        while last < end and compiled.match(_line(state, last)):
            last += 1
        state.lineMax = last
        try:
            return last > start and rule(state, start, last, silent)
        finally:
            state.lineMax = old_end

    return limited


def _fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a fence; one of tildes must be closed, perhaps by a later one."""
    if _line(state, start).startswith("~"):
        if "last_tildes" not in state.env:
            state.env["last_tildes"] = max((match.start() for match in TILDES.finditer(state.src)), default=-1)
        if state.env["last_tildes"] < state.eMarks[start]:
            return False
    return fence(state, start, end, silent)


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the definition of a link that is used; all others are text."""
    match = DEFINITION.match(_line(state, start))
    return match is not None and state.src.count(match[1]) > 1 and reference(state, start, end, silent)


def _math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a formula of several lines as one text, whatever its lines begin with."""
    match = MATH_BLOCK.match(state.src, state.bMarks[start] + state.tShift[start])
    last = start + match[0].count("\n") + 1 if match else start
    if match is None or state.level or last > end or state.is_code_block(start):
        return False
    if not silent:
        state.line = last
        token = state.push("inline", "", 0)
        token.map, token.content, token.children = [start, last], match[0], []
    return True


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
        clipped = (
            replace(span, start=max(span.start, start), end=max(start, min(span.end, end))) for span in self.spans
        )
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


DUPLICATE_NOTICE = "↻ may be a duplicate:\n"
MAX_TEXT_LENGTH = 4096 - len(DUPLICATE_NOTICE)  # leaves room for the notice
MAX_CAPTION_LENGTH = 1024 - len(DUPLICATE_NOTICE)
MAX_LABEL_LENGTH = 64
SPANS_KEY, SOURCE_KEY = "telegram_marks", "telegram_markdown"
MAX_ENTITIES = 100  # Telegram drops more
NEEDED_KINDS = frozenset({LINK, PRE, SPOILER})  # without them a text says less, or more
BREAKPOINTS = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")
MAX_MENTIONS = 3
NEUTRAL_AT = "＠"  # one character like @, so that no span moves
_MENTION_PATTERN = re.compile(r"https?://\S+|(?<![A-Za-z0-9_])@([A-Za-z0-9_]{2,})")


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """A text to send, with its entities or plain."""

    text: str
    entities: tuple[MessageEntity, ...] = ()


def split_reply(content: Content, reserved: int = 0) -> list[Content]:
    """Split a reply into texts of at most 4,096 units, then files; a single file carries the text.

    The last part carries the choices. Each has room for `reserved` more units.
    """
    files = [item for item in content.attachments if item.kind is not MediaKind.LINK]
    links = [item.url for item in content.attachments if item.kind is MediaKind.LINK and item.url]
    text = "\n".join(filter(None, [content.text, *links]))
    full_text = parse_markdown(text)
    if len(files) == 1 and utf16_length(full_text.text) <= MAX_CAPTION_LENGTH - reserved:
        result = [_build_part(content, full_text, text, files)]
    else:
        chunks = list(split_text(full_text, MAX_TEXT_LENGTH - reserved))
        result = [_build_part(content, item, text if len(chunks) == 1 else "") for item in chunks]
        result += [_build_part(content, FormattedText(""), "", [file]) for file in files]
    if result and content.choices:
        result[-1] = replace(result[-1], choices=content.choices)
    return result or [replace(content, choices=())]


def is_part(content: Content) -> bool:
    """Return whether the content is split; a reply stored while Telegram was disabled is not."""
    return SPANS_KEY in content.metadata


def with_duplicate_notice(part: Content) -> Content:
    """Return a part with the notice that it may be a duplicate."""
    return _with_prefix(part, DUPLICATE_NOTICE, DUPLICATE_NOTICE)


def with_name(part: Content, name: str) -> Content:
    """Return a part with a character's name in bold before its text."""
    end = ": " if part.text else ""
    return _with_prefix(part, f"{name}{end}", f"**{name}{end.strip()}**{end[1:]}", [[BOLD, 0, len(name + end[:1]), ""]])


def _with_prefix(part: Content, prefix: str, source: str, spans: Sequence[Sequence[Any]] = ()) -> Content:
    """Return a part with a text before it, which has these spans and is `source` as Markdown."""
    added = len(prefix)
    moved = [[kind, int(start) + added, int(end) + added, detail] for kind, start, end, detail in _spans_of(part)]
    metadata: dict[str, Any] = {**part.metadata, SPANS_KEY: [*spans, *moved]}
    if SOURCE_KEY in metadata:
        metadata[SOURCE_KEY] = f"{source}{metadata[SOURCE_KEY]}"
    return replace(part, text=prefix + part.text, metadata=metadata)


def build_text(content: Content) -> OutgoingText:
    """Return the text of a part with its entities."""
    spans = [Span(str(kind), int(start), int(end), str(detail)) for kind, start, end, detail in _spans_of(content)]
    return OutgoingText(content.text, tuple(_build_entity(content.text, span) for span in spans))


def build_plain_text(content: Content) -> OutgoingText:
    """Return the text of a part as its Markdown source, or plain with the URLs of its links."""
    source = str(content.metadata.get(SOURCE_KEY, ""))
    max_length = (MAX_CAPTION_LENGTH if content.attachments else MAX_TEXT_LENGTH) + len(DUPLICATE_NOTICE)
    if source and utf16_length(source) <= max_length:
        return OutgoingText(source)
    text = content.text
    for kind, _, end, detail in sorted(_spans_of(content), key=lambda span: -int(span[2])):
        if kind == LINK and str(detail) not in text:
            text = f"{text[:end]} ({detail}){text[end:]}"
    return OutgoingText(text if utf16_length(text) <= max_length else content.text)


def build_keyboard(choices: Sequence[Choice]) -> InlineKeyboardMarkup | None:
    """Return the choices as buttons in one column; None without choices."""
    if not choices:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(choice.label[:MAX_LABEL_LENGTH], callback_data=choice.value)] for choice in choices]
    )


def upload_method_of(file: Attachment) -> str:
    """Return the suffix of the method that sends a file: photo, video, voice, audio or document."""
    if file.kind is MediaKind.IMAGE:
        return "photo"
    if file.kind is MediaKind.VIDEO:
        return "video"
    if file.kind is not MediaKind.AUDIO:
        return "document"
    is_voice = file.content_type.partition(";")[0] in ("audio/ogg", "audio/opus")
    return "voice" if is_voice or file.name.lower().endswith((".ogg", ".oga", ".opus")) else "audio"


def display_name_of(file: Attachment) -> str:
    """Return the name of a file shown to users."""
    return file.name or file.title or "file"


def _build_part(content: Content, text: FormattedText, source: str, files: Sequence[Attachment] = ()) -> Content:
    kept = sorted(text.spans, key=lambda span: span.kind not in NEEDED_KINDS)[:MAX_ENTITIES]
    spans = [[span.kind, span.start, span.end, span.detail] for span in text.spans if span in kept]
    metadata: dict[str, Any] = {**content.metadata, SPANS_KEY: spans}
    if spans and source:
        metadata[SOURCE_KEY] = source
    return replace(content, text=text.text, attachments=tuple(files), choices=(), metadata=metadata)


def _spans_of(content: Content) -> Iterator[Sequence[Any]]:
    yield from content.metadata.get(SPANS_KEY, ())


def _build_entity(text: str, span: Span) -> MessageEntity:
    return MessageEntity(
        span.kind,
        offset=utf16_length(text[: span.start]),
        length=utf16_length(text[span.start : span.end]),
        url=span.detail if span.kind == LINK else None,
        language=span.detail or None if span.kind == PRE else None,
    )


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts."""
    return len(text) + sum(char > "\uffff" for char in text)


def split_text(full_text: FormattedText, limit: int) -> Iterator[FormattedText]:
    """Split a text into parts of at most `limit` units; split code is code in both parts."""
    start = 0
    while start < len(full_text.text):
        end = _find_end(full_text.text, start, limit)
        piece = full_text.cut(start, end)
        if piece.text:
            yield piece
        start = end


def _find_end(text: str, start: int, limit: int) -> int:
    """Return the end of the part that begins at `start`."""
    furthest, size = start, 0
    while furthest < len(text) and (size := size + utf16_length(text[furthest])) <= limit:
        furthest += 1
    if furthest == len(text):
        return furthest
    for separator in BREAKPOINTS:
        position = text.rfind(separator, start + (furthest - start) // 2, furthest)
        if position > start:
            return position + len(separator)
    size = grapheme_boundary_before(text[start : furthest + 1], furthest - start)
    return start + size if size > 1 else furthest


def limit_mentions(content: Content, usernames: Collection[str]) -> Content:
    """Neutralize every @name but the first three of `usernames`; code is left unchanged."""
    mentioned = dict.fromkeys(name.lower() for _, name in _find_mentions(content.text))
    allowed = [name for name in mentioned if name in usernames][:MAX_MENTIONS]
    metadata = dict(content.metadata)
    if SOURCE_KEY in metadata:
        metadata[SOURCE_KEY] = _neutralize_mentions(str(metadata[SOURCE_KEY]), allowed)
    code_ranges = [(int(start), int(end)) for kind, start, end, _ in metadata.get(SPANS_KEY, ()) if kind in (CODE, PRE)]
    return replace(content, text=_neutralize_mentions(content.text, allowed, code_ranges), metadata=metadata)


def _neutralize_mentions(text: str, allowed: Collection[str], code_ranges: Sequence[tuple[int, int]] = ()) -> str:
    characters = list(text)
    for position, name in _find_mentions(text):
        if name.lower() not in allowed and not any(start <= position < end for start, end in code_ranges):
            characters[position] = NEUTRAL_AT
    return "".join(characters)


def _find_mentions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the @names as Telegram finds them: not within words or URLs."""
    for match in _MENTION_PATTERN.finditer(text):
        if match[1]:
            yield match.start(), match[1]
