"""What reading a character file brings to light, gathered as it is read."""

from bot.characters.positions import Path, SourceText, path_text, printable
from bot.characters.report import Format, Note, Report
from bot.errors import CharacterError

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
