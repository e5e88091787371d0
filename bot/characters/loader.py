"""`load_character` and `parse_character`: read, convert and validate a character file.

`FilePlaces`: where the parts of a character file stand, for notes and errors about what they name.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bot.characters.cards import PNG_SIGNATURE, is_card
from bot.characters.conversion import convert
from bot.characters.secrets import extract_secrets
from bot.characters.source import (
    ImportReport,
    KeyPath,
    Node,
    Note,
    ReportCollector,
    Secrets,
    SourceText,
    clean_message,
    format_path,
    scan_json,
)
from bot.domain.character import Character, find_lost_placeholders
from bot.errors import CharacterError, FileProblem, TemplateError
from bot.files import replace_file
from bot.prompts.template_language import compile_template
from bot.text import find_closest

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

    def build_note(self, path: KeyPath, message: str, *, variable: str = "") -> Note:
        """Return a note about the value at a path, or about a variable in a template that stands there."""
        offset = self._offset(path, variable)
        line, column = self.source.position_of(offset)
        return Note(format_path(path), line, clean_message(message), column)

    def build_error(self, path: KeyPath, message: str, *, variable: str = "") -> CharacterError:
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

    def _offset(self, path: KeyPath, variable: str = "") -> int:
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


MAX_FILE_BYTES: Final = 4 * 1024 * 1024
CHARACTER_SUFFIXES: Final = (".json", ".png", ".charx")
LOST_PLACEHOLDER: Final = "{{{{{name}}}}} means nothing here and is left out"
MAX_SUGGESTED_FROM: Final = 1_000  # files of a folder
CARD_ADVICE: Final = "a SillyTavern card; `bot character import FILE` writes a character file from it"


@dataclass(frozen=True, slots=True)
class LoadedCharacter:
    """A character, the report on its file, the secrets that were taken out of it, and where its parts stand."""

    character: Character
    report: ImportReport
    path: Path | None
    secrets: Secrets = field(repr=False)
    places: FilePlaces = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the result of a check as JSON, without secrets."""
        return {
            "path": str(self.path) if self.path else None,
            "name": self.character.name,
            "report": self.report.to_json(),
            "secrets": sorted(self.secrets),
        }


def load_character(path: Path) -> LoadedCharacter:
    """Load a character file of either elizaOS generation. Raises CharacterError."""
    source = read_character_source(path)
    return _load(SourceText(str(path), source), path)


def parse_character(text: str, *, source: str = "<text>") -> LoadedCharacter:
    """Parse a character from text; errors call it `source`. Raises CharacterError."""
    if len(text) > MAX_FILE_BYTES:
        raise _too_large_error(source, len(text))
    return _load(SourceText(source, text), None)


def read_character_source(path: Path) -> str:
    """Read the text of a character file. Raises CharacterError, also if it is too large."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            data = b"" if size > MAX_FILE_BYTES else file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise CharacterError(f"{path}: a folder, not a character file; name a .json file in it") from None
    except FileNotFoundError:
        raise CharacterError(f"{path}: no such file{suggest_file(path, CHARACTER_SUFFIXES)}") from None
    except PermissionError:
        raise CharacterError(f"{path}: may not be read; give yourself permission to read it") from None
    except (OSError, ValueError) as error:
        raise CharacterError(f"{path}: cannot be read: {error}") from None
    if max(size, len(data)) > MAX_FILE_BYTES:
        raise _too_large_error(str(path), max(size, len(data)))
    return _decode(data, str(path))


def suggest_file(path: Path, suffixes: Collection[str] = ()) -> str:
    """Return '; did you mean …?' with the name of a file beside one that does not exist; empty if none is near."""
    with suppress(OSError):
        files = islice(path.parent.iterdir(), MAX_SUGGESTED_FROM)
        names = {file.stem: file.name for file in files if not suffixes or file.suffix.lower() in suffixes}
        closest = find_closest(path.stem, names)
        return f"; did you mean '{names[closest]}'?" if closest is not None else ""
    return ""


def write_character_source(path: Path, text: str, *, mode: int) -> None:
    """Replace a file by one with this text, so that it is never seen half written. Raises CharacterError."""
    try:
        replace_file(path, text.encode(), mode=mode)
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds half a character"
        raise CharacterError(f"{path} cannot be written: {reason or error}") from None


def _too_large_error(name: str, size: int) -> CharacterError:
    return CharacterError(
        f"{name}: {size / 2**20:.1f} MiB; a character file holds at most {MAX_FILE_BYTES // 2**20} MiB: "
        "shorten its knowledge and examples"
    )


def _decode(data: bytes, name: str) -> str:
    if data.startswith(PNG_SIGNATURE):
        raise CharacterError(f"{name}:1:1: not UTF-8 text (byte 0x89) but a picture; for {CARD_ADVICE}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CharacterError(f"{name}:1:1: UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = SourceText(name, data[: error.start].decode("utf-8"))
        location = before.format_location(len(before.text))
        raise CharacterError(f"{location}: not UTF-8 text (byte 0x{data[error.start]:02x})") from None
    if (offset := text.find("\x00")) >= 0:
        raise CharacterError(f"{SourceText(name, text).format_location(offset)}: a binary file, not JSON text (NUL)")
    return text


def _load(source: SourceText, path: Path | None) -> LoadedCharacter:
    if not source.text.strip("\ufeff \t\r\n"):
        problem = FileProblem("the file is empty; a character is an object with a name", 1, 1)
        raise CharacterError(f"{source.name}:1:1: {problem.message}", [problem])
    root, deviations = scan_json(source)
    collector = ReportCollector(source)
    for deviation in deviations:
        collector.add_warning(deviation.offset, deviation.path, deviation.message)
    if is_card(root):
        raise CharacterError(f"{source.name}: {CARD_ADVICE}")
    places = FilePlaces(source, root)
    root, secrets = extract_secrets(root, collector)
    fields, format = convert(root, collector)
    check_templates(root, collector)
    collector.raise_problems()
    try:
        character = Character.model_validate(fields)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            collector.add_problem(root.offset, fault["loc"], fault["msg"])
        collector.raise_problems()
        raise
    return LoadedCharacter(character, collector.build_report(format), path, secrets, places)


def check_templates(root: Node, collector: ReportCollector) -> None:
    """Compile each template; a syntax error is a problem, an unknown tag a warning."""
    members = root.value if isinstance(root.value, dict) else {}
    system, templates = members.get("system"), members.get("templates")
    _check_greetings(members, collector)
    if system is not None and isinstance(system.value, str):
        try:
            compile_template(system.value)
        except TemplateError as error:
            collector.add_warning(system.offset, ("system",), f"is used as it is, with its braces: {error}")
    if templates is None or not isinstance(templates.value, dict):
        return
    for name, node in templates.value.items():
        if not isinstance(node.value, str):
            continue
        path = ("templates", name)
        try:
            unknown = compile_template(node.value).unknown
        except TemplateError as error:
            collector.add_problem(node.offset, path, str(error))
            continue
        for tag in unknown:
            collector.add_warning(node.offset, path, LOST_PLACEHOLDER.format(name=tag[:60]))


def _check_greetings(members: Mapping[str, Node], collector: ReportCollector) -> None:
    """Add a warning for each placeholder of a greeting that is left out when it is said."""
    for key in ("greetings", "groupGreetings"):
        greetings = members[key].value if key in members else None
        for number, node in enumerate(greetings if isinstance(greetings, tuple) else ()):
            for name in find_lost_placeholders(node.value) if isinstance(node.value, str) else ():
                collector.add_warning(node.offset, (key, number), LOST_PLACEHOLDER.format(name=name[:60]))
