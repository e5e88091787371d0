"""The nodes of a compiled template, and how they render data.

Names are looked up in mappings and lists only, in the innermost scope first; `this.name` in the innermost
alone. Nothing is called, no attribute is read, no value is treated as a template. Missing values render as
nothing. `None`, `False`, 0, "" and empty lists and mappings are false.

The template language of elizaOS characters: a subset of Handlebars that only reads data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeGuard

from bot.errors import TemplateError

MAX_OUTPUT_LENGTH = 2 * 1024 * 1024
# The work of one rendering, in units of about 0.1 µs: nested loops end even if they print nothing.
MAX_WORK = 4_000_000
NODE_WORK, LOOP_WORK, SCOPE_WORK, ITEM_WORK = 32, 64, 8, 12  # beside one unit a character


class Scope(NamedTuple):
    """The current value, the outer scope, and the variables of the loop."""

    value: object
    outer: "Scope | None"
    loop: Mapping[str, object]


class Node(Protocol):
    """A part of a template that depends on data; the other parts are plain strings."""

    def render(self, scope: Scope, page: "Page") -> None:
        """Render this node to the page."""


Nodes = Sequence[str | Node]


class Page:
    """The output so far, and the remaining limits."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._remaining_length = MAX_OUTPUT_LENGTH
        self._remaining_work = MAX_WORK

    def spend(self, work: int) -> None:
        """Count work before it is done. Raises TemplateError beyond the limit."""
        self._remaining_work -= work
        if self._remaining_work < 0:
            raise TemplateError("the template takes too much work; nest fewer loops, or show shorter lists")

    def write(self, text: str) -> None:
        """Append a text. Raises TemplateError beyond the limit."""
        self._charge(len(text))
        self.parts.append(text)

    def run(self, nodes: Nodes, scope: Scope) -> None:
        """Render nodes in order."""
        self.spend(NODE_WORK * (1 + len(nodes)))
        length = 0  # of the plain texts, counted together
        for node in nodes:
            if isinstance(node, str):
                self.parts.append(node)
                length += len(node)
            else:
                node.render(scope, self)
        self._charge(length)

    def repeat(self, nodes: Nodes, items: Iterable[tuple[object, object]], count: int, scope: Scope) -> None:
        """Render nodes once for each of `count` pairs of key and item."""
        self.spend(LOOP_WORK * count)
        for index, (key, item) in enumerate(items):
            loop_values = {"index": index, "key": key, "first": index == 0, "last": index == count - 1}
            self.run(nodes, Scope(item, scope, {**scope.loop, **loop_values}))

    def _charge(self, length: int) -> None:
        self._remaining_length -= length
        self._remaining_work -= length
        if self._remaining_length < 0:
            raise TemplateError(f"the rendered prompt exceeds {MAX_OUTPUT_LENGTH} characters; show it less")
        if self._remaining_work < 0:
            self.spend(0)


@dataclass(frozen=True, slots=True)
class Path:
    """A name as a template writes it: `user.name`, `../x`, `this`, `@index`."""

    keys: tuple[str, ...]
    up: int = 0
    is_about_loop: bool = False
    is_strict: bool = False
    work: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "work", self.up + sum(map(len, self.keys)))

    def resolve(self, scope: Scope, page: Page) -> object:
        """Return the value of the name in a scope; None if it is missing."""
        if self.work > NODE_WORK:  # the work of its node covers a plain name
            page.spend(self.work)
        for _ in range(self.up):
            if scope.outer is None:
                return None
            scope = scope.outer
        if self.is_about_loop:
            return _look_up(scope.loop, self.keys)
        if not self.is_strict:
            first = self.keys[0]
            while scope.outer is not None and not _has_key(scope.value, first):
                page.spend(SCOPE_WORK + len(first))
                scope = scope.outer
        return _look_up(scope.value, self.keys)


@dataclass(frozen=True, slots=True)
class Variable:
    """`{{x}}`: a value as text."""

    path: Path

    def render(self, scope: Scope, page: Page) -> None:
        value = self.path.resolve(scope, page)
        if isinstance(value, str):
            page.write(value)
            return
        if not _is_list(value):
            page.write(_scalar_to_text(value))
            return
        page.spend(ITEM_WORK * len(value))
        separator = ""
        for item in value:
            if not _is_list(item):
                page.write(separator)
                page.write(_scalar_to_text(item))
                separator = ", "


@dataclass(frozen=True, slots=True)
class If:
    """`{{#if x}}`: one of two texts, in the scope around it."""

    path: Path
    body: Nodes
    else_body: Nodes

    def render(self, scope: Scope, page: Page) -> None:
        page.run(self.body if _is_truthy(self.path.resolve(scope, page)) else self.else_body, scope)


@dataclass(frozen=True, slots=True)
class Each:
    """`{{#each x}}`: a text for every item of a list or a mapping."""

    path: Path
    body: Nodes
    else_body: Nodes

    def render(self, scope: Scope, page: Page) -> None:
        value = self.path.resolve(scope, page)
        if isinstance(value, Mapping) and value:
            page.repeat(self.body, value.items(), len(value), scope)
        elif _is_list(value) and value:
            page.repeat(self.body, enumerate(value), len(value), scope)
        else:
            page.run(self.else_body, scope)


@dataclass(frozen=True, slots=True)
class Section:
    """`{{#x}}`: a text for every item of a list, or once with `x` as its scope."""

    path: Path
    body: Nodes
    else_body: Nodes

    def render(self, scope: Scope, page: Page) -> None:
        value = self.path.resolve(scope, page)
        if not _is_truthy(value):
            page.run(self.else_body, scope)
        elif _is_list(value):
            page.repeat(self.body, enumerate(value), len(value), scope)
        else:
            page.run(self.body, scope if value is True else Scope(value, scope, scope.loop))


def printed_variables(nodes: Nodes) -> Iterator[str]:
    """Yield the names of the variables whose value these nodes print, also in a block that is about one."""
    for node in nodes:
        if isinstance(node, Variable):
            yield from node.path.keys[:1]
        elif isinstance(node, If | Each | Section):
            if isinstance(node, Section) and _prints_itself(node.body):
                yield from node.path.keys[:1]
            yield from printed_variables((*node.body, *node.else_body))


def _prints_itself(nodes: Nodes) -> bool:
    return any(isinstance(node, Variable) and not node.path.keys for node in nodes)


def _look_up(value: object, keys: Sequence[str]) -> object:
    for key in keys:
        if isinstance(value, (dict, Mapping)):  # dict first: the test is quick for what is nearly always there
            value = value.get(key)
        elif _is_list(value) and _has_key(value, key):
            value = len(value) if key == "length" else value[int(key)]
        else:
            return None
    return value


def _has_key(value: object, key: str) -> bool:
    if isinstance(value, (dict, Mapping)):
        return key in value
    if _is_list(value):
        return key == "length" or (len(key) < 10 and key.isdecimal() and int(key) < len(value))
    return False


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple, Sequence)) and not isinstance(value, (str, bytes, bytearray))


def _is_truthy(value: object) -> bool:
    if value is None or isinstance(value, (int, float)):
        return bool(value)
    return len(value) > 0 if isinstance(value, (str, list, dict, Mapping, Sequence)) else True


def _scalar_to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (bytes, bytearray, dict, Mapping)):
        return ""
    try:
        return str(value)
    except ValueError as error:
        raise TemplateError(f"a value cannot be shown: {error}") from error  # more digits than Python prints


MAX_SOURCE_LENGTH = 256 * 1024
MAX_DEPTH = 32

_OPENER = re.compile(r"\{\{(~?)(?:(\{)|\s*(!--|[#^/!>&=])?)")
_CLOSERS = MappingProxyType({"{": re.compile(r"\}(~?)\}\}"), "!--": re.compile(r"--(~?)\}\}")})
_CLOSER = re.compile(r"(~?)\}\}")
_SPACE = re.compile(r"\s*")
_LINE_END = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_SEGMENT = r"""(?:[^\s!"#%&'()*+,./;<=>@\[\\\]^`{|}~]+|\[[^\[\]]*\])"""
_SEGMENTS = re.compile(_SEGMENT)
_PATH = re.compile(
    r"(?P<loop>@?)(?P<up>(?:\.\.(?:/|\Z))*)(?P<here>(?:this|\.)(?:[./]|\Z))?"
    rf"(?P<keys>{_SEGMENT}(?:\.{_SEGMENT})*)?"
)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template: its nodes, the variables it uses, and its unknown tags."""

    nodes: Nodes
    variables: frozenset[str]
    unknown: tuple[str, ...]

    @property
    def printed(self) -> frozenset[str]:
        """The variables whose value is in the text, unlike those that only decide about a part of it."""
        return frozenset(printed_variables(self.nodes))

    def render(self, context: Mapping[str, object]) -> str:
        """Render the template. Raises TemplateError if the result would be too large."""
        page = Page()
        page.run(self.nodes, Scope(context, None, {"root": context}))
        return "".join(page.parts)


@lru_cache(maxsize=256)
def compile_template(source: str) -> Template:
    """Compile a template. Raises TemplateError with line, column and tag."""
    if len(source) > MAX_SOURCE_LENGTH:
        raise TemplateError(f"the template has {len(source)} characters; at most {MAX_SOURCE_LENGTH} are read")
    return _Compiler(source).compile()


def render_template(source: str, context: Mapping[str, object]) -> str:
    """Compile a template, or use the cached one, and render it."""
    return compile_template(source).render(context)


class _Tag(NamedTuple):
    sign: str
    body: str
    start: int

    @property
    def first_word(self) -> str:
        return self.body.partition(" ")[0]

    @property
    def is_else(self) -> bool:
        return (self.sign, self.body) == ("^", "") or (not self.sign and self.first_word == "else")

    @property
    def prints_nothing(self) -> bool:
        """Whether it prints nothing: a line with nothing else is removed."""
        return self.is_else or self.sign not in ("", "{", "&")


@dataclass(slots=True)
class _Block:
    """A block that is not closed yet."""

    tag: _Tag
    end: str
    path: Path | None = None  # None: an unknown helper, or the whole template
    node_type: type[If | Each | Section] = Section
    is_negated: bool = False
    is_chained: bool = False  # opened by `{{else if x}}`, closed with its parent
    body: list[str | Node] = field(default_factory=list)
    else_body: list[str | Node] = field(default_factory=list)
    has_else: bool = False

    def add(self, node: str | Node) -> None:
        (self.else_body if self.has_else else self.body).append(node)

    def build_node(self) -> Node | None:
        if self.path is None:
            return None
        body, else_body = tuple(self.body), tuple(self.else_body)
        return self.node_type(self.path, *((else_body, body) if self.is_negated else (body, else_body)))


class _Compiler:
    """Compiles one source in one pass with a stack of open blocks."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._blocks = [_Block(_Tag("", "", 0), "")]
        self._unknown: dict[str, None] = {}
        self._variables: set[str] = set()

    def compile(self) -> Template:
        for text, tag in self._scan():
            if text:
                self._blocks[-1].add(text)
            if tag:
                self._add_tag(tag)
        root, *unclosed = self._blocks
        if unclosed:
            raise self._build_error(unclosed[-1].tag, "is never closed")
        return Template(tuple(root.body), frozenset(self._variables), tuple(self._unknown))

    def _scan(self) -> Iterator[tuple[str, _Tag | None]]:
        """Yield each tag with the text before it, without blanks removed by `~` or standalone tags."""
        source, position = self._source, 0
        while opener := _OPENER.search(source, position):
            sign = opener[2] or opener[3] or ""
            closer = _CLOSERS.get(sign, _CLOSER).search(source, opener.end())
            body = source[opener.end() : closer.start()] if closer else ""
            tag = _Tag(sign, " ".join(body.split()), opener.start())
            if not closer or ("{{" in body and not sign.startswith("!")):
                raise self._build_error(tag, "is not closed")
            text, after = source[position : opener.start()], closer.end()
            margin = text.rpartition("\n")[2]
            starts_line = len(margin) < len(text) or position == 0 or source[position - 1] == "\n"
            line_end = _LINE_END.match(source, after)
            if tag.prints_nothing and starts_line and line_end and not margin.strip(" \t"):
                text, after = text[: len(text) - len(margin)], line_end.end()
            if opener[1]:
                text = text.rstrip()
            if closer[1] and (space := _SPACE.match(source, after)):
                after = space.end()
            yield text, tag
            position = after
        yield source[position:], None

    def _add_tag(self, tag: _Tag) -> None:
        if tag.is_else:
            self._start_else(tag)
        elif tag.sign == "#":
            self._open_block(tag, tag.body)
        elif tag.sign == "^":
            self._open_block(tag, f"unless {tag.body}", end=tag.first_word)
        elif tag.sign == "/":
            self._close_block(tag)
        elif tag.sign in ("", "{", "&") and (path := self._parse_path(tag.body)):
            self._blocks[-1].add(Variable(path))
        elif not tag.sign.startswith("!"):
            self._report_unknown(tag)

    def _open_block(self, tag: _Tag, body: str, *, end: str = "", is_chained: bool = False) -> None:
        if len(self._blocks) > MAX_DEPTH:
            raise self._build_error(tag, f"is nested deeper than {MAX_DEPTH} blocks")
        word, _, argument = body.partition(" ")
        block = _Block(tag, end or word, is_chained=is_chained, is_negated=word == "unless")
        if argument and word in ("if", "unless", "each"):
            block.node_type = Each if word == "each" else If
            block.path = self._parse_path(argument)
        else:
            block.path = self._parse_path(body)
        if block.path is None:
            self._report_unknown(tag)
        self._blocks.append(block)

    def _start_else(self, tag: _Tag) -> None:
        block = self._blocks[-1]
        if len(self._blocks) == 1 or block.has_else:
            raise self._build_error(tag, "belongs to no block; it stands once between {{#if x}} and {{/if}}")
        block.has_else = True
        if chained := tag.body.removeprefix("else").strip():
            self._open_block(tag, chained, is_chained=True)

    def _close_block(self, tag: _Tag) -> None:
        while self._blocks[-1].is_chained:
            self._finish_block()
        block = self._blocks[-1]
        if len(self._blocks) == 1:
            raise self._build_error(tag, "closes nothing")
        if tag.body != block.end:
            opened = self._format_tag(block.tag)
            raise self._build_error(tag, f"does not close {opened}; write {{{{/{block.end}}}}} before it")
        self._finish_block()

    def _finish_block(self) -> None:
        block = self._blocks.pop()
        if node := block.build_node():
            self._blocks[-1].add(node)

    def _parse_path(self, body: str) -> Path | None:
        parsed = _PATH.fullmatch(body) if body else None
        if parsed is None or (parsed["loop"] and not parsed["keys"]):
            return None
        keys = tuple(key.strip("[]") for key in _SEGMENTS.findall(parsed["keys"] or ""))
        is_about_loop = bool(parsed["loop"])
        is_strict = bool(parsed["here"]) or not keys
        if is_about_loop:
            self._variables.update(keys[1:2] if keys[0] == "root" else ())
        elif not (is_strict and any(block.node_type is not If for block in self._blocks[1:])):
            self._variables.update(keys[:1])
        return Path(keys, parsed["up"].count(".."), is_about_loop, is_strict)

    def _report_unknown(self, tag: _Tag) -> None:
        sign = tag.sign.strip("{&")
        self._unknown.setdefault(f"{sign} {tag.body}" if sign == ">" else sign + tag.body)

    def _format_tag(self, tag: _Tag) -> str:
        line = self._source[tag.start : tag.start + 60].partition("\n")[0]
        name, closer, _ = line.partition("}}")
        return name + closer

    def _build_error(self, tag: _Tag, problem: str) -> TemplateError:
        line = self._source.count("\n", 0, tag.start) + 1
        column = tag.start - self._source.rfind("\n", 0, tag.start)
        return TemplateError(f"line {line}, column {column}: {self._format_tag(tag)} {problem}")
