"""`ImportReport`, `Note`, and the collector filled while reading."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from bot.characters.source_text import Path, SourceText, path_text, printable
from bot.errors import CharacterError


class Format(StrEnum):
    """Which elizaOS generation a file was written for."""

    V0 = "v0"
    V1 = "v1"


@dataclass(frozen=True, slots=True)
class Note:
    """One remark on one place of a file; `path` is empty where it concerns the file as a whole."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.path}: {self.what}" if self.path else f"line {self.line}: {self.what}"
        )

    def to_json(self) -> dict[str, Any]:
        """Give the note as JSON."""
        return {"path": self.path, "line": self.line, "what": self.what}


@dataclass(frozen=True, slots=True)
class Report:
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

    def lines(self) -> list[str]:
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


PROBLEM_LIMIT = 20
_LONGEST = 400


class Findings:
    """Notes and problems of one file; problems end in one error, notes in the report."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._problems: list[tuple[int, str]] = []
        self._notes: dict[str, list[Note]] = {
            name: [] for name in ("mapped", "kept", "ignored", "warnings", "secrets")
        }

    def mapped(self, at: int, path: Path | str, what: str) -> None:
        """Note that something was renamed or converted."""
        self._note("mapped", at, path, what)

    def kept(self, at: int, path: Path | str, what: str) -> None:
        """Note that something unknown was kept untouched."""
        self._note("kept", at, path, what)

    def ignored(self, at: int, path: Path | str, what: str) -> None:
        """Note that something known has no effect here."""
        self._note("ignored", at, path, what)

    def warn(self, at: int, path: Path | str, what: str) -> None:
        """Note something that a person should look at."""
        self._note("warnings", at, path, what)

    def secret(self, at: int, path: Path | str, what: str) -> None:
        """Note that a secret was found."""
        self._note("secrets", at, path, what)

    def problem(self, at: int, path: Path | str, what: str) -> None:
        """Note something that makes the file unusable."""
        self._problems.append((at, f"{self._source.place(at)}: {_text(path)}: {_shown(what)}"))

    def line(self, at: int) -> int:
        """Tell the line of an offset."""
        return self._source.line(at)

    def raise_problems(self) -> None:
        """Raise all problems, the first twenty by name, as one error."""
        if not self._problems:
            return
        texts = [text for _, text in sorted(self._problems)]
        more = len(texts) - PROBLEM_LIMIT
        rest = [f"{self._source.name}: and {more} more"] if more > 0 else []
        raise CharacterError("\n".join([*texts[:PROBLEM_LIMIT], *rest]))

    def report(self, format: Format) -> Report:
        """Give the notes, each section by line."""
        return Report(
            format, **{name: tuple(sorted(notes, key=_by_line)) for name, notes in self._notes.items()}
        )

    def _note(self, section: str, at: int, path: Path | str, what: str) -> None:
        self._notes[section].append(Note(_text(path), self._source.line(at), _shown(what)))


def _by_line(note: Note) -> tuple[int, str, str]:
    return note.line, note.path, note.what


def _text(path: Path | str) -> str:
    return path if isinstance(path, str) else path_text(path)


def _shown(what: str) -> str:
    """Bound a remark and keep terminal codes out of it: some quote a name from the file."""
    return printable(what[:_LONGEST])
