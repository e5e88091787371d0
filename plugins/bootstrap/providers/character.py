"""Who the character is: the same words every time, so that prompt caches keep them."""

from collections.abc import Mapping, Sequence

from bot import ProviderResult, TemplateError, Turn, clean_name, provider, render

NAMES = ("Robin", "Sam", "Alex", "Kim", "Jo", "Max", "Chris", "Toni", "Sasha", "Mika")
PLACEHOLDERS = {f"{kind}{number}": one for number, one in enumerate(NAMES, 1) for kind in ("user", "name")}
MOST_EXAMPLES = 5
MOST_POSTS = 5
LONGEST = 6_000


@provider("CHARACTER", "Who the character is and how it writes.", position=-100)
def character(turn: Turn) -> ProviderResult:
    """Tell who the character is; the style is the room's: posts for a feed, chat elsewhere."""
    who = turn.agent.character
    name = clean_name(who.name)
    is_feed = turn.room.type in ("FEED", "BROADCAST")
    values = {"agentName": name, "agent": name, "user": NAMES[0], **PLACEHOLDERS}
    sections = [
        _section(f"About {name}", who.background),
        _line(f"{name} is", who.adjectives),
        _line(f"{name} knows about and likes to talk about", [one for one in who.topics if one.strip()]),
        _section("Facts", _facts(turn)),
        _section("How to write", (*who.style.all, *(who.style.post if is_feed else who.style.chat))),
        _section("Posts that sound right", who.post_examples[:MOST_POSTS]) if is_feed else _examples(turn),
    ]
    text = "\n\n".join(_rendered(section, values) for section in sections if section)
    return ProviderResult(
        text=text[:LONGEST],
        values={"agentName": name, "characterBio": " ".join(who.background), "system": who.system},
        data={"character": who},
    )


def _facts(turn: Turn) -> list[str]:
    """List what the character knows by heart: nothing where a provider looks it up instead."""
    if any(spec.name == "KNOWLEDGE" for spec in turn.agent.catalog.providers):
        return []
    return [one.content for one in turn.agent.character.knowledge if one.content]


def _rendered(section: str, values: Mapping[str, str]) -> str:
    """Fill in placeholders; a section with braces that are no placeholder stays as it was written."""
    try:
        return render(section, values)
    except TemplateError:
        return section


def _section(title: str, lines: Sequence[str]) -> str:
    kept = [line.strip() for line in lines if line.strip()]
    return "\n".join([f"# {title}", *(f"- {line}" for line in kept)]) if kept else ""


def _line(start: str, words: Sequence[str]) -> str:
    return f"{start}: {', '.join(words)}." if words else ""


def _examples(turn: Turn) -> str:
    talks = turn.agent.character.message_examples[:MOST_EXAMPLES]
    written = ["\n".join(f"{line.name}: {line.content.text}" for line in talk) for talk in talks]
    return "\n\n".join(["# Talks that sound right", *written]) if written else ""
