"""`load_character`, `parse_character`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bot.characters.conversion import convert
from bot.characters.json_scanner import Node, scan
from bot.characters.report import Findings, Report
from bot.characters.secret_detection import Secrets
from bot.characters.secret_extraction import quarantine
from bot.characters.source_text import SourceText
from bot.domain.character import Character
from bot.errors import CharacterError, TemplateError
from bot.prompts.template_parser import compile_template

SIZE_LIMIT: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadedCharacter:
    """A character as read: what it is, what became of the file's parts, and the secrets found in it."""

    character: Character
    report: Report
    path: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=lambda: Secrets({}), repr=False)

    def to_json(self) -> dict[str, Any]:
        """Give what a check of the file found, without any secret."""
        return {
            "path": str(self.path) if self.path else None,
            "name": self.character.name,
            "report": self.report.to_json(),
            "secrets": sorted(self.secrets),
        }


def load_character(path: Path) -> LoadedCharacter:
    """Read a character file of either elizaOS generation."""
    source = read_character_source(path)
    return _read(SourceText(str(path), source), path)


def parse_character(text: str, *, source: str = "<text>") -> LoadedCharacter:
    """Read a character from text; `source` is what errors call it."""
    if len(text) > SIZE_LIMIT:
        raise _too_large(source, len(text))
    return _read(SourceText(source, text), None)


def read_character_source(path: Path) -> str:
    """Read the text of a character file; one that is too large is refused before it is read."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            data = b"" if size > SIZE_LIMIT else file.read(SIZE_LIMIT + 1)
    except IsADirectoryError:
        raise CharacterError(f"{path}: a folder, not a character file; name a .json file in it") from None
    except FileNotFoundError:
        raise CharacterError(f"{path}: no such file") from None
    except PermissionError:
        raise CharacterError(f"{path}: may not be read; give yourself permission to read it") from None
    except (OSError, ValueError) as error:
        raise CharacterError(f"{path}: cannot be read: {error}") from None
    if max(size, len(data)) > SIZE_LIMIT:
        raise _too_large(str(path), max(size, len(data)))
    return _decoded(data, str(path))


def _too_large(name: str, size: int) -> CharacterError:
    return CharacterError(
        f"{name}: {size / 2**20:.1f} MiB; a character file holds at most {SIZE_LIMIT // 2**20} MiB: "
        "shorten its knowledge and examples"
    )


def _decoded(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CharacterError(f"{name}:1:1: UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = SourceText(name, data[: error.start].decode("utf-8"))
        place = before.place(len(before.text))
        raise CharacterError(f"{place}: not UTF-8 text (byte 0x{data[error.start]:02x})") from None
    if (at := text.find("\x00")) >= 0:
        raise CharacterError(f"{SourceText(name, text).place(at)}: a binary file, not JSON text (NUL)")
    return text


def _read(source: SourceText, path: Path | None) -> LoadedCharacter:
    if not source.text.strip("\ufeff \t\r\n"):
        raise CharacterError(f"{source.name}:1:1: the file is empty; a character is an object with a name")
    root, oddities = scan(source)
    findings = Findings(source)
    for oddity in oddities:
        findings.warn(oddity.at, oddity.path, oddity.what)
    root, secrets = quarantine(root, findings)
    fields, format = convert(root, findings)
    check_templates(root, findings)
    findings.raise_problems()
    try:
        character = Character.model_validate(fields)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            findings.problem(root.at, fault["loc"], fault["msg"])
        findings.raise_problems()
        raise
    return LoadedCharacter(character, findings.report(format), path, secrets)


def check_templates(root: Node, findings: Findings) -> None:
    """Compile each template: one that cannot be is a problem, a tag that means nothing here a warning."""
    templates = root.value.get("templates") if isinstance(root.value, dict) else None
    if templates is None or not isinstance(templates.value, dict):
        return
    for name, node in templates.value.items():
        if not isinstance(node.value, str):
            continue
        path = ("templates", name)
        try:
            unknown = compile_template(node.value).unknown
        except TemplateError as error:
            findings.problem(node.at, path, str(error))
            continue
        for tag in unknown:
            findings.warn(node.at, path, f"{{{{{tag[:60]}}}}} means nothing here and is left out")
