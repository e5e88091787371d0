"""Reads a value as the shape that its field wants, forgiving what has one clear meaning."""

from pydantic import JsonValue

from bot.characters.findings import Findings
from bot.characters.positions import Path
from bot.characters.scanner import Node


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
