"""What became of each part of a character file that was not taken as it stood."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


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
