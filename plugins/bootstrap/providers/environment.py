"""ENTITIES, ROLES, RELATIONSHIPS, WORLD, SETTINGS, ANXIETY."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bot import (
    ChannelType,
    CoreSettings,
    Entity,
    ProviderKind,
    ProviderResult,
    Relationship,
    Role,
    Turn,
    provider,
    short_id,
)
from bot.text import escape_line, sanitize_name, shorten

MAX_ENTITIES_SHOWN = 20


@provider(
    "ENTITIES",
    "The people in the room.",
    position=-20,
    dynamic=True,
    kind=ProviderKind.PARTICIPANTS,
    trusted_content=True,
)
async def entities(turn: Turn) -> ProviderResult:
    """List who takes part, in an order that does not change with every message."""
    people = await turn.agent.store.entities.participants(turn.room.id, MAX_ENTITIES_SHOWN)
    people = sorted((one for one in people if one.id != turn.agent.id), key=lambda one: short_id(one.id))
    lines = [f"- {_entity_line(turn, one)}" for one in people]
    text = "\n".join(["# People here", *lines]) if lines else ""
    return ProviderResult(text=text, data={"entities": tuple(people)})


def _entity_line(turn: Turn, person: Entity) -> str:
    role = turn.world.role_of(person.id)
    marks = [f"id {short_id(person.id)}"]
    marks += [role.lower()] if role in (Role.OWNER, Role.ADMIN) else []
    marks += ["a bot"] if person.is_bot else []
    return f"{sanitize_name(person.name)} ({', '.join(marks)})"


MAX_ROLES_SHOWN = 30


@provider(
    "ROLES", "Who owns this place and who looks after it.", position=-30, dynamic=True, trusted_content=True
)
async def roles(turn: Turn) -> ProviderResult:
    """List the owners and admins by the platform's word, whatever anybody says of themselves."""
    if turn.room.type.is_private_chat:
        return ProviderResult()
    named = turn.world.roles.keys() | turn.world.grants.keys()
    held = {one: role for one in named if (role := turn.world.role_of(one)).is_at_least(Role.ADMIN)}
    order = sorted(held, key=lambda one: (-held[one].rank, short_id(one)))[:MAX_ROLES_SHOWN]
    people = await turn.agent.store.entities.entities(order)
    lines = [
        f"- {sanitize_name(people[one].name)} (id {short_id(one)}): {held[one].lower()}"
        for one in order
        if one in people
    ]
    text = "\n".join(["# Roles", *lines, "Everybody else is a member."]) if lines else ""
    return ProviderResult(text=text, data={"roles": held})


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
    lines = [_relationship_line(turn, one, shown, named) for shown, one in found[:MOST]]
    text = "\n".join(["# Who knows whom (as it seemed in this room)", *lines]) if lines else ""
    return ProviderResult(text=text, data={"relationships": tuple(chosen)})


def _shown_by(turn: Turn, relationship: Relationship) -> Mapping[str, Any] | None:
    rooms: Mapping[str, Mapping[str, Any]] = relationship.metadata.get("rooms", {})
    return rooms.get(str(turn.room.id))


def _relationship_line(
    turn: Turn, one: Relationship, shown: Mapping[str, Any], named: Mapping[Any, Entity]
) -> str:
    sides = []
    for side in (one.source_id, one.target_id):
        person = named.get(side)
        name = sanitize_name(person.name if person is not None else "")
        sides.append("you" if side == turn.agent.id else f"{name} (id {short_id(side)})")
    tags = ", ".join(map(sanitize_name, shown["tags"])) or "known"
    return f"- {' → '.join(sides)}: {tags}; {shown['interactions']} messages"


@provider(
    "WORLD",
    "The world and the room of the conversation.",
    position=-40,
    dynamic=True,
    kind=ProviderKind.WORLD,
    trusted_content=True,
)
def world(turn: Turn) -> ProviderResult:
    """Name the world and the room."""
    place = sanitize_name(turn.world.name) if turn.world.name else ""
    room = sanitize_name(turn.room.name) if turn.room.name else ""
    where = [f"World: {place}" if place else "", f"Room: {room} ({turn.room.type})" if room else ""]
    lines = [line for line in where if line]
    text = "\n".join(["# Place", *lines]) if lines else ""
    return ProviderResult(
        text=text, values={"worldContext": place}, data={"world": turn.world, "room": turn.room}
    )


LONGEST = 100


@provider(
    "SETTINGS",
    "What is set for this place, for those who look after it.",
    position=-35,
    dynamic=True,
    trusted_content=True,
)
def settings(turn: Turn) -> ProviderResult:
    """List what can be set here and how it is set now; everything else is the operator's and stays unsaid."""
    if not turn.role.is_at_least(Role.ADMIN):
        return ProviderResult()
    values = {name: _value(turn, name) for name in sorted(CoreSettings.WORLD_SETTINGS)}
    lines = [
        f"- {name}: {escape_line(shorten(value, LONGEST)) or 'not set'}" for name, value in values.items()
    ]
    return ProviderResult(text="\n".join(["# Settings of this place", *lines]), data={"settings": values})


def _value(turn: Turn, name: str) -> str:
    default = CoreSettings.model_fields[name.lower()].get_default()
    written = ",".join(default) if isinstance(default, tuple) else str(default)
    return turn.find_setting(name) or written


ONE_ON_ONE_ADVICE = (
    "You are talking with one person.",
    "Answer what was asked; one message, not several.",
    "Do not end every message with a question or an offer of help.",
)
AMONG_MANY = (
    "Many people share this room.",
    "Speak when you are spoken to or have something to give; otherwise leave the talk to them.",
    "Be briefer than you would be alone with somebody, and never repeat what you have just said.",
    "If people talk to one another, let them. IGNORE is a good answer.",
)
IN_PUBLIC = (
    "What you write here is public and stays.",
    "One thought, complete in itself; no hashtags, no calls for attention.",
)
MANNERS = {
    ChannelType.GROUP: AMONG_MANY,
    ChannelType.THREAD: AMONG_MANY,
    ChannelType.FORUM: AMONG_MANY,
    ChannelType.VOICE_GROUP: AMONG_MANY,
    ChannelType.WORLD: AMONG_MANY,
    ChannelType.FEED: IN_PUBLIC,
    ChannelType.BROADCAST: IN_PUBLIC,
}


@provider(
    "ANXIETY",
    "How much to say in a room of this kind.",
    position=-70,
    kind=ProviderKind.STYLE,
    trusted_content=True,
)
def anxiety(turn: Turn) -> ProviderResult:
    """Give the manners of this kind of room; the same every time."""
    lines = MANNERS.get(turn.room.type, ONE_ON_ONE_ADVICE)
    return ProviderResult(text="\n".join(["# Manners", *(f"- {line}" for line in lines)]))
