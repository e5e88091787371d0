"""Nested tags of any name, read into dictionaries, lists and strings."""

import json
import re
from typing import TypeAlias

from bot.prompts.reply_parser.cleanup import Tag, bare, plain, tags_in
from bot.prompts.reply_parser.json_objects import decoded, object_in

MAX_DEPTH = 64

Tree: TypeAlias = "str | dict[str, Tree] | list[Tree]"

_TAG = re.compile(
    r"<(?:(/?)([a-z_][\w.:-]*+)(?=[\s/>])[^<>]*?(/?)>|!\[CDATA\[)",
    re.IGNORECASE,
)
_MARKUP = frozenset(
    ("a", "b", "i", "u", "s", "p", "br", "em", "strong", "code", "pre", "span", "del", "sub", "sup")
)
_ROOT = re.compile(r"<response[\s>]", re.IGNORECASE)
_ROOTS = ("output", "response")
_JSON = re.compile(r"\s*+[\[{]")


def read_tree(raw: str) -> Tree:
    """Read nested tags: `<a><b>1</b><b>2</b><c>3</c></a>` is `{"a": {"b": ["1", "2"], "c": "3"}}`.

    The root `<response>` is left out, and so is prose beside tags, but words with mark-up like `<b>`
    among them are one text. A tag that stands only once is no list; an empty one is "". JSON is read
    as well, its scalars as strings. Tags deeper than MAX_DEPTH are text; a value that the end of the
    answer cut off is missing. Without tags or JSON the tree is the text itself. Never raises.
    """
    text, _ = bare(raw)
    if _JSON.match(text) and (value := decoded(text)) and not text[value[1] :].strip():
        return _tree_of(value[0], MAX_DEPTH)
    root = _ROOT.search(text)
    tree = nested(text[root.start() :] if root else text, root="response")
    for name in _ROOTS:
        if isinstance(tree, dict) and [key.lower() for key in tree] == [name]:
            tree = next(iter(tree.values()))
    if isinstance(tree, str) and (members := object_in(text)):
        return _tree_of(members, MAX_DEPTH)
    return tree


def nested(text: str, *, root: str = "") -> Tree:
    """Read the nested tags of a text that is bare already, no further than the end of `root`."""
    stack = _Stack(text)
    for tag in tags_in(text, _TAG):
        stack.add(tag)
        if tag.name == root and len(stack.nodes) == 1:
            break
    return stack.tree()


class _Node:
    """A tag that is open: what stands in it so far."""

    __slots__ = ("at", "children", "has_words", "name", "start", "written")

    def __init__(self, name: str, written: str, start: int) -> None:
        self.name, self.written, self.start = name, written, start
        self.at = start  # where the words begin that no child holds
        self.has_words = False
        self.children: list[tuple[str, Tree]] = []

    def pass_words(self, text: str, until: int, after: int) -> None:
        """Take note of words before a child, or before the end."""
        self.has_words = self.has_words or bool(text[self.at : until].strip())
        self.at = after

    def is_text(self) -> bool:
        """Tell words with mark-up among them from a list of values."""
        return not self.children or (
            self.has_words and all(name.lower() in _MARKUP for name, _ in self.children)
        )


class _Stack:
    """The open tags of one answer, innermost last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = [_Node("", "", 0)]
        self.open: dict[str, int] = {}
        self.too_deep = 0

    def add(self, tag: Tag) -> None:
        """Take the next tag; one that closes nothing is text."""
        written = self.text[tag.start + 1 : tag.start + 1 + len(tag.name)]
        if tag.is_empty:
            self.nodes[-1].pass_words(self.text, tag.start, tag.end)
            self.nodes[-1].children.append((written, ""))
        elif tag.opens and len(self.nodes) <= MAX_DEPTH:
            self.nodes[-1].pass_words(self.text, tag.start, tag.end)
            self.nodes.append(_Node(tag.name, written, tag.end))
            self.open[tag.name] = self.open.get(tag.name, 0) + 1
        elif tag.opens:
            self.too_deep += 1
        elif self.too_deep:
            self.too_deep -= 1
        elif self.open.get(tag.name):
            self._close(tag)

    def _close(self, tag: Tag) -> None:
        """Close the innermost tag of this name; those opened since and never closed are text."""
        while self.nodes[-1].name != tag.name:
            orphan = self._pop()
            self.nodes[-1].children += orphan.children
            self.nodes[-1].has_words = True
        node = self._pop()
        node.pass_words(self.text, tag.start, tag.end)
        self.nodes[-1].children.append((node.written, self._value(node, tag.start)))
        self.nodes[-1].at = tag.end

    def _pop(self) -> _Node:
        node = self.nodes.pop()
        self.open[node.name] -= 1
        return node

    def tree(self) -> Tree:
        """End the answer: what is still open and holds whole values counts, a value cut off does not."""
        is_cut = len(self.nodes) > 1
        while len(self.nodes) > 1:
            node = self._pop()
            if node.children:
                self.nodes[-1].children.append((node.written, _grouped(node.children)))
        top = self.nodes[0]
        top.pass_words(self.text, len(self.text), len(self.text))
        if not top.is_text():
            return _grouped(top.children)
        return {} if is_cut and self.text.lstrip().startswith("<") else plain(self.text).strip()

    def _value(self, node: _Node, end: int) -> Tree:
        if not node.is_text() and not _JSON.match(self.text, node.start, end):
            return _grouped(node.children)
        return plain(self.text[node.start : end]).strip()


def _grouped(children: list[tuple[str, Tree]]) -> dict[str, Tree]:
    grouped: dict[str, Tree] = {}
    for name, value in children:
        known = grouped.get(name)
        if isinstance(known, list):
            known.append(value)
        else:
            grouped[name] = value if known is None else [known, value]
    return grouped


def _tree_of(value: object, depth: int) -> Tree:
    """Turn decoded JSON into a tree; what lies deeper than `depth` is left out."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict | list) and not depth:
        return ""
    if isinstance(value, dict):
        return {str(key): _tree_of(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_tree_of(item, depth - 1) for item in value]
    return "" if value is None else json.dumps(value)
