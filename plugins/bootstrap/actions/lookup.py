"""Whom and what somebody means: by exact name or id, never by a guess."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from bot import ChannelType, Entity, Room, Turn, short_id
from bot.text import sanitize_name
from plugins.bootstrap.actions.permissions import own_words, says

MOST_TOLD = 5
MOST_NAMESAKES = 100


class NotFound(Exception):
    """Nobody and nothing, or more than one, goes by a name; the message is for the model."""


def titles(person: Entity) -> tuple[str, ...]:
    """List by what somebody can be called."""
    return (*person.names, person.external_id, short_id(person.id), str(person.id))


def described(person: Entity) -> str:
    """Name somebody so that nobody else can be meant."""
    return f"{sanitize_name(person.name)} (id {short_id(person.id)}, {person.platform})"


async def people_called(turn: Turn, name: str, platform: str | None = None) -> list[Entity]:
    """List everybody known by a name or an id; a short id, as prompts have it, is of somebody here.

    Raises NotFound where so many have the name that somebody may be missing from the list.
    """
    entities = turn.agent.store.entities
    named = await entities.entities_by_name(name, platform=platform, limit=MOST_NAMESAKES)
    if len(named) == MOST_NAMESAKES:
        raise NotFound(f"too many people are called {shown(name)}: ask for the id of the one who is meant")
    found = {one.id: one for one in named}
    if (known := _id(name)) is not None:
        found |= await entities.entities([known])
    present = await entities.participants(turn.room.id, limit=200)
    found |= {one.id: one for one in present if short_id(one.id) == name.casefold()}
    found.pop(turn.agent.id, None)
    return [one for one in found.values() if platform in (None, one.platform)]


async def find_member(turn: Turn, name: str) -> Entity:
    """Find the one person of this world whom the author means; raises NotFound.

    Where the model gives an id, the author must mean the same person by the name they have written.
    """
    name = bare(name)
    person = only(name, await _members_called(turn, name))
    words = own_words(turn)
    if not says(words, name):
        for written in (one for one in titles(person) if says(words, one)):
            only(written, await _members_called(turn, written))
    return person


async def _members_called(turn: Turn, name: str) -> list[Entity]:
    members = []
    for person in await people_called(turn, name, turn.world.platform):
        rooms = await turn.agent.store.worlds.rooms_of(person.id)
        if any(room.world_id == turn.world.id for room in rooms):
            members.append(person)
    return members


def only(name: str, people: Sequence[Entity]) -> Entity:
    """Give the one there is; raises NotFound where there is none, or a choice."""
    if not people:
        raise NotFound(f"nobody known goes by exactly {shown(name)}")
    if len(people) > 1:
        choice = ", ".join(described(one) for one in people[:MOST_TOLD])
        raise NotFound(f"{shown(name)} may be {choice}: ask which one is meant")
    return people[0]


async def rooms_called(turn: Turn, name: str) -> list[Room]:
    """List the rooms of a name or an id, in the worlds to which the author belongs.

    Of private ones only the author's own.
    """
    worlds = turn.agent.store.worlds
    own = await worlds.rooms_of(turn.author.id)
    found: dict[UUID, Room] = {}
    for world_id in dict.fromkeys(room.world_id for room in own):
        found |= {room.id: room for room in await worlds.rooms(world_id) if _is_called(room, name)}
    mine = {room.id for room in own}
    return [room for room in found.values() if room.id in mine or not room.type.is_private_chat]


def _is_called(room: Room, name: str) -> bool:
    return name in (room.name, room.external_id, short_id(room.id), str(room.id))


def bare(name: str) -> str:
    """Take off what platforms write before names."""
    return name.strip().removeprefix("@").removeprefix("#").strip()


def shown(name: str) -> str:
    """Quote a name from a model."""
    return f"“{sanitize_name(name)}”"


def private_rooms(rooms: Iterable[Room], reached: Collection[str]) -> list[Room]:
    """List the rooms in which somebody can be written to alone, the most recently active first."""
    return [room for room in rooms if room.type is ChannelType.DM and room.platform in reached]


def _id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
