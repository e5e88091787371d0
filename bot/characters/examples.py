"""Reads the example conversations of a character, in the words of either generation."""

from bot.characters.findings import Findings
from bot.characters.positions import Path
from bot.characters.scanner import Node
from bot.characters.shapes import Shapes, plain

Line = dict[str, object]


class Examples:
    """Reads `messageExamples`; `is_old` says that v0's words were met on the way."""

    def __init__(self, shapes: Shapes, findings: Findings) -> None:
        self._shapes = shapes
        self._findings = findings
        self._old: dict[str, list[int]] = {}

    @property
    def is_old(self) -> bool:
        """Whether a line named its speaker or its action as v0 did."""
        return bool(self._old)

    def read(self, node: Node, path: Path) -> tuple[tuple[Line, ...], ...]:
        """Read a list of conversations, each a list of lines."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            self._findings.problem(node.at, path, f"expected a list of conversations, found {node.kind}")
            return ()
        if node.value and all(_is_line(item) for item in node.value):
            self._findings.mapped(node.key_at, path, "a list of lines read as one conversation")
            conversations = [self._lines(node.value, path)]
        else:
            items = enumerate(node.value)
            conversations = [self._conversation(item, (*path, index)) for index, item in items]
        for word, places in self._old.items():
            new = {"user": "name", "action": "actions"}[word]
            times = "once" if len(places) == 1 else f"{len(places)} times"
            self._findings.mapped(places[0], (*path, word), f"read as {new}, {times}")
        return tuple(lines for lines in conversations if lines)

    def _conversation(self, node: Node, path: Path) -> tuple[Line, ...]:
        if isinstance(node.value, dict) and "examples" in node.value:
            node, path = node.value["examples"], (*path, "examples")
        if isinstance(node.value, tuple):
            return self._lines(node.value, path)
        if node.value is not None:
            self._findings.problem(node.at, path, f"expected a list of messages, found {node.kind}")
        return ()

    def _lines(self, items: tuple[Node, ...], path: Path) -> tuple[Line, ...]:
        return tuple(self._line(item, (*path, index)) for index, item in enumerate(items))

    def _line(self, node: Node, path: Path) -> Line:
        members = node.value
        if not isinstance(members, dict):
            self._findings.problem(
                node.at, path, f"expected an object with name and content, found {node.kind}"
            )
            return {}
        line: Line = {
            key: plain(member) for key, member in members.items() if key not in ("user", "name", "content")
        }
        line["name"] = self._speaker(members, node, path)
        if "content" in members:
            line["content"] = self._content(members["content"], (*path, "content"))
        else:
            self._findings.problem(node.at, (*path, "content"), "is missing; it holds what is said")
        return line

    def _speaker(self, members: dict[str, Node], node: Node, path: Path) -> str:
        if "user" in members:
            self._old.setdefault("user", []).append(members["user"].key_at)
        for key in ("name", "user"):
            if key in members and (name := self._shapes.text(members[key], (*path, key))):
                return name
        self._findings.problem(node.at, (*path, "name"), "is missing; it says who speaks")
        return ""

    def _content(self, node: Node, path: Path) -> Line:
        if node.value is None:
            return {}
        members = self._shapes.mapping(node, path)
        content: Line = {key: plain(member) for key, member in members.items() if key != "action"}
        if "text" in members:
            content["text"] = self._shapes.text(members["text"], (*path, "text"))
        actions = self._shapes.texts(members["actions"], (*path, "actions")) if "actions" in members else ()
        if "action" in members:
            self._old.setdefault("action", []).append(members["action"].key_at)
            actions += (self._shapes.text(members["action"], (*path, "action")),)
        content["actions"] = tuple(dict.fromkeys(action for action in actions if action))
        return content


def _is_line(node: Node) -> bool:
    return isinstance(node.value, dict) and "content" in node.value
