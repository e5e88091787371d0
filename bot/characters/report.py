"""`ImportReport`, `Note`, and the collector filled while reading."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from bot.characters.source_text import Path, SourceText, format_path, printable
from bot.errors import CharacterError

MAX_PROBLEMS = 20
MAX_MESSAGE_LENGTH = 400


class Format(StrEnum):
    """Which elizaOS generation a file was written for."""

    V0 = "v0"
    V1 = "v1"


@dataclass(frozen=True, slots=True)
class Note:
    """One remark on one place of a file; `path` is empty where it concerns the file as a whole."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.path}: {self.message}"
            if self.path
            else f"line {self.line}: {self.message}"
        )

    def to_json(self) -> dict[str, Any]:
        """Give the note as JSON."""
        return {"path": self.path, "line": self.line, "what": self.message}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was converted, kept, left without effect, doubtful, and secret in a file; each by line."""

    format: Format
    mapped: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    ignored: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    secrets: tuple[Note, ...] = ()

    def sections(self) -> dict[str, tuple[Note, ...]]:
        """Give the notes by the name of their section, in the order in which they are shown."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "format"}

    def format_lines(self) -> list[str]:
        """Tell the report to a person, a line a note, the doubtful ones first."""
        order = {
            "warnings": "warning",
            "secrets": "secret",
            "mapped": "mapped",
            "ignored": "ignored",
            "kept": "kept",
        }
        sections = self.sections()
        return [f"{label:<7}  {note}" for name, label in order.items() for note in sections[name]]

    def to_json(self) -> dict[str, Any]:
        """Give the report as JSON."""
        sections = {name: [note.to_json() for note in notes] for name, notes in self.sections().items()}
        return {"format": str(self.format), **sections}


class ReportCollector:
    """Notes and problems of one file; problems end in one error, notes in the report."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._problems: list[tuple[int, str]] = []
        self._notes: dict[str, list[Note]] = {
            name: [] for name in ("mapped", "kept", "ignored", "warnings", "secrets")
        }

    def add_mapped(self, offset: int, path: Path | str, message: str) -> None:
        """Note that something was renamed or converted."""
        self._add_note("mapped", offset, path, message)

    def add_preserved(self, offset: int, path: Path | str, message: str) -> None:
        """Note that something unknown was kept untouched."""
        self._add_note("kept", offset, path, message)

    def add_ignored(self, offset: int, path: Path | str, message: str) -> None:
        """Note that something known has no effect here."""
        self._add_note("ignored", offset, path, message)

    def add_warning(self, offset: int, path: Path | str, message: str) -> None:
        """Note something that a person should look at."""
        self._add_note("warnings", offset, path, message)

    def add_secret(self, offset: int, path: Path | str, message: str) -> None:
        """Note that a secret was found."""
        self._add_note("secrets", offset, path, message)

    def add_problem(self, offset: int, path: Path | str, message: str) -> None:
        """Note something that makes the file unusable."""
        self._problems.append(
            (
                offset,
                f"{self._source.format_location(offset)}: {_format_path(path)}: {_clean_message(message)}",
            )
        )

    def line_of(self, offset: int) -> int:
        """Tell the line of an offset."""
        return self._source.line_of(offset)

    def raise_problems(self) -> None:
        """Raise all problems, the first twenty by name, as one error."""
        if not self._problems:
            return
        texts = [text for _, text in sorted(self._problems)]
        more = len(texts) - MAX_PROBLEMS
        rest = [f"{self._source.name}: and {more} more"] if more > 0 else []
        raise CharacterError("\n".join([*texts[:MAX_PROBLEMS], *rest]))

    def build_report(self, format: Format) -> ImportReport:
        """Give the notes, each section by line."""
        return ImportReport(
            format, **{name: tuple(sorted(notes, key=_sort_key)) for name, notes in self._notes.items()}
        )

    def _add_note(self, section: str, offset: int, path: Path | str, message: str) -> None:
        self._notes[section].append(
            Note(_format_path(path), self._source.line_of(offset), _clean_message(message))
        )


def _sort_key(note: Note) -> tuple[int, str, str]:
    return note.line, note.path, note.message


def _format_path(path: Path | str) -> str:
    return path if isinstance(path, str) else format_path(path)


def _clean_message(message: str) -> str:
    """Bound a remark and keep terminal codes out of it: some quote a name from the file."""
    return printable(message[:MAX_MESSAGE_LENGTH])
