"""Edits, deletions, reactions, erasure: pure decisions shared by all stores.

They are values without side effects, so that every store decides alike.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from bot.domain.content import Content
from bot.domain.environment import Component, Entity, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage, StoredEvent, new_receipt
from bot.domain.ledger import Delivery, DeliveryState, EditState, Outcome, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind

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
    superseded.
    """

    event: StoredEvent
    previous: Memory | None = None
    superseded: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What a deletion removed and cancelled; `message_ids` may name fewer messages than `message_count`."""

    message_count: int = 0
    message_ids: tuple[UUID, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    deliveries: tuple[Delivery, ...] = ()


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
    if message is None:
        return EditPlan(cancel_receipt(receipt, now, "its message was removed"))
    if edit.key.revision < latest.key.revision:
        return EditPlan(_close_receipt(receipt, Outcome.SUPERSEDED, now, "a later edit arrived before it"))
    open_receipts = [other for other in receipts if not other.outcome.is_final]
    is_changed = _visible_content(message) != _visible_content(edit.message)
    if not is_changed and (open_receipts or not edit.is_regeneration):
        return EditPlan(
            _close_receipt(receipt, Outcome.IGNORED, now, "neither its text nor its attachments have changed")
        )
    is_normal = all(other.edit_state is EditState.NORMAL for other in open_receipts)
    if is_answering or not open_receipts or not is_normal:
        was_ignored = all(other.outcome is Outcome.IGNORED for other in receipts)
        late = Rule.EDITED_IGNORED if was_ignored else Rule.EDITED_LATE
        receipt = replace(receipt, rule=Rule.REGENERATED if edit.is_regeneration else late)
    reason = "its message was edited before it was answered"
    superseded = [_close_receipt(other, Outcome.SUPERSEDED, now, reason) for other in open_receipts if not is_answering]
    return EditPlan(receipt, _apply_edit(message, edit.message, now) if is_changed else message, tuple(superseded))


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


def remove_quotation(message: Memory) -> Memory:
    """Return the message without the words to which it replies."""
    return replace(message, content=replace(message.content, quotation=None))


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
        delivery.memory_id for delivery in deliveries if delivery.external_id and delivery.external_id in message_ids
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
