"""What platforms change afterwards, as a contract of the store."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from bot.domain.edits import Forgotten, Reaction, Removed, Revised
from bot.domain.environment import Room, World
from bot.domain.inbound import Arrival, Notice, Noticed
from bot.domain.ledger import Delivery
from bot.domain.memory import Memory


class ChangeStore(Protocol):
    """What platforms change afterwards: each change moves all that it concerns; repeated, it moves no more.

    A part that is on its way already is never held back.
    """

    async def revise(self, arrival: Arrival, at: datetime, *, is_answering: bool = False) -> Revised:
        """Keep an edit of a message, as `weighed` decides; of an unknown message it is an event like any."""

    async def remove(self, room_id: UUID, message_ids: Collection[str], at: datetime) -> Removed:
        """Forget messages that a platform calls so, ours included, and whatever was drawn from them alone.

        Their open receipts are cancelled, and so are the waiting parts of replies to nothing else.
        """

    async def clear(self, room_id: UUID, at: datetime) -> Removed:
        """Forget all that was said in a room and was drawn from it, and cancel what is open there."""

    async def abandon(self, room_ids: Collection[UUID], at: datetime, reason: str) -> Removed:
        """Cancel what is open in rooms, and forget nothing."""

    async def react(self, reaction: Reaction) -> Memory | None:
        """Keep a sign on a message; None where it is known already."""

    async def notice(self, notice: Notice, at: datetime) -> Noticed:
        """Keep what is told of a world: however much it is, nobody becomes active by it, nor any room.

        One whose event is known changes nothing. Events are known for thirty days.
        """

    async def forget(self, entity_id: UUID, at: datetime) -> Forgotten:
        """Delete what is kept of somebody, answers to them and what was drawn from either.

        Left are receipts without a word in them, roles, and a component of the kind FORGOTTEN.
        """

    async def move(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        """Have a room go on as another one: what was said there and what is still to leave go along.

        Receipts stay with the room in which their messages were counted. Gives the parts to leave.
        """
