"""What an adapter hands in: messages, commands, choices, membership updates, stream cursors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from bot.domain.content import Attachment, Choice, Content
from bot.domain.environment import Entity, ParticipantState, Role, Room, World
from bot.domain.ids import new_id
from bot.domain.ledger import EventKey, Outcome, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind

MAX_BACKFILL_AGE = timedelta(minutes=15)
MAX_UNREADABLE_EVENTS = 1_000  # stored of an agent; each has a few kilobytes
MAX_ROOMS, MAX_ENTITIES = 2_000, 10_000
RESPONSE_SOURCE = "command"  # of the contents of the deliveries of a response to a command
MEMBERSHIP_EVENT_TTL = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message with the world, room and author rows it needs.

    The memory's id is the adapter's proposal: a redelivered message keeps the id it was first stored under.
    With `is_backfill` the message was fetched from the platform's history: if it is old, it is stored but not
    answered. `notes` say how it was changed before it could be stored. With `is_held` it is stored unclaimed:
    the inbox starts on it later. With `is_regeneration` it is an edit that asks for a new answer, also where its
    content is unchanged.
    """

    key: EventKey
    world: World
    room: Room
    author: Entity
    message: Memory
    is_backfill: bool = False
    notes: tuple[str, ...] = ()
    is_held: bool = False
    is_regeneration: bool = False

    @classmethod
    def build(
        cls,
        world: World,
        room: Room,
        author: Entity,
        content: Content,
        *,
        created_at: datetime,
        message_id: str,
        event_id: str = "",
        revision: int = 0,
        memory_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        is_backfill: bool = False,
    ) -> Self:
        """Return the message of an author in a room; its platform and account are those of the room.

        `message_id` is the platform's id of the message, `event_id` that of the event if it is another one.
        """
        memory = Memory(
            id=memory_id or new_id(),
            kind=MemoryKind.MESSAGE,
            entity_id=author.id,
            room_id=room.id,
            world_id=world.id,
            content=content,
            created_at=created_at,
            external_id=message_id,
            metadata=metadata or {},
        )
        key = EventKey(room.platform, room.account, event_id or message_id, room.id, message_id, revision)
        return cls(key, world, room, author, memory, is_backfill)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """What the ledger knows about a submitted or resumed event.

    `inbound` has the rows as stored, with the names and roles known before; None if the event was known
    already or its message is gone. Where processes share the database, `is_room_owned` is False if the event waits
    until the owner of its room claims it, behind the earlier ones; `is_room_free` is True if the room had no owner.
    """

    receipt: Receipt
    inbound: InboundMessage | None = None
    participant_state: ParticipantState = ParticipantState.DEFAULT
    is_new: bool = False
    is_room_owned: bool = True
    is_room_free: bool = False


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """The read position of an external stream; `value` is the platform's own notation."""

    platform: str
    account: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnreadableEvent:
    """An event of a platform that the adapter could not read, recorded for the operator.

    `event_id` identifies it, so that it is recorded once however often it is delivered. `cause` is the error,
    `raw` the beginning of what the platform sent, as JSON without secrets.
    """

    platform: str
    account: str
    event_id: str
    received_at: datetime
    cause: str
    raw: str


def new_receipt(inbound: InboundMessage, now: datetime) -> Receipt:
    """Return the receipt of a new event, claimed by the turn that will answer it unless the event is held.

    A message from the history that is older than 15 minutes is closed as expired.
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
    if inbound.is_held:
        receipt = replace(receipt, outcome=Outcome.RECEIVED, turn_id=None, attempts=0, claimed_at=None)
    if not inbound.is_backfill or now - inbound.message.created_at <= MAX_BACKFILL_AGE:
        return receipt
    return replace(
        receipt,
        outcome=Outcome.EXPIRED,
        reason="it was sent while the bot was offline, and is too old to be answered",
        rule=Rule.BACKFILL,
        closed_at=now,
    )


@dataclass(frozen=True, slots=True)
class CommandInvocation:
    """A command with its sender and its arguments: by name, or as the `text` after the command.

    `event_id` is the platform's id of the event: a repeated one does nothing. `message_id` is the platform's
    id of the message that contained the command, if any.
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
    """The value of a pressed button, and who pressed it."""

    world: World
    room: Room
    author: Entity
    value: str
    event_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CommandResponse:
    """Text and choices returned to the sender of a command; with `is_ephemeral` visible to the sender only,
    where the platform supports that.

    With a `receipt` there is nothing to show yet: the answer follows as a normal message. `attachments` have the bytes
    of files, only for adapters that declare `sends_response_files`; where a command is repeated they are missing.
    With `is_repeat` the command was delivered again, and what it shows was sent before.
    """

    text: str = ""
    is_ephemeral: bool = True
    choices: tuple[Choice, ...] = ()
    receipt: Receipt | None = None
    attachments: tuple[Attachment, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """Where the outbox sends the response to a command or to a pressed button.

    `address` is the target of its deliveries, `reply_to` the platform's id of the message that it answers. `split`
    returns the parts of a response, none for one that the caller shows itself; files are always left to the caller.
    """

    address: str
    split: Callable[[CommandResponse], Sequence[Content]]
    reply_to: str = ""


@dataclass(frozen=True, slots=True)
class MembershipUpdate:
    """Reported members and rooms of one world.

    `event_id` is the platform's id of the event, if any; a repeated event changes nothing. With `is_leaving`
    the entities have left all rooms of the world.
    """

    world: World
    rooms: tuple[Room, ...] = ()
    entities: tuple[Entity, ...] = ()
    event_id: str = ""
    is_leaving: bool = False

    @property
    def event_key(self) -> str:
        """The key under which the event is stored; empty without an `event_id`."""
        return f"news:{self.world.platform}:{self.world.id}:{self.event_id}" if self.event_id else ""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What an update changed in the store: the world as it was before, new rooms, new and changed entities.

    `is_new` is False for a repeated event.
    """

    is_new: bool = True
    previous_world: World | None = None
    new_room_ids: frozenset[UUID] = frozenset()
    new_entity_ids: frozenset[UUID] = frozenset()
    changed_entity_ids: frozenset[UUID] = frozenset()

    def has_changed(self, entity: Entity, world: World) -> bool:
        """Return whether the stored data or the role of an entity changed."""
        previous_roles = self.previous_world.roles if self.previous_world is not None else {}
        role = world.roles.get(entity.id)
        previous_role = previous_roles.get(entity.id, Role.MEMBER)
        return entity.id in self.changed_entity_ids or (role is not None and role is not previous_role)


def roles_after_leaving(world: World, entities: Iterable[Entity]) -> dict[UUID, Role]:
    """Return the platform roles of a world after these entities have left it."""
    return {**world.roles, **{entity.id: Role.MEMBER for entity in entities}}
