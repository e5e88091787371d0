"""/what-do-you-know-about-me: the facts that the bot has of the person who asks."""

from collections.abc import Iterable
from datetime import tzinfo

from bot import CommandContext, Memory, MemoryKind, command
from bot.text import english_text, escape_line, user_text
from plugins.bootstrap.evaluators.facts import fact_subjects, fact_tellers

MAX_LISTED = 25
MAX_CONSIDERED = 200  # the latest facts of a room, or of a person
MAX_TEXT_BYTES = 1_800  # one message on every platform


@command("what-do-you-know-about-me", english_text("commands.known_of_me.description"))
async def list_known_facts(context: CommandContext) -> str:
    """List what the person told, and in a room with others only what was told there: its people may read the answer.

    In a room this includes what others told there of the person, with who told it; in a direct chat, what the person
    told anywhere.
    """
    invocation, memories = context.invocation, context.agent.store.memories
    person_id = invocation.author.id
    if invocation.room.type.is_direct:
        page = await memories.facts(person_id, MAX_CONSIDERED)
        known = [fact for fact in page.memories if fact_tellers(fact) == [person_id]]
        known += await _facts_here(context)
    else:
        known = await _facts_here(context)
    distinct = {fact.id: fact for fact in known}
    newest_first = sorted(distinct.values(), key=lambda fact: fact.created_at, reverse=True)[:MAX_LISTED]
    if not newest_first:
        return user_text("commands.known_of_me.nothing")
    tellers = {fact.entity_id for fact in newest_first} - {person_id}
    people = await context.agent.store.entities.entities(tellers) if tellers else {}
    names = {entity.id: entity.name for entity in people.values()}
    zone = context.agent.find_time_zone(context.invocation.world)
    lines = [_line(fact, names.get(fact.entity_id, ""), zone) for fact in newest_first]
    return "\n".join(
        [user_text("commands.known_of_me.heading"), *_within_limit(lines), user_text("commands.known_of_me.how")]
    )


async def _facts_here(context: CommandContext) -> list[Memory]:
    """Return the facts of this room that the person told, or that are about them."""
    person_id, room_id = context.invocation.author.id, context.invocation.room.id
    stored = await context.agent.store.memories.recent(room_id, MAX_CONSIDERED, kind=MemoryKind.FACT)
    return [fact for fact in stored if person_id in (fact.entity_id, *fact_subjects(fact))]


def _line(fact: Memory, teller: str, zone: tzinfo) -> str:
    text = escape_line(fact.content.text)
    day = f"{fact.created_at.astimezone(zone):%Y-%m-%d}"
    if not teller:
        return f"- {text} ({day})"
    return f"- {text} ({user_text('commands.known_of_me.told_by', name=escape_line(teller))}, {day})"


def _within_limit(lines: Iterable[str]) -> list[str]:
    """Return the first lines that fit into one message."""
    shown: list[str] = []
    remaining = MAX_TEXT_BYTES
    for line in lines:
        remaining -= len(line.encode()) + 1
        if remaining < 0:
            break
        shown.append(line)
    return shown
