"""Reads values in the type that their field needs, including example conversations."""

from pydantic import JsonValue

from bot.characters.json_scanner import Node
from bot.characters.report import ReportCollector
from bot.characters.source_text import Path


def to_json(node: Node) -> JsonValue:
    """Return the JSON value of a node, without positions."""
    value = node.value
    if isinstance(value, dict):
        return {key: to_json(member) for key, member in value.items()}
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def is_empty(node: Node) -> bool:
    """Whether a value is null, "", [] or {}."""
    return node.value is None or node.value in ("", (), {})


def to_setting(node: Node) -> JsonValue:
    """Return a value as settings store it: a list of scalars as comma-separated text."""
    if isinstance(node.value, tuple):
        return ",".join(text for item in node.value if (text := _scalar_text(item)) is not None)
    return to_json(node)


class FieldReader:
    """Reads values of one type each, and reports conversions and mismatches."""

    def __init__(self, collector: ReportCollector) -> None:
        self._collector = collector

    def text(self, node: Node, path: Path) -> str:
        """Read a text; numbers and booleans are converted."""
        if node.value is None:
            return ""
        text = _scalar_text(node)
        if text is None:
            self._add_mismatch("text", node, path)
            return ""
        if not isinstance(node.value, str):
            self._collector.add_mapped(node.key_offset, path, f"{node.kind} read as text")
        return text

    def texts(self, node: Node, path: Path) -> tuple[str, ...]:
        """Read a list of texts; one text is a list of one, null an empty list."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            text = _scalar_text(node)
            if text is None:
                self._add_mismatch("a list of texts", node, path)
                return ()
            self._collector.add_mapped(node.key_offset, path, f"{node.kind} read as a list of one")
            return (text,) if text.strip() else ()
        return self._items(node.value, node, path)

    def mapping(self, node: Node, path: Path) -> dict[str, Node]:
        """Read an object; null is an empty one."""
        if isinstance(node.value, dict):
            return node.value
        if node.value is not None:
            self._add_mismatch("an object", node, path)
        return {}

    def flag(self, node: Node, path: Path) -> bool:
        """Read a boolean, also one written as text."""
        if isinstance(node.value, bool | None):
            return bool(node.value)
        text = _scalar_text(node)
        if text is not None and text.strip().lower() in ("true", "false"):
            self._collector.add_mapped(node.key_offset, path, "text read as true or false")
            return text.strip().lower() == "true"
        self._add_mismatch("true or false", node, path)
        return False

    def _items(self, items: tuple[Node, ...], node: Node, path: Path) -> tuple[str, ...]:
        texts, converted = [], 0
        for index, item in enumerate(items):
            text = _scalar_text(item)
            if text is None and item.value is not None:
                self._add_mismatch("text", item, (*path, index))
            converted += not isinstance(item.value, str)
            if text is not None:
                texts.append(text)
        if converted:
            count = f"{converted} of {len(items)} entries"
            self._collector.add_mapped(
                node.key_offset, path, f"{count} are not text; numbers are converted, null is removed"
            )
        return tuple(texts)

    def _add_mismatch(self, expected: str, node: Node, path: Path) -> None:
        self._collector.add_problem(node.offset, path, f"expected {expected}, found {node.kind}")


def _scalar_text(node: Node) -> str | None:
    """Return a scalar as text; None for null, a list or an object."""
    value = node.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


LineFields = dict[str, object]


class ExampleReader:
    """Reads `messageExamples`; `is_v0` is set if keys of v0 occur."""

    def __init__(self, reader: FieldReader, collector: ReportCollector) -> None:
        self._reader = reader
        self._collector = collector
        self._v0_offsets: dict[str, list[int]] = {}

    @property
    def is_v0(self) -> bool:
        """Whether a line names its speaker or action with keys of v0."""
        return bool(self._v0_offsets)

    def read(self, node: Node, path: Path) -> tuple[tuple[LineFields, ...], ...]:
        """Read a list of conversations, each a list of lines."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            self._collector.add_problem(node.offset, path, f"expected a list of conversations, found {node.kind}")
            return ()
        if node.value and all(_is_line(item) for item in node.value):
            self._collector.add_mapped(node.key_offset, path, "a list of lines read as one conversation")
            conversations = [self._read_lines(node.value, path)]
        else:
            items = enumerate(node.value)
            conversations = [self._read_conversation(item, (*path, index)) for index, item in items]
        for word, offsets in self._v0_offsets.items():
            new = {"user": "name", "action": "actions"}[word]
            times = "once" if len(offsets) == 1 else f"{len(offsets)} times"
            self._collector.add_mapped(offsets[0], (*path, word), f"read as {new}, {times}")
        return tuple(lines for lines in conversations if lines)

    def _read_conversation(self, node: Node, path: Path) -> tuple[LineFields, ...]:
        if isinstance(node.value, dict) and "examples" in node.value:
            node, path = node.value["examples"], (*path, "examples")
        if isinstance(node.value, tuple):
            return self._read_lines(node.value, path)
        if node.value is not None:
            self._collector.add_problem(node.offset, path, f"expected a list of messages, found {node.kind}")
        return ()

    def _read_lines(self, items: tuple[Node, ...], path: Path) -> tuple[LineFields, ...]:
        return tuple(self._read_line(item, (*path, index)) for index, item in enumerate(items))

    def _read_line(self, node: Node, path: Path) -> LineFields:
        members = node.value
        if not isinstance(members, dict):
            self._collector.add_problem(
                node.offset, path, f"expected an object with name and content, found {node.kind}"
            )
            return {}
        line: LineFields = {
            key: to_json(member) for key, member in members.items() if key not in ("user", "name", "content")
        }
        line["name"] = self._read_speaker(members, node, path)
        if "content" in members:
            line["content"] = self._read_content(members["content"], (*path, "content"))
        else:
            self._collector.add_problem(node.offset, (*path, "content"), "is missing; it holds the message")
        return line

    def _read_speaker(self, members: dict[str, Node], node: Node, path: Path) -> str:
        if "user" in members:
            self._v0_offsets.setdefault("user", []).append(members["user"].key_offset)
        for key in ("name", "user"):
            if key in members and (name := self._reader.text(members[key], (*path, key))):
                return name
        self._collector.add_problem(node.offset, (*path, "name"), "is missing; it names the speaker")
        return ""

    def _read_content(self, node: Node, path: Path) -> LineFields:
        if node.value is None:
            return {}
        members = self._reader.mapping(node, path)
        content: LineFields = {key: to_json(member) for key, member in members.items() if key != "action"}
        if "text" in members:
            content["text"] = self._reader.text(members["text"], (*path, "text"))
        actions = self._reader.texts(members["actions"], (*path, "actions")) if "actions" in members else ()
        if "action" in members:
            self._v0_offsets.setdefault("action", []).append(members["action"].key_offset)
            actions += (self._reader.text(members["action"], (*path, "action")),)
        content["actions"] = tuple(dict.fromkeys(action for action in actions if action))
        return content


def _is_line(node: Node) -> bool:
    return isinstance(node.value, dict) and "content" in node.value
