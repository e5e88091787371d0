"""Whom and what somebody means: by exact name or id, never by a guess."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from bot import ChannelType, Entity, Room, Turn, short_id
from bot.text import sanitize_name
from plugins.bootstrap.actions.permissions import actors_own_text, contains_text

MAX_LISTED = 5
MAX_NAMESAKES = 100


class NotFound(Exception):
    """Nobody and nothing, or more than one, goes by a name; the message is for the model."""


def entity_titles(person: Entity) -> tuple[str, ...]:
    """List by what somebody can be called."""
    return (*person.names, person.external_id, short_id(person.id), str(person.id))


def describe_entity(person: Entity) -> str:
    """Name somebody so that nobody else can be meant."""
    return f"{sanitize_name(person.name)} (id {short_id(person.id)}, {person.platform})"


async def find_people(turn: Turn, name: str, platform: str | None = None) -> list[Entity]:
    """List everybody known by a name or an id; a short id, as prompts have it, is of somebody here.

    Raises NotFound where so many have the name that somebody may be missing from the list.
    """
    entities = turn.agent.store.entities
    name_text = await entities.entities_by_name(name, platform=platform, limit=MAX_NAMESAKES)
    if len(name_text) == MAX_NAMESAKES:
        raise NotFound(
            f"too many people are called {quote_name(name)}: ask for the id of the one who is meant"
        )
    matches = {entity.id: entity for entity in name_text}
    if (stored := parse_id(name)) is not None:
        matches |= await entities.entities([stored])
    members = await entities.participants(turn.room.id, limit=200)
    matches |= {entity.id: entity for entity in members if short_id(entity.id) == name.casefold()}
    matches.pop(turn.agent.id, None)
    return [entity for entity in matches.values() if platform in (None, entity.platform)]


async def find_member(turn: Turn, name: str) -> Entity:
    """Find the one person of this world whom the author means; raises NotFound.

    Where the model gives an id, the author must mean the same person by the name they have written.
    """
    name = strip_prefix(name)
    person = only_match(name, await _find_members(turn, name))
    name_text = actors_own_text(turn)
    if not contains_text(name_text, name):
        for name_text_quoted in (
            entity for entity in entity_titles(person) if contains_text(name_text, entity)
        ):
            only_match(name_text_quoted, await _find_members(turn, name_text_quoted))
    return person


async def _find_members(turn: Turn, name: str) -> list[Entity]:
    members = []
    for person in await find_people(turn, name, turn.world.platform):
        rooms = await turn.agent.store.worlds.rooms_of(person.id)
        if any(room.world_id == turn.world.id for room in rooms):
            members.append(person)
    return members


def only_match(name: str, people: Sequence[Entity]) -> Entity:
    """Give the one there is; raises NotFound where there is none, or a choice."""
    if not people:
        raise NotFound(f"nobody known goes by exactly {quote_name(name)}")
    if len(people) > 1:
        choice = ", ".join(describe_entity(entity) for entity in people[:MAX_LISTED])
        raise NotFound(f"{quote_name(name)} may be {choice}: ask which one is meant")
    return people[0]


async def find_rooms(turn: Turn, name: str) -> list[Room]:
    """List the rooms of a name or an id, in the worlds to which the author belongs.

    Of private ones only the author's own.
    """
    worlds = turn.agent.store.worlds
    author_rooms = await worlds.rooms_of(turn.author.id)
    rooms: dict[UUID, Room] = {}
    for world_id in dict.fromkeys(room.world_id for room in author_rooms):
        rooms |= {room.id: room for room in await worlds.rooms(world_id) if _has_name(room, name)}
    author_room_ids = {room.id for room in author_rooms}
    return [room for room in rooms.values() if room.id in author_room_ids or not room.type.is_private_chat]


def _has_name(room: Room, name: str) -> bool:
    return name in (room.name, room.external_id, short_id(room.id), str(room.id))


def strip_prefix(name: str) -> str:
    """Take off what platforms write before names."""
    return name.strip().removeprefix("@").removeprefix("#").strip()


def quote_name(name: str) -> str:
    """Quote a name from a model."""
    return f"“{sanitize_name(name)}”"


def direct_rooms(rooms: Iterable[Room], rooms_by_id: Collection[str]) -> list[Room]:
    """List the rooms in which somebody can be written to alone, the most recently active first."""
    return [room for room in rooms if room.type is ChannelType.DM and room.platform in rooms_by_id]


def parse_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
