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
from bot.characters.source import Format, ImportReport, Note, Secrets

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
