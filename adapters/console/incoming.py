"""From a line typed in a terminal to an arrival; pure."""

from datetime import datetime
from uuid import UUID

from bot import ChannelType, Content, Entity, Memory, MemoryKind, Role, Room, World, derived_id, new_id
from bot.platform import Arrival, Asked, EventKey
from bot.text import clean_name

PLATFORM = "console"


def message_received(text: str, *, agent_id: UUID, user: str, message_id: UUID, at: datetime) -> Arrival:
    """Make the arrival of one line.

    Whoever sits at the terminal runs the bot, and so owns its world. The room is the same from one
    talk to the next, so that a stored conversation goes on.
    """
    account = str(agent_id)
    name = clean_name(user)
    author = Entity(derived_id(PLATFORM, "entity", user), PLATFORM, user, (name,))
    world = World(
        derived_id(PLATFORM, "world", account), PLATFORM, account, "Terminal", {author.id: Role.OWNER}
    )
    room = Room(
        id=derived_id(PLATFORM, "room", account, user),
        world_id=world.id,
        type=ChannelType.DM,
        platform=PLATFORM,
        external_id=user,
        account=account,
        name=f"Terminal of {name}",
    )
    message = Memory(
        id=message_id,
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=room.id,
        world_id=world.id,
        content=Content(text=text, source=PLATFORM),
        created_at=at,
        external_id=str(message_id),
    )
    key = EventKey(PLATFORM, account, str(message_id), room.id, str(message_id))
    return Arrival(key, world, room, author, message)


def command_given(line: str, *, agent_id: UUID, user: str, at: datetime) -> Asked:
    """Make what is asked of one line that begins with a slash."""
    name, _, text = line[1:].partition(" ")
    place = message_received("", agent_id=agent_id, user=user, message_id=new_id(), at=at)
    return Asked(name, place.world, place.room, place.author, place.key.event_id, at, text=text)
