"""Real objects for tests, with everything filled in that a test does not care about."""

import time
from datetime import datetime

from bot.agent import Agent
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Role, Room, World
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import Arrival
from bot.domain.ledger import EventKey, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.turn import Input, Turn


def make_arrival(
    text: str | Content,
    *,
    at: datetime,
    author: str = "Alice",
    room: str = "lobby",
    kind: ChannelType = ChannelType.DM,
    role: Role = Role.MEMBER,
    message_id: str = "",
    is_bot: bool = False,
    platform: str = "test",
) -> Arrival:
    """Make a message as an adapter would hand it over; the same names give the same people and places."""
    content = Content(text=text, source=platform) if isinstance(text, str) else text
    person = Entity(derived_id(platform, "entity", author), platform, author, (author,), is_bot)
    world = World(derived_id(platform, "world"), platform, "world", "The World", {person.id: role})
    place = Room(derived_id(platform, "room", room), world.id, kind, platform, room, "account", room)
    external_id = message_id or new_id().hex
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=person.id,
        room_id=place.id,
        world_id=world.id,
        content=content,
        created_at=at,
        external_id=external_id,
    )
    key = EventKey(platform, "account", f"event-{external_id}", place.id, external_id)
    return Arrival(key, world, place, person, message)


def make_turn(agent: Agent, text: str | Content = "Hello", **details: object) -> Turn:
    """Make a turn about one message, for calling an action, a provider or an evaluator by hand.

    `details` are those of `make_arrival`.
    """
    arrival = make_arrival(text, at=agent.clock(), **details)  # type: ignore[arg-type]  # passed on as they are
    receipt = Receipt(
        new_id(), arrival.key, arrival.room.id, arrival.author.id, arrival.message.id, agent.clock()
    )
    one = Input(receipt, arrival.message, arrival.author, time.monotonic(), lambda receipt: None)
    actions = agent.catalog.actions
    return Turn(agent, new_id(), arrival.room, arrival.world, [one], actions=actions)
