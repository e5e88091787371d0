"""`FilePlaces`: where the parts of a character file stand, for notes and errors about what they name."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.characters.json_scanner import Node
from bot.characters.report import Note, clean_message
from bot.characters.source_text import Path, SourceText, format_path
from bot.errors import CharacterError, FileProblem

_NEXT_LINE = re.compile(r"[ \t]*\r?\n[ \t]*")
_LINE_START = re.compile(r"\r?\n[ \t]*\Z")


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """A character file with the positions of its values; it holds the secrets of the file too."""

    source: SourceText = field(repr=False)
    root: Node = field(repr=False)

    def keys_of(self, *path: str | int) -> Sequence[str]:
        """Return the keys of the object at a path; none where there is no object."""
        value = self._find(path).value
        return list(value) if isinstance(value, dict) else []

    def length(self, *path: str | int) -> int:
        """Return the length of the list at a path; 0 where there is no list."""
        value = self._find(path).value
        return len(value) if isinstance(value, tuple) else 0

    def is_object(self, *path: str | int) -> bool:
        """Return whether an object stands at a path."""
        return isinstance(self._find(path).value, dict)

    def build_note(self, path: Path, message: str, *, variable: str = "") -> Note:
        """Return a note about the value at a path, or about a variable in a template that stands there."""
        offset = self._offset(path, variable)
        line, column = self.source.position_of(offset)
        return Note(format_path(path), line, clean_message(message), column)

    def build_error(self, path: Path, message: str, *, variable: str = "") -> CharacterError:
        """Return an error about the value at a path, as `build_note`; it names file, line and column."""
        offset = self._offset(path, variable)
        problem = FileProblem(clean_message(message), *self.source.position_of(offset), format_path(path))
        text = f"{self.source.format_location(offset)}: {problem.path}: {problem.message}"
        return CharacterError(text, [problem])

    def append_texts(self, key: str, texts: Sequence[str]) -> str:
        """Return the text of the file with `texts` at the end of the list at `key`, which is added if it is missing.

        Everything else stays as it is, comments and indentation too. Raises CharacterError for a list that is none,
        or whose last item is no text.
        """
        source, list_node = self.source.text, self._find([key])
        added = [json.dumps(text) for text in texts]
        if list_node is self.root:
            start = self.root.offset + 1
            break_line = _NEXT_LINE.match(source, start)
            before, after = (break_line[0], ",") if break_line else ("", ", ")
            return f"{source[:start]}{before}{json.dumps(key)}: [{', '.join(added)}]{after}{source[start:]}"
        items = list_node.value
        if items == ():
            start = list_node.offset + 1
            return f"{source[:start]}{', '.join(added)}{source[start:]}"
        if not isinstance(items, tuple) or not isinstance(items[-1].value, str):
            raise self.build_error((key,), f"add {', '.join(added)} by hand: it is not a list of names")
        last = items[-1].offset
        _, end = json.JSONDecoder().raw_decode(source, last)
        break_line = _LINE_START.search(source, list_node.offset, last)
        separator = f",{break_line[0]}" if break_line else ", "
        return source[:end] + "".join(f"{separator}{text}" for text in added) + source[end:]

    def _offset(self, path: Path, variable: str = "") -> int:
        node = self._find(path)
        if not variable:
            return node.offset
        tag = re.compile(r"\{\{[^{}]{0,99}" + re.escape(variable))
        match = tag.search(self.source.text, node.offset)
        return match.start() if match else node.offset

    def _find(self, path: Sequence[str | int]) -> Node:
        """Return the node at a path, or the last one on the way to it."""
        node = self.root
        for step in path:
            value = node.value
            if isinstance(value, dict) and step in value:
                node = value[str(step)]
            elif isinstance(value, tuple) and isinstance(step, int) and step < len(value):
                node = value[step]
            else:
                break
        return node
