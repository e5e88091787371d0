"""Text, entities and files of messages that the library would not find: of rich messages (Bot API 10.1); pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.telegram.validation import MAX_UPDATE_DEPTH, find_mentions

MAX_RICH_DEPTH = 100
TEXT_FIELDS = ("text", "alternative_text", "expression")
ENTITY_FIELDS: Mapping[str, Sequence[str]] = {  # formats that are entities of a text too, and what those hold
    "mention": (),
    "text_mention": ("user",),
    "bot_command": (),
    "code": (),
    "pre": (),
}
FILE_FIELDS = {"photo": "photo", "video": "video", "animation": "animation", "audio": "audio", "voice_note": "voice"}


def with_rich_text(value: Any, depth: int = 0) -> Any:
    """Return an update in which a rich message has a text, entities, and the first file of each kind instead.

    What the message has besides stays. Blocks and formats of unknown types are read for the texts that they hold.
    A text without the field of its entities gets those of the @names in it, which Telegram always marks.
    """
    if depth > MAX_UPDATE_DEPTH:
        return value
    if isinstance(value, list):
        return [with_rich_text(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    message = {name: with_rich_text(item, depth + 1) for name, item in value.items() if name != "rich_message"}
    if "chat" in message and isinstance(text := message.get("text"), str) and "@" in text:
        message["entities"] = find_mentions(text) if message.get("entities") is None else message["entities"]
    if (rich_message := value.get("rich_message")) is None:
        return message
    reader = _RichTextReader()
    reader.read(rich_message)
    if reader.text.strip() and not message.get("text"):
        message |= {"text": reader.text.rstrip(), "entities": reader.entities}
    found = {**reader.files, **message}
    return found if len(found) > len(value) - 1 else {**found, "rich_message": rich_message}


class _RichTextReader:
    """Collects the text of a rich message, its entities and its files; offsets are in UTF-16 units."""

    def __init__(self) -> None:
        self.text = ""
        self.entities: list[dict[str, Any]] = []
        self.files: dict[str, Any] = {}
        self._length = 0  # of the text
        self._label_end = 0  # of the label of the item that is read

    def read(self, value: Any, depth: int = 0) -> None:
        """Read a text, a block, or a list of them."""
        if depth > MAX_RICH_DEPTH:
            return
        if isinstance(value, str):
            self._add(value)
        elif isinstance(value, list):
            for item in value:
                self.read(item, depth + 1)
        elif isinstance(value, Mapping):
            self._read_part(value, depth + 1)

    def _read_part(self, part: Mapping[str, Any], depth: int) -> None:
        if isinstance(label := part.get("label"), str):
            self._begin_line()
            self._add(f"{label} ")
            self._label_end = self._length
        self._read_line(part.get("summary"), depth)
        start = self._length
        for name in TEXT_FIELDS:
            self.read(part.get(name), depth)
        kind = part.get("type")
        if isinstance(kind, str) and kind in ENTITY_FIELDS and self._length > start:
            place = {"type": kind, "offset": start, "length": self._length - start}
            self.entities.append({**place, **{name: part.get(name) for name in ENTITY_FIELDS[kind]}})
        for name in ("items", "blocks", "cells"):
            children = part.get(name)
            for child in children if isinstance(children, list) else ():
                self._read_line(_join_cells(child) if name == "cells" else child, depth)
        for name in ("caption", "credit"):
            self._read_line(part.get(name), depth)
        for name, kind in FILE_FIELDS.items():
            if part.get(name):
                self.files.setdefault(kind, part[name])

    def _read_line(self, value: Any, depth: int) -> None:
        if value:
            self._begin_line()
            self.read(value, depth)
            self._begin_line()

    def _begin_line(self) -> None:
        if self.text and not self.text.endswith("\n") and self._length != self._label_end:
            self._add("\n")

    def _add(self, text: str) -> None:
        self.text += text
        self._length += len(text.encode("utf-16-le", "surrogatepass")) // 2


def _join_cells(row: Any) -> Any:
    return [part for cell in row for part in (cell, " | ")][:-1] if isinstance(row, list) else row
