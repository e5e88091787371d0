"""What an adapter hands in: messages, commands, choices, membership updates, stream cursors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from bot.domain.content import Choice
from bot.domain.environment import Entity, ParticipantState, Role, Room, World
from bot.domain.ids import new_id
from bot.domain.ledger import EventKey, Outcome, Receipt
from bot.domain.memory import Memory

MAX_BACKFILL_AGE = timedelta(minutes=15)
BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class InboundMessage:
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
class StoredEvent:
    """What the books say of an event that was handed in, or is taken up again.

    `arrival` has the rows as they are kept, with the names and roles known from before; None where the
    event was known already, or its message is gone. `is_ours` tells whether this process works on the
    room: where several share a database, another one may.
    """

    receipt: Receipt
    inbound: InboundMessage | None = None
    participant_state: ParticipantState = ParticipantState.DEFAULT
    is_new: bool = False
    is_room_owned: bool = True


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """How far a platform's stream has been read; `value` is the platform's own word for the place."""

    platform: str
    account: str
    name: str
    value: str


def new_receipt(inbound: InboundMessage, now: datetime) -> Receipt:
    """Make the receipt of a new event, claimed by the turn that is to answer it.

    What was said long ago and only now fetched from the history is not answered any more.
    """
    receipt = Receipt(
        new_id(),
        inbound.key,
        inbound.room.id,
        inbound.author.id,
        inbound.message.id,
        received_at=now,
        outcome=Outcome.CLAIMED,
        turn_id=new_id(),
        attempts=1,
        claimed_at=now,
        notes=inbound.notes,
    )
    if not inbound.is_backfill or now - inbound.message.created_at <= MAX_BACKFILL_AGE:
        return receipt
    return replace(
        receipt,
        outcome=Outcome.EXPIRED,
        reason="it was said while the bot was away, and is too old to be answered",
        rule=BACKFILL,
        closed_at=now,
    )


@dataclass(frozen=True, slots=True)
class CommandInvocation:
    """A command that somebody gave, with its arguments by name, or as the text that stood behind it.

    `event_id` is the platform's own id of what happened: given again, it does nothing more. `message_id` is
    what the platform calls the message in which it was given, where there is one.
    """

    name: str
    world: World
    room: Room
    author: Entity
    event_id: str
    created_at: datetime
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class ChoiceSelection:
    """A choice's value that came back from a platform, and from whom."""

    world: World
    room: Room
    author: Entity
    value: str
    event_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CommandResponse:
    """What to show whoever asked; to nobody else, where it `is_private` and the platform can.

    With a `receipt` there is nothing to show yet: the answer comes as a message like any other.
    """

    text: str = ""
    is_ephemeral: bool = True
    choices: tuple[Choice, ...] = ()
    receipt: Receipt | None = None


MAX_ROOMS, MAX_ENTITIES = 2_000, 10_000
MEMBERSHIP_EVENT_TTL = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class MembershipUpdate:
    """What is told of one world: some of its rooms, some of its people.

    `event_id` is the platform's own name for what has happened, where it has one; whoever is told of the
    same event again changes nothing. With `is_leaving` these people are in none of the world's rooms.
    """

    world: World
    rooms: tuple[Room, ...] = ()
    entities: tuple[Entity, ...] = ()
    event_id: str = ""
    is_leaving: bool = False

    @property
    def event_key(self) -> str:
        """The name under which the event is remembered; blank where it has none."""
        return f"news:{self.world.platform}:{self.world.id}:{self.event_id}" if self.event_id else ""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What a notice has changed: the world as it was kept before, and whoever was new or reads differently.

    Not `is_new` is an event that was told before.
    """

    is_new: bool = True
    previous_world: World | None = None
    new_room_ids: frozenset[UUID] = frozenset()
    new_entity_ids: frozenset[UUID] = frozenset()
    changed_entity_ids: frozenset[UUID] = frozenset()

    def has_changed(self, entity: Entity, world: World) -> bool:
        """Tell whether what is kept of somebody, or their role, is another one now."""
        previous_roles = self.previous_world.roles if self.previous_world is not None else {}
        role = world.roles.get(entity.id)
        previous_role = previous_roles.get(entity.id, Role.MEMBER)
        return entity.id in self.changed_entity_ids or (role is not None and role is not previous_role)


def roles_after_leaving(world: World, entities: Iterable[Entity]) -> dict[UUID, Role]:
    """Give the roles that a world's platform knows once these people have left it."""
    return {**world.roles, **{entity.id: Role.MEMBER for entity in entities}}
