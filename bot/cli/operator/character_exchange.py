"""`bot character import` and `export`: files that are read and written beside each other."""

import filecmp
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import Template

from bot.characters import load_character, parse_character
from bot.characters.card_files import write_png_card
from bot.characters.exchange import (
    ImportedCharacter,
    export_card,
    export_character,
    file_stem,
    find_characters,
    import_character,
)
from bot.characters.report import Note
from bot.domain.character import Character
from bot.errors import CharacterError
from bot.text import strip_terminal_codes

MISSING_DOCUMENT = "{name} is not copied: there is no such file beside the character's, or it is not below its folder"


@dataclass(frozen=True, slots=True)
class WrittenCharacter:
    """An imported character, and the files that were written for it: first that of the character."""

    imported: ImportedCharacter
    files: tuple[Path, ...]

    def format_lines(self) -> list[str]:
        """Return what became of each part of the file, and what was written, for the terminal."""
        imported = self.imported
        lines = (*imported.report.format_lines(), *(f"wrote    {file}" for file in self.files))
        heading = f"{imported.path}: {imported.name} ({imported.report.format})"
        return [strip_terminal_codes(line) for line in (heading, *(f"  {line}" for line in lines))]


def write_imported(path: Path, folder: Path, lorebooks: Sequence[Path] = ()) -> list[WrittenCharacter]:
    """Import a file, or each character of a folder, into `folder`. No file is replaced. Raises CharacterError."""
    paths = find_characters(path) if path.is_dir() else [path]
    if len(paths) > 1 and lorebooks:
        raise CharacterError(f"{path}: a lorebook belongs to one character: name its file, not the folder")
    imported = [import_character(item, lorebooks) for item in paths]
    return [_write(item, folder) for item in imported]


def write_starter(path: Path, name: str) -> None:
    """Write a short complete character file as an example to replace. Raises CharacterError; no file is replaced."""
    template = files("bot.cli").joinpath("templates", "character.txt").read_text(encoding="utf-8")
    text = Template(template).substitute(name=json.dumps(name, ensure_ascii=False)[1:-1])
    parse_character(text, source=str(path))
    _write_new(path, text.encode(), creates_folder=False)


def write_exported(path: Path, target: Path | None, *, is_card: bool, picture: Path | None) -> Path:
    """Write a character as an elizaOS file, or as a card in JSON or in a picture. Raises CharacterError.

    Without a target it is NAME.json, NAME.card.json or NAME.card.png; NAME.elizaos.json where that is the file itself.
    """
    character = load_character(path).character
    if is_card or picture:
        return _write_card(character, target, picture)
    if target is None:
        stem = file_stem(character.name)
        target = Path(f"{stem}.json")
        target = Path(f"{stem}.elizaos.json") if target.resolve() == path.resolve() else target
    _write_new(target, _to_text(export_character(character)).encode())
    return target


def _write_card(character: Character, target: Path | None, picture: Path | None) -> Path:
    text = _to_text(export_card(character)).encode()
    suffix = ".png" if picture else ".json"
    target = target or Path(f"{file_stem(character.name)}.card{suffix}")
    if target.suffix.lower() == ".png" and picture is None:
        raise CharacterError(f"{target}: a card in a picture needs one: name it with --picture FILE.png")
    if picture is None:
        _write_new(target, text)
        return target
    try:
        data = picture.read_bytes()
    except OSError as error:
        raise CharacterError(f"{picture}: cannot be read: {error.strerror or error}") from None
    _write_new(target, write_png_card(data, text))
    return target


def _write(imported: ImportedCharacter, folder: Path) -> WrittenCharacter:
    file = folder / f"{file_stem(imported.name)}.json"
    found = {name: _find_places(imported.path.parent, name, folder) for name in imported.documents}
    places = [place for place in found.values() if place]
    missing = [Note("", 1, MISSING_DOCUMENT.format(name=name)) for name, place in found.items() if not place]
    imported = replace(imported, report=imported.report.with_warnings(missing))
    for origin, target in places:
        if _differs(origin, target):
            raise CharacterError(f"{target}: another document stands there: name another folder with --to")
    _write_new(file, imported.text.encode())
    files = [file]
    picture = folder / imported.picture_name
    if imported.picture and not (picture.is_file() and picture.read_bytes() == imported.picture):
        files.append(picture)
        _write_new(picture, imported.picture)
    files += [_copy_document(origin, target) for origin, target in places if not target.exists()]
    return WrittenCharacter(imported, tuple(files))


def _find_places(source: Path, name: str, folder: Path) -> tuple[Path, Path] | None:
    """Return where a document or folder of documents is, and where below `folder` it belongs; None outside of them."""
    origin, target = (source / name).resolve(), folder / name
    is_inside = origin.is_relative_to(source.resolve()) and target.resolve().is_relative_to(folder.resolve())
    return (origin, target) if is_inside and origin.exists() else None


def _differs(origin: Path, target: Path) -> bool:
    """Return whether something else stands at the place of a document or a folder of documents."""
    if not os.path.lexists(target) or origin == target.resolve():
        return False
    if origin.is_symlink() or target.is_symlink():
        return not (origin.is_symlink() and target.is_symlink() and origin.readlink() == target.readlink())
    if origin.is_dir() and target.is_dir():
        return any(_differs(child, target / child.name) for child in origin.iterdir())
    return origin.is_dir() or target.is_dir() or not filecmp.cmp(origin, target, shallow=False)


def _copy_document(origin: Path, target: Path) -> Path:
    """Copy a document or a folder of documents; return the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if origin.is_dir():
        shutil.copytree(origin, target, symlinks=True)
    else:
        shutil.copyfile(origin, target)
    return target


def _write_new(path: Path, data: bytes, *, creates_folder: bool = True) -> None:
    try:
        if creates_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise CharacterError(f"{path}: the file exists and is not changed; move it, or name another place") from None
    except OSError as error:
        raise CharacterError(f"{path}: cannot be written: {error.strerror or error}") from None


def _to_text(fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, indent=2) + "\n"
