"""The table of what of a character's file the description in the prompt holds, for chats and for feeds."""

from collections.abc import Sequence
from typing import Any

from bot.domain.character import Character
from bot.plugin_system.plugin import Plugin
from bot.prompts.character_description import MAX_DESCRIPTION_LENGTH, SectionUse, describe_character

KNOWLEDGE_PROVIDER = "KNOWLEDGE"  # searches the knowledge, which is then not in the description
EXAMPLE_SEED = "any room"


def measure_sections(character: Character, plugins: Sequence[Plugin] = ()) -> dict[str, tuple[SectionUse, ...]]:
    """Return what the description for one room holds of each section, in chats and in feeds."""
    has_index = any(provider.spec.name == KNOWLEDGE_PROVIDER for plugin in plugins for provider in plugin.providers)
    return {
        place: describe_character(character, seed=EXAMPLE_SEED, is_feed=is_feed, has_knowledge_index=has_index).sections
        for place, is_feed in (("chat", False), ("feed", True))
    }


def format_sections(sections: dict[str, tuple[SectionUse, ...]]) -> list[str]:
    """Return the table as lines; none for a character with nothing but a name."""
    rows: dict[str, dict[str, str]] = {}
    for place, uses in sections.items():
        for use in uses:
            rows.setdefault(use.name, {})[place] = _format_use(use)
    if not rows:
        return []
    lines = [f"{'section':<16} {'chat':<16} feed"]
    lines += [f"{name:<16} {row.get('chat', '-'):<16} {row.get('feed', '-')}" for name, row in rows.items()]
    if not all(use.is_whole for uses in sections.values() for use in uses):
        lines.append(
            f"at most {MAX_DESCRIPTION_LENGTH} characters in all; every room and every day another choice of "
            "the lines of bio, lore, adjectives and topics"
        )
    return lines


def sections_to_json(sections: dict[str, tuple[SectionUse, ...]]) -> dict[str, Any]:
    """Return the table as JSON, lengths in characters."""
    return {
        place: {
            use.name: {
                "kept": use.kept,
                "count": use.count,
                "keptCharacters": use.kept_length,
                "characters": use.length,
            }
            for use in uses
        }
        for place, uses in sections.items()
    }


def _format_use(use: SectionUse) -> str:
    return f"{use.kept} of {use.count}" + (", cut" if use.kept == use.count and not use.is_whole else "")
