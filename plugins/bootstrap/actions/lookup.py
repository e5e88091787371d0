"""Find users and rooms by exact name or id, never by a guess."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from bot import ActionResult, ChannelType, Entity, Room, Turn, short_id
from bot.prompts import ANYBODY, contains_words
from bot.text import name_shape, sanitize_name, user_text

MAX_LISTED = 5
MAX_NAMESAKES = 100
MAX_HANDLE_LENGTH = 40
MAX_SEARCHED_ROOMS, MAX_SEARCHED_MEMBERS = 20, 200  # for names that look alike


class NotFound(Exception):
    """No user or room, or several, match a name; the message is for the model, and names people and rooms."""

    @property
    def result(self) -> ActionResult:
        """The result of an action that ends with it; those who chose the names are its authors."""
        return ActionResult(False, error=str(self), authors=(ANYBODY,))


def entity_titles(person: Entity) -> tuple[str, ...]:
    """Return the names and ids by which a user can be named."""
    return (*person.names, person.external_id, short_id(person.id), str(person.id))


def describe_entity(person: Entity) -> str:
    """Return the name, short id and platform of a user."""
    return f"{sanitize_name(person.name)} (id {short_id(person.id)}, {person.platform})"


async def describe_confirmed(turn: Turn, person: Entity) -> str:
    """Return what tells a user from others of the same name, for the question whether that user is meant.

    That is the name, handle, id, platform and role, since when the user is known, and whose name looks alike.
    """
    details = [_identify(person), await _describe_history(turn, person)]
    alike = await _find_lookalikes(turn, person)
    others = [
        f"{sanitize_name(other.name)} ({_identify(other)}, {await _describe_history(turn, other)})"
        for other in alike[:MAX_LISTED]
    ]
    others += [f"+{len(alike) - MAX_LISTED}"] if len(alike) > MAX_LISTED else []
    details += [user_text("choices.same_name", others=", ".join(others))] if others else []
    return f"{sanitize_name(person.name)} ({'; '.join(details)})"


def _identify(person: Entity) -> str:
    handle = str(person.metadata.get("username") or "")
    shown = f"@{sanitize_name(handle, MAX_HANDLE_LENGTH)}, " if handle else ""
    return f"{shown}id {short_id(person.id)}, {person.platform}"


async def _describe_history(turn: Turn, person: Entity) -> str:
    role, activity = turn.world.role_of(person.id), await turn.agent.store.entities.activity(person.id)
    if activity is None:
        return user_text("choices.new_person", role=role)
    date = f"{activity.first_at:%Y-%m-%d}"
    return user_text("choices.known_person", role=role, date=date, count=activity.messages)


async def _find_lookalikes(turn: Turn, person: Entity) -> list[Entity]:
    """Return the other users of this world whose name or handle looks like this one's, members of the room first."""
    store = turn.agent.store
    rooms = [room for room in await store.worlds.rooms(turn.world.id) if room.id != turn.room.id]
    shapes = _shapes_of(person)
    alike: dict[UUID, Entity] = {}
    for room in (turn.room, *rooms[:MAX_SEARCHED_ROOMS]):
        for other in await store.entities.participants(room.id, limit=MAX_SEARCHED_MEMBERS):
            if other.id not in (person.id, turn.agent.id) and shapes & _shapes_of(other):
                alike[other.id] = other
    return list(alike.values())


def _shapes_of(person: Entity) -> set[str]:
    return {name_shape(name) for name in (person.name, str(person.metadata.get("username") or "")) if name}


async def find_people(turn: Turn, name: str, platform: str | None = None) -> list[Entity]:
    """Return the users with a name or id; a short id, as prompts show it, matches only users of this room.

    Raises NotFound if the name has so many matches that the list may be incomplete.
    """
    entities = turn.agent.store.entities
    namesakes = await entities.entities_by_name(name, platform=platform, limit=MAX_NAMESAKES)
    if len(namesakes) == MAX_NAMESAKES:
        raise NotFound(f"too many people are called {quote_name(name)}: ask for the id of the one who is meant")
    matches = {entity.id: entity for entity in namesakes}
    if (entity_id := _parse_id(name)) is not None:
        matches |= await entities.entities([entity_id])
    members = await entities.participants(turn.room.id, limit=200)
    matches |= {entity.id: entity for entity in members if short_id(entity.id) == name.casefold()}
    matches.pop(turn.agent.id, None)
    return [entity for entity in matches.values() if platform in (None, entity.platform)]


async def find_member(turn: Turn, name: str) -> Entity:
    """Return the one user of this world with a name or id. Raises NotFound.

    If the model passes an id that the author did not write, each name the author wrote must be unambiguous.
    """
    name = strip_prefix(name)
    person = only_match(name, await _find_members(turn, name))
    own_text = turn.own_text
    if not contains_words(own_text, name):
        for title in entity_titles(person):
            if contains_words(own_text, title):
                only_match(title, await _find_members(turn, title))
    return person


async def _find_members(turn: Turn, name: str) -> list[Entity]:
    members = []
    for person in await find_people(turn, name, turn.world.platform):
        rooms = await turn.agent.store.worlds.rooms_of(person.id)
        if any(room.world_id == turn.world.id for room in rooms):
            members.append(person)
    return members


def only_match(name: str, people: Sequence[Entity]) -> Entity:
    """Return the only user of the list. Raises NotFound if there is none or more than one."""
    if not people:
        raise NotFound(f"no known user has exactly the name {quote_name(name)}")
    if len(people) > 1:
        choice = ", ".join(describe_entity(entity) for entity in people[:MAX_LISTED])
        raise NotFound(f"{quote_name(name)} may be {choice}: ask which one is meant")
    return people[0]


async def find_rooms(turn: Turn, name: str) -> list[Room]:
    """Return the rooms with a name or id in the author's worlds; of private rooms only the author's own."""
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
    """Return a name without the leading @ or # of platforms."""
    return name.strip().removeprefix("@").removeprefix("#").strip()


def quote_name(name: str) -> str:
    """Return a sanitized name in quotes."""
    return f"“{sanitize_name(name)}”"


def direct_rooms(rooms: Iterable[Room], platforms: Collection[str]) -> list[Room]:
    """Return the direct-message rooms on these platforms, in the given order."""
    return [room for room in rooms if room.type is ChannelType.DM and room.platform in platforms]


def _parse_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
