"""Reads character files: positions, old formats, secrets and a report of what became of every part."""

from bot.characters.loader import (
    CHARACTER_SUFFIXES,
    LoadedCharacter,
    load_character,
    parse_character,
    read_character_source,
    suggest_file,
    write_character_source,
)
from bot.characters.report import Format, ImportReport, Note
from bot.characters.secret_detection import Secrets

__all__ = [
    "CHARACTER_SUFFIXES",
    "Format",
    "ImportReport",
    "LoadedCharacter",
    "Note",
    "Secrets",
    "load_character",
    "parse_character",
    "read_character_source",
    "suggest_file",
    "write_character_source",
]
