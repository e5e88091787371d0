"""What a platform hands over: one event, with the rows that must exist before it can be stored."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.domain.ids import new_id
from bot.domain.ledger import EventKey, Outcome, Receipt
from bot.domain.memory import Memory
from bot.domain.people import Attendance, Entity
from bot.domain.places import Room, World

TOO_OLD = timedelta(minutes=15)
BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came in.

    The memory's id is the adapter's proposal: a redelivered message keeps the id it was first
    stored under. One that was fetched from the platform's history `is_backfill`: if it is old, it is
    kept and not answered. `notes` say what had to be done to it before it could be kept.
    """

    key: EventKey
    world: World
    room: Room
    author: Entity
    message: Memory
    is_backfill: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Received:
    """What the books say of an event that was handed in, or is taken up again.

    `arrival` has the rows as they are kept, with the names and roles known from before; None where the
    event was known already, or its message is gone. `is_ours` tells whether this process works on the
    room: where several share a database, another one may.
    """

    receipt: Receipt
    arrival: Arrival | None = None
    attendance: Attendance = Attendance.DEFAULT
    is_new: bool = False
    is_ours: bool = True


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a platform's stream has been read; `value` is the platform's own word for the place."""

    platform: str
    account: str
    name: str
    value: str


def first_claim(arrival: Arrival, at: datetime) -> Receipt:
    """Make the receipt of a new event, claimed by the turn that is to answer it.

    What was said long ago and only now fetched from the history is not answered any more.
    """
    receipt = Receipt(
        new_id(),
        arrival.key,
        arrival.room.id,
        arrival.author.id,
        arrival.message.id,
        received_at=at,
        outcome=Outcome.CLAIMED,
        turn_id=new_id(),
        attempts=1,
        claimed_at=at,
        notes=arrival.notes,
    )
    if not arrival.is_backfill or at - arrival.message.created_at <= TOO_OLD:
        return receipt
    return replace(
        receipt,
        outcome=Outcome.EXPIRED,
        reason="it was said while the bot was away, and is too old to be answered",
        rule=BACKFILL,
        closed_at=at,
    )
