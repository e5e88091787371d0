"""`ImportReport`, its notes, and the collector that is filled while a file is read."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from bot.characters.source_text import Path, SourceText, format_path, printable
from bot.errors import CharacterError, FileProblem

MAX_PROBLEMS = 20
MAX_MESSAGE_LENGTH = 400


class Format(StrEnum):
    """Which elizaOS generation a file was written for, or which version of SillyTavern's cards."""

    V0 = "v0"
    V1 = "v1"
    CARD_V1 = "card v1"
    CARD_V2 = "card v2"
    CARD_V3 = "card v3"


@dataclass(frozen=True, slots=True)
class Note:
    """A note about one place of a file: `path` is empty if it concerns the whole file, `column` 0 if not known."""

    path: str
    line: int
    message: str
    column: int = 0

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.column else f"line {self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the note as JSON."""
        column = {"column": self.column} if self.column else {}
        return {"path": self.path, "line": self.line, **column, "what": self.message}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The notes on a file by section, each sorted by line: mapped, kept, ignored, warnings, secrets."""

    format: Format
    mapped: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    ignored: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    secrets: tuple[Note, ...] = ()

    def with_warnings(self, notes: Iterable[Note]) -> "ImportReport":
        """Return the report with further warnings."""
        return replace(self, warnings=tuple(sorted((*self.warnings, *notes), key=_sort_key)))

    def sections(self) -> dict[str, tuple[Note, ...]]:
        """Return the notes by section name, in the order of display."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "format"}

    def format_lines(self) -> list[str]:
        """Return the report as text, one line a note, warnings first."""
        order = {"warnings": "warning", "secrets": "secret", "mapped": "mapped", "ignored": "ignored", "kept": "kept"}
        sections = self.sections()
        return [f"{label:<7}  {note}" for name, label in order.items() for note in sections[name]]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        sections = {name: [note.to_json() for note in notes] for name, notes in self.sections().items()}
        return {"format": str(self.format), **sections}


class ReportCollector:
    """Collects notes and problems of one file: notes become the report, problems one error."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._problems: list[tuple[int, FileProblem]] = []
        self._notes: dict[str, list[Note]] = {name: [] for name in ("mapped", "kept", "ignored", "warnings", "secrets")}

    def add_mapped(self, offset: int, path: Path | str, message: str) -> None:
        """Add a note that something was renamed or converted."""
        self._add_note("mapped", offset, path, message)

    def add_preserved(self, offset: int, path: Path | str, message: str) -> None:
        """Add a note that something unknown was preserved."""
        self._add_note("kept", offset, path, message)

    def add_ignored(self, offset: int, path: Path | str, message: str) -> None:
        """Add a note that something known has no effect."""
        self._add_note("ignored", offset, path, message)

    def add_warning(self, offset: int, path: Path | str, message: str) -> None:
        """Add a warning that the author should check."""
        self._add_note("warnings", offset, path, message)

    def add_secret(self, offset: int, path: Path | str, message: str) -> None:
        """Add a note that a secret was found."""
        self._add_note("secrets", offset, path, message)

    def add_problem(self, offset: int, path: Path | str, message: str) -> None:
        """Add a problem that makes the file unusable."""
        line, column = self._source.position_of(offset)
        self._problems.append((offset, FileProblem(clean_message(message), line, column, _format_path(path))))

    def line_of(self, offset: int) -> int:
        """Return the line number of an offset."""
        return self._source.line_of(offset)

    def raise_problems(self) -> None:
        """Raise CharacterError with the first twenty problems, if there are any."""
        if not self._problems:
            return
        ordered = sorted(self._problems, key=lambda item: (item[0], item[1].path, item[1].message))
        texts = [f"{self._source.format_location(offset)}: {item.path}: {item.message}" for offset, item in ordered]
        more = len(texts) - MAX_PROBLEMS
        rest = [f"{self._source.name}: and {more} more"] if more > 0 else []
        problems = [problem for _, problem in ordered[:MAX_PROBLEMS]]
        raise CharacterError("\n".join([*texts[:MAX_PROBLEMS], *rest]), problems)

    def build_report(self, format: Format) -> ImportReport:
        """Return the report with each section sorted by line."""
        return ImportReport(
            format, **{name: tuple(sorted(notes, key=_sort_key)) for name, notes in self._notes.items()}
        )

    def _add_note(self, section: str, offset: int, path: Path | str, message: str) -> None:
        self._notes[section].append(Note(_format_path(path), self._source.line_of(offset), clean_message(message)))


def _sort_key(note: Note) -> tuple[int, str, str]:
    return note.line, note.path, note.message


def _format_path(path: Path | str) -> str:
    return path if isinstance(path, str) else format_path(path)


def clean_message(message: str) -> str:
    """Truncate a message and remove terminal codes: it may quote the file."""
    return printable(message[:MAX_MESSAGE_LENGTH])
