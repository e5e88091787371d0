"""How the people of this room stand to one another, as far as this room has shown it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bot import Entity, ProviderResult, Relationship, Turn, clean_name, provider, short_id

MOST_PEOPLE = 20
MOST = 30


@provider("RELATIONSHIPS", "How the people here stand to one another.", position=104, dynamic=True)
async def relationships(turn: Turn) -> ProviderResult:
    """List who has to do with whom, the most frequent contact first; what other rooms know stays there."""
    entities = turn.agent.store.entities
    present = await entities.participants(turn.room.id, MOST_PEOPLE)
    people = {turn.agent.id, *(one.author.id for one in turn.inputs), *(one.id for one in present)}
    known = await asyncio.gather(*(entities.relationships(one) for one in people))
    found = [(shown, one) for each in known for one in each if (shown := _shown_by(turn, one))]
    found.sort(key=lambda pair: (-pair[0]["interactions"], short_id(pair[1].source_id)))
    chosen = [one for _, one in found[:MOST]]
    named = await entities.entities({side for one in chosen for side in (one.source_id, one.target_id)})
    lines = [_line(turn, one, shown, named) for shown, one in found[:MOST]]
    text = "\n".join(["# Who knows whom (as it seemed in this room)", *lines]) if lines else ""
    return ProviderResult(text=text, data={"relationships": tuple(chosen)})


def _shown_by(turn: Turn, relationship: Relationship) -> Mapping[str, Any] | None:
    rooms: Mapping[str, Mapping[str, Any]] = relationship.metadata.get("rooms", {})
    return rooms.get(str(turn.room.id))


def _line(turn: Turn, one: Relationship, shown: Mapping[str, Any], named: Mapping[Any, Entity]) -> str:
    sides = []
    for side in (one.source_id, one.target_id):
        person = named.get(side)
        name = clean_name(person.name if person is not None else "")
        sides.append("you" if side == turn.agent.id else f"{name} (id {short_id(side)})")
    tags = ", ".join(map(clean_name, shown["tags"])) or "known"
    return f"- {' → '.join(sides)}: {tags}; {shown['interactions']} messages"
