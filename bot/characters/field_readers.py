"""Reads a value in the shape its field needs, example conversations included."""

from pydantic import JsonValue

from bot.characters.json_scanner import Node
from bot.characters.report import Findings
from bot.characters.source_text import Path


def plain(node: Node) -> JsonValue:
    """Give a value without its positions."""
    value = node.value
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def is_empty(node: Node) -> bool:
    """Whether a value says nothing: null, "", [] or {}."""
    return node.value is None or node.value in ("", (), {})


def setting_text(node: Node) -> JsonValue:
    """Give a value as a setting holds it: a list of scalars as text with commas."""
    if isinstance(node.value, tuple):
        return ",".join(text for item in node.value if (text := _written(item)) is not None)
    return plain(node)


class Shapes:
    """The shapes, each with the notes and problems that reading it brings."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def text(self, node: Node, path: Path) -> str:
        """Read a text; a number or true or false is written out."""
        if node.value is None:
            return ""
        text = _written(node)
        if text is None:
            self._expected("text", node, path)
            return ""
        if not isinstance(node.value, str):
            self._findings.mapped(node.key_at, path, f"{node.kind} read as text")
        return text

    def texts(self, node: Node, path: Path) -> tuple[str, ...]:
        """Read a list of texts; one text is a list of one, null an empty list."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            text = _written(node)
            if text is None:
                self._expected("a list of texts", node, path)
                return ()
            self._findings.mapped(node.key_at, path, f"{node.kind} read as a list of one")
            return (text,) if text.strip() else ()
        return self._items(node.value, node, path)

    def mapping(self, node: Node, path: Path) -> dict[str, Node]:
        """Read an object; null is an empty one."""
        if isinstance(node.value, dict):
            return node.value
        if node.value is not None:
            self._expected("an object", node, path)
        return {}

    def flag(self, node: Node, path: Path) -> bool:
        """Read true or false, also where they are written as text."""
        if isinstance(node.value, bool | None):
            return bool(node.value)
        text = _written(node)
        if text is not None and text.strip().lower() in ("true", "false"):
            self._findings.mapped(node.key_at, path, "text read as true or false")
            return text.strip().lower() == "true"
        self._expected("true or false", node, path)
        return False

    def _items(self, items: tuple[Node, ...], node: Node, path: Path) -> tuple[str, ...]:
        texts, converted = [], 0
        for index, item in enumerate(items):
            text = _written(item)
            if text is None and item.value is not None:
                self._expected("text", item, (*path, index))
            converted += not isinstance(item.value, str)
            if text is not None:
                texts.append(text)
        if converted:
            count = f"{converted} of {len(items)} entries"
            self._findings.mapped(node.key_at, path, f"{count} not text: numbers written out, null left out")
        return tuple(texts)

    def _expected(self, what: str, node: Node, path: Path) -> None:
        self._findings.problem(node.at, path, f"expected {what}, found {node.kind}")


def _written(node: Node) -> str | None:
    """Give a scalar as text; None for null, a list, an object."""
    value = node.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


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
