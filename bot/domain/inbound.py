"""What an adapter hands in: messages, commands, choices, membership updates, stream cursors.

Edits, deletions, reactions, erasure: pure decisions shared by all stores.

They are values without side effects, so that every store decides alike.

`ErasedWords`: an erased person's words, to be removed from what the bot wrote to others.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from bot.domain.content import Attachment, Choice, Content
from bot.domain.environment import Component, Entity, ParticipantState, Role, Room, World
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import (
    Delivery,
    DeliveryKind,
    DeliveryState,
    EditState,
    EventKey,
    EventOrigin,
    Outcome,
    Receipt,
    Rule,
)
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal

MAX_BACKFILL_AGE = timedelta(minutes=15)
MAX_UNREADABLE_EVENTS = 1_000  # stored of an agent; each has a few kilobytes
MAX_ROOMS, MAX_ENTITIES = 2_000, 10_000
NOT_READ_REASON = "its author is not read"
RESPONSE_SOURCE = "command"  # of the contents of the deliveries of a response to a command
MEMBERSHIP_EVENT_TTL = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message with the world, room and author rows it needs.

    The memory's id is the adapter's proposal: a redelivered message keeps the id it was first stored under.
    With `is_backfill` the message was fetched from the platform's history: if it is old, it is stored but not
    answered. `notes` say how it was changed before it could be stored. With `is_held` it is stored unclaimed:
    the inbox starts on it later. With `is_regeneration` it is an edit that asks for a new answer, also where its
    content is unchanged. With `is_hidden` its author is not read: its content is a placeholder, and it has its outcome.
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
    origin: EventOrigin = EventOrigin.PLATFORM
    is_hidden: bool = False

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

    A message from the history that is older than 15 minutes is closed as expired, one of an author who is not read as
    ignored.
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
        origin=inbound.origin,
    )
    if inbound.is_hidden:
        return replace(receipt, outcome=Outcome.IGNORED, reason=NOT_READ_REASON, rule=Rule.NOT_READ, closed_at=now)
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
    With `needs_answer` the platform waits for an answer to each command, so every refusal has a text; else only the
    first of those for too many commands has one.
    """

    address: str
    split: Callable[[CommandResponse], Sequence[Content]]
    reply_to: str = ""
    needs_answer: bool = False


@dataclass(frozen=True, slots=True)
class InlineAnswer:
    """The answer to an inline question; the platform says by its `id` that it was sent."""

    id: str
    text: str


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


MAX_REVISIONS = 10
MAX_SCANNED_ROWS = 200  # receipts or deliveries of a room that are searched where no index helps
REVISIONS_KEY = "revisions"  # in the metadata of a message: its earlier texts
INCOMPLETE_KEY = "incomplete"  # in the metadata of a reply that was stopped while it was written
ERASURE_COMPONENT = "forgotten"
_CUSTOM_EMOJI = re.compile(r"<a?:[^:>]*:(\d+)>")
UNCLEAR_STATES = (DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Reaction:
    """A reaction to a message; `message_id` is the platform's id of that message."""

    world: World
    room: Room
    author: Entity
    message_id: str
    emoji: str
    created_at: datetime

    def to_memory(self, message_id: UUID | None) -> Memory:
        """Return the reaction as a memory; the same person, message and emoji always give the same id."""
        return Memory(
            id=derived_id("reaction", self.room.id, self.message_id, self.author.id, self.emoji),
            kind=MemoryKind.REACTION,
            entity_id=self.author.id,
            room_id=self.room.id,
            world_id=self.world.id,
            content=Content(text=self.emoji, source=self.room.platform, in_reply_to=message_id),
            created_at=self.created_at,
            external_id=self.message_id,
            source_id=message_id,
        )


def is_same_emoji(first: str, second: str) -> bool:
    """Return whether two reactions have the same emoji.

    A custom one of Discord is known by its id: a removal tells neither whether it is animated nor, always, its name.
    """
    custom = [match and match[1] for match in map(_CUSTOM_EMOJI.fullmatch, (first, second))]
    return custom[0] == custom[1] if all(custom) else first == second


@dataclass(frozen=True, slots=True)
class EditResult:
    """What storing an edit did: its event, the message before a change of text, and the receipts it
    superseded. `proposals` are those that it withdrew.
    """

    event: StoredEvent
    previous: Memory | None = None
    superseded: tuple[Receipt, ...] = ()
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What a deletion removed, cancelled and withdrew; `message_ids` may name fewer messages than `message_count`."""

    message_count: int = 0
    message_ids: tuple[UUID, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """How many items of a person were deleted, by type, and the open work that was cancelled.

    `costs` is the number of sums that no longer name the person; what was spent stays.
    """

    messages: int = 0
    replies: int = 0
    derived: int = 0
    components: int = 0
    relationships: int = 0
    tasks: int = 0
    cancelled: DeletionResult = DeletionResult()
    costs: int = 0

    @property
    def total(self) -> int:
        """The number of deleted items."""
        return self.messages + self.replies + self.derived + self.components + self.relationships + self.tasks


@dataclass(frozen=True, slots=True)
class EditPlan:
    """What to store for an edit: its receipt, the changed message, and the receipts it supersedes."""

    receipt: Receipt
    message: Memory | None = None
    superseded: tuple[Receipt, ...] = ()


def plan_edit(
    edit: InboundMessage, now: datetime, receipts: Sequence[Receipt], message: Memory | None, *, is_answering: bool
) -> EditPlan:
    """Return the receipt to store for an edit and the receipts it supersedes, given those of all revisions.

    While the message waits for its answer, the edit replaces it. If it already has its outcome, or
    `is_answering` says that its answer is being written, the receipt is marked as a late edit, as that of a message
    that was ignored, or as one that asks for a new answer.
    """
    latest = max(receipts, key=lambda receipt: receipt.key.revision)
    receipt = replace(new_receipt(edit, now), author_id=latest.author_id, memory_id=latest.memory_id)
    if edit.is_hidden:
        return EditPlan(receipt)
    if message is None:
        return EditPlan(cancel_receipt(receipt, now, "its message was removed"))
    if edit.key.revision < latest.key.revision:
        return EditPlan(_close_receipt(receipt, Outcome.SUPERSEDED, now, "a later edit arrived before it"))
    open_receipts = [other for other in receipts if not other.outcome.is_final or is_waiting_draft(other)]
    is_changed = _visible_content(message) != _visible_content(edit.message)
    if not is_changed and (open_receipts or not edit.is_regeneration):
        return EditPlan(
            _close_receipt(receipt, Outcome.IGNORED, now, "neither its text nor its attachments have changed")
        )
    is_normal = all(other.edit_state is EditState.NORMAL for other in open_receipts)
    if is_answering or not open_receipts or not is_normal:
        was_ignored = all(other.outcome is Outcome.IGNORED for other in receipts)
        late = EditState.IGNORED if was_ignored else EditState.LATE
        receipt = replace(receipt, edit_state=EditState.REGENERATED if edit.is_regeneration else late)
    reason = "its message was edited before it was answered"
    superseded = [_close_receipt(other, Outcome.SUPERSEDED, now, reason) for other in open_receipts if not is_answering]
    return EditPlan(receipt, _apply_edit(message, edit.message, now) if is_changed else message, tuple(superseded))


def is_waiting_draft(receipt: Receipt) -> bool:
    """Return whether the answer to a message waits for a person's decision."""
    return (receipt.outcome, receipt.rule) == (Outcome.PARKED, Rule.DRAFT)


def list_revisions(message: Memory, now: datetime) -> list[dict[str, Any]]:
    """Return the last ten earlier texts of a message whose text is replaced now, each with the time of its end."""
    revision: dict[str, Any] = {"text": message.content.text, "until": now.isoformat()}
    if INCOMPLETE_KEY in message.metadata:
        revision[INCOMPLETE_KEY] = True
    return [*message.metadata.get(REVISIONS_KEY, ()), revision][-MAX_REVISIONS:]


@dataclass(frozen=True, slots=True)
class MessageVersion:
    """One text of a message that was edited or answered again; `at` is when it was written."""

    id: UUID
    at: datetime
    text: str
    is_current: bool


def list_versions(message: Memory) -> list[MessageVersion]:
    """Return the versions of a message, oldest first, the current one last; empty if it has only one."""
    revisions = message.metadata.get(REVISIONS_KEY, ())
    if not revisions:
        return []
    starts = [message.created_at, *(datetime.fromisoformat(revision["until"]) for revision in revisions)]
    texts = [*(revision["text"] for revision in revisions), message.content.text]
    return [
        MessageVersion(derived_id(message.id, "version", at.isoformat()), at, text, number == len(revisions))
        for number, (at, text) in enumerate(zip(starts, texts, strict=True))
    ]


def is_complete(message: Memory) -> bool:
    """Return whether a message is whole: not the beginning of a reply that was stopped."""
    return INCOMPLETE_KEY not in message.metadata


def cancel_receipt(receipt: Receipt, now: datetime, reason: str) -> Receipt:
    """Return the receipt closed as cancelled, for a message that can no longer be answered."""
    return replace(receipt, outcome=Outcome.CANCELLED, reason=reason, rule=Rule.REMOVED, closed_at=now)


def redact_receipt(receipt: Receipt, now: datetime) -> Receipt:
    """Return the receipt without any text; what identifies the message and its costs stay."""
    reason = "its author had their data deleted"
    if not receipt.outcome.is_final:
        receipt = replace(receipt, outcome=Outcome.CANCELLED, closed_at=now, is_evaluated=True)
    return replace(receipt, reason=reason, rule=Rule.ERASED, notes=(), is_evaluated=True)


def redact_delivery(delivery: Delivery) -> Delivery:
    """Return the delivery without content and without references to other messages."""
    return replace(delivery, content=Content(), replaces_external_id="", draft_id="")


def anonymize_entity(entity: Entity) -> Entity:
    """Return the entity with id and platform only; names and metadata are removed."""
    return replace(entity, external_id="", names=(), metadata={})


def anonymize_private_chat(world: World, room: Room) -> tuple[World, Room]:
    """Return a private chat without the name of its person, or a title that they made; so too its own world."""
    if world.external_id == room.external_id:  # the world is the chat itself
        name = "" if world.name == room.name else world.name
        world = replace(world, name=name, metadata={})
    return world, replace(room, name="")


def opt_out_component(entity_id: UUID, now: datetime) -> Component:
    """Return the component that marks a person whose data was erased."""
    return Component(
        derived_id("forgotten", entity_id), entity_id, ERASURE_COMPONENT, {"at": now.isoformat()}, created_at=now
    )


def cancel_unsent(deliveries: Iterable[Delivery], reason: str) -> list[Delivery]:
    """Return as cancelled what waits, and replies of unknown outcome, which would be repeated or stay held.

    One that is being sent just now is among the latter: its sender stores whether it arrived.
    """
    return [replace(item, state=DeliveryState.CANCELLED, cause=reason) for item in deliveries if _is_unsent(item)]


def _is_unsent(delivery: Delivery) -> bool:
    if delivery.state not in UNCLEAR_STATES:
        return delivery.state is DeliveryState.PENDING
    content = delivery.content  # what removes a message has none; a draft is removed by its outbox
    return delivery.draft_id != delivery.id and bool(content.text or content.attachments or content.choices)


def orphaned_deliveries(
    deliveries: Iterable[Delivery], deleted: Sequence[Receipt], receipts: Iterable[Receipt]
) -> list[Delivery]:
    """Return the deliveries of turns that answer no message but the deleted ones."""
    deleted_turns = {receipt.turn_id for receipt in deleted}
    deleted_memories = {receipt.memory_id for receipt in deleted}
    answered_turns = {
        other.turn_id
        for other in receipts
        if other.memory_id not in deleted_memories and other.outcome is not Outcome.CANCELLED
    }
    return [delivery for delivery in deliveries if delivery.turn_id in deleted_turns - answered_turns]


def messages_by_external_id(deliveries: Iterable[Delivery], message_ids: Collection[str]) -> set[UUID]:
    """Return the ids of our messages that have one of these ids on the platform."""
    return {
        delivery.memory_id
        for delivery in deliveries
        # a thread may have the id of the message at which it was opened
        if delivery.external_id and delivery.external_id in message_ids and delivery.kind is not DeliveryKind.THREAD
    }


def _close_receipt(receipt: Receipt, outcome: Outcome, now: datetime, reason: str) -> Receipt:
    superseded_by = receipt.memory_id if outcome is Outcome.SUPERSEDED else None
    return replace(
        receipt, outcome=outcome, reason=reason, rule=Rule.EDITED, superseded_by=superseded_by, closed_at=now
    )


def _visible_content(message: Memory) -> tuple[object, ...]:
    content = message.content
    return (content.text, tuple((attachment.id, attachment.url) for attachment in content.attachments))


def _apply_edit(message: Memory, edit: Memory, now: datetime) -> Memory:
    """Return the message with its new text; the last ten earlier texts stay in its metadata."""
    metadata = {**message.metadata, **edit.metadata, REVISIONS_KEY: list_revisions(message, now)}
    content = replace(edit.content, quotation=message.content.quotation)  # which may have been removed since
    external_id = edit.external_id  # an edited post on X has another id
    return replace(
        message, content=content, external_id=external_id, metadata=metadata, embedding=None, embedding_model=""
    )


REMOVED_WORDS = "[…]"
RUN_WORDS, MIN_RUN_LENGTH = 4, 20  # a shorter run, such as "how are you", may be anybody's words
MIN_CODE_LENGTH = 6
MAX_RUNS = 500_000
_WORD = re.compile(r"\w(?:\S*\w)?")


class ErasedWords:
    """What a person wrote: four words in a row, and single ones with a digit, such as numbers, codes and addresses.

    Of a person who wrote more than half a million words the rest is not compared.
    """

    def __init__(self) -> None:
        self._runs: set[int] = set()
        self._codes: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._runs or self._codes)

    def add(self, text: str) -> None:
        """Add what the person wrote."""
        words = [match[0].casefold() for match in _WORD.finditer(text)]
        if len(self._runs) < MAX_RUNS:
            self._runs.update(_hash_runs(words))
            self._codes.update(word for word in words if _is_code(word))

    def remove_from(self, text: str) -> str:
        """Return a text without the person's words; the same text if it has none."""
        matches = list(_WORD.finditer(text))
        words = [match[0].casefold() for match in matches]
        spans = [match.span() for match, word in zip(matches, words, strict=True) if word in self._codes]
        start = end = -1
        for index, run in enumerate(_hash_runs(words)):
            if run not in self._runs:
                continue
            first, last = matches[index].start(), matches[index + RUN_WORDS - 1].end()
            if first >= end:
                spans.append((start, end))
                start = first
            end = last
        spans.append((start, end))
        for first, last in _merge([span for span in spans if _is_enough(text, *span, self._codes)])[::-1]:
            text = f"{text[:first]}{REMOVED_WORDS}{text[last:]}"
        return text

    def remove_from_reply(self, reply: Memory) -> Memory:
        """Return a reply without the person's words and without its earlier texts; the same one if it has none."""
        text = self.remove_from(reply.content.text)
        revisions = reply.metadata.get(REVISIONS_KEY, ())
        if text == reply.content.text and all(self.remove_from(item["text"]) == item["text"] for item in revisions):
            return reply
        metadata = {name: value for name, value in reply.metadata.items() if name != REVISIONS_KEY}
        return replace(
            reply, content=replace(reply.content, text=text), metadata=metadata, embedding=None, embedding_model=""
        )


def _is_code(word: str) -> bool:
    return len(word) >= MIN_CODE_LENGTH and (any(map(str.isdigit, word)) or "@" in word)


def _hash_runs(words: list[str]) -> list[int]:
    return [hash(tuple(words[index : index + RUN_WORDS])) for index in range(len(words) - RUN_WORDS + 1)]


def _is_enough(text: str, first: int, last: int, codes: set[str]) -> bool:
    return last - first >= MIN_RUN_LENGTH or text[first:last].casefold() in codes


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
