"""What a platform hands over: one event, with the rows that must exist before it can be stored."""

from dataclasses import dataclass

from bot.domain.ledger import EventKey
from bot.domain.memory import Memory
from bot.domain.people import Entity
from bot.domain.places import Room, World


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came in.

    The memory's id is the adapter's proposal: a redelivered message keeps the id it was first
    stored under.
    """

    key: EventKey
    world: World
    room: Room
    author: Entity
    message: Memory
