"""CommonMark parser that leaves unchanged what only looks like Markdown: URLs, paths, code, formulas, emoticons."""

import re
from collections.abc import Callable
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, fence, heading, lheading, list_block, reference, table
from markdown_it.rules_inline import StateInline, emphasis, strikethrough

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
SPOILER = re.compile(r"(?<![A-Za-z0-9_|])\|\|(?=[^\s|])(.{1,2000}?)(?<=[^\s|])\|\|(?![A-Za-z0-9_|])", re.DOTALL)
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
    match = SPOILER.match(state.src, state.pos, state.posMax)
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
