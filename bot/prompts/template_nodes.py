"""The nodes of a compiled template, and how they render data.

Names are looked up in mappings and lists only, in the innermost scope first; `this.name` in the innermost
alone. Nothing is called, no attribute is read, no value is treated as a template. Missing values render as
nothing. `None`, `False`, 0, "" and empty lists and mappings are false.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
