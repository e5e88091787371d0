"""Parses nested tags of any name into dictionaries, lists and strings."""

import re
from typing import TypeAlias

from bot.prompts.reply_parser.cleanup import Tag, find_tags, unescape_field

MAX_DEPTH = 64

TagTree: TypeAlias = "str | dict[str, TagTree] | list[TagTree]"

_TAG = re.compile(r"<(?:(/?)([a-z_][\w.:-]*+)(?=[\s/>])[^<>]*?(/?)>|!\[CDATA\[)", re.IGNORECASE)
_MARKUP = frozenset(("a", "b", "i", "u", "s", "p", "br", "em", "strong", "code", "pre", "span", "del", "sub", "sup"))
_JSON = re.compile(r"\s*+[\[{]")


def parse_tags(text: str, *, root: str = "") -> TagTree:
    """Parse the nested tags of a cleaned-up text, up to the end of `root`."""
    stack = _Stack(text)
    for tag in find_tags(text, _TAG):
        stack.add_tag(tag)
        if tag.name == root and len(stack.nodes) == 1:
            break
    return stack.build_tree()


class _Node:
    """An open tag and its content so far."""

    __slots__ = ("children", "has_words", "name", "start", "words_start", "written")

    def __init__(self, name: str, written: str, start: int) -> None:
        self.name, self.written, self.start = name, written, start
        self.words_start = start  # where the words after the last child begin
        self.has_words = False
        self.children: list[tuple[str, TagTree]] = []

    def note_words(self, text: str, until: int, after: int) -> None:
        """Note words before a child or the end."""
        self.has_words = self.has_words or bool(text[self.words_start : until].strip())
        self.words_start = after

    def is_text(self) -> bool:
        """Whether this is text with mark-up and not a list of values."""
        return not self.children or (self.has_words and all(name.lower() in _MARKUP for name, _ in self.children))


class _Stack:
    """The open tags of one answer, innermost last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = [_Node("", "", 0)]
        self.open: dict[str, int] = {}
        self.skipped_depth = 0

    def add_tag(self, tag: Tag) -> None:
        """Add the next tag; one that closes nothing is text."""
        written = self.text[tag.start + 1 : tag.start + 1 + len(tag.name)]
        if tag.is_empty:
            self.nodes[-1].note_words(self.text, tag.start, tag.end)
            self.nodes[-1].children.append((written, ""))
        elif tag.is_opening and len(self.nodes) <= MAX_DEPTH:
            self.nodes[-1].note_words(self.text, tag.start, tag.end)
            self.nodes.append(_Node(tag.name, written, tag.end))
            self.open[tag.name] = self.open.get(tag.name, 0) + 1
        elif tag.is_opening:
            self.skipped_depth += 1
        elif self.skipped_depth:
            self.skipped_depth -= 1
        elif self.open.get(tag.name):
            self._close(tag)

    def _close(self, tag: Tag) -> None:
        """Close the innermost tag of this name; unclosed tags inside it are text."""
        while self.nodes[-1].name != tag.name:
            orphan = self._pop()
            self.nodes[-1].children += orphan.children
            self.nodes[-1].has_words = True
        node = self._pop()
        node.note_words(self.text, tag.start, tag.end)
        self.nodes[-1].children.append((node.written, self._node_value(node, tag.start)))
        self.nodes[-1].words_start = tag.end

    def _pop(self) -> _Node:
        node = self.nodes.pop()
        self.open[node.name] -= 1
        return node

    def build_tree(self) -> TagTree:
        """Return the tree; complete values in open tags count, a truncated value does not."""
        is_cut = len(self.nodes) > 1
        while len(self.nodes) > 1:
            node = self._pop()
            if node.children:
                self.nodes[-1].children.append((node.written, _group_children(node.children)))
        top = self.nodes[0]
        top.note_words(self.text, len(self.text), len(self.text))
        if not top.is_text():
            return _group_children(top.children)
        return {} if is_cut and self.text.lstrip().startswith("<") else unescape_field(self.text).strip()

    def _node_value(self, node: _Node, end: int) -> TagTree:
        if not node.is_text() and not _JSON.match(self.text, node.start, end):
            return _group_children(node.children)
        return unescape_field(self.text[node.start : end]).strip()


def _group_children(children: list[tuple[str, TagTree]]) -> dict[str, TagTree]:
    grouped: dict[str, TagTree] = {}
    for name, value in children:
        existing = grouped.get(name)
        if isinstance(existing, list):
            existing.append(value)
        else:
            grouped[name] = value if existing is None else [existing, value]
    return grouped
