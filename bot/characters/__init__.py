"""Reads character files: positions, old formats, secrets and a report of what became of every part."""

from bot.characters.loader import (
    LoadedCharacter,
    load_character,
    parse_character,
    read_character_source,
    write_character_source,
)
from bot.characters.report import Format, ImportReport, Note
from bot.characters.secret_detection import Secrets

__all__ = [
    "Format",
    "ImportReport",
    "LoadedCharacter",
    "Note",
    "Secrets",
    "load_character",
    "parse_character",
    "read_character_source",
    "write_character_source",
]
