"""What a platform says afterwards: a message was edited or taken back, or somebody put a sign on it.

What follows from a change is decided here, as values, so that every store decides alike.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from bot.domain.content import Content
from bot.domain.environment import Component, Entity, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage, StoredEvent, new_receipt
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind

MAX_REVISIONS = 10
MAX_SCANNED_ROWS = (
    200  # as many of a room's receipts or parts are looked through, where no index leads to them
)
REVISIONS_KEY = "revisions"
EDITED, LATE_EDIT, REMOVED = "edited", "edited late", "removed"
FORGOTTEN = "forgotten"  # the kind of component that says so, and the rule on receipts


@dataclass(frozen=True, slots=True)
class Reaction:
    """Somebody's sign on a message; `message_id` is what the platform calls the message."""

    world: World
    room: Room
    author: Entity
    message_id: str
    emoji: str
    created_at: datetime

    def to_memory(self, message_id: UUID | None) -> Memory:
        """Make the memory of it; the same sign of the same person on the same message is the same one."""
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


@dataclass(frozen=True, slots=True)
class EditResult:
    """What the books say of an edit: the message as it was before, where its words were changed, and the
    receipts that it closed.
    """

    event: StoredEvent
    previous: Memory | None = None
    superseded: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What went: so many messages, some of them by name; receipts and parts that were cancelled with them."""

    message_count: int = 0
    message_ids: tuple[UUID, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """How much was deleted of what was kept of somebody, and what was cancelled with it."""

    messages: int = 0
    replies: int = 0
    derived: int = 0
    components: int = 0
    relationships: int = 0
    tasks: int = 0
    cancelled: DeletionResult = DeletionResult()

    @property
    def total(self) -> int:
        """How many pieces there were."""
        return self.messages + self.replies + self.derived + self.components + self.relationships + self.tasks


@dataclass(frozen=True, slots=True)
class EditPlan:
    """What follows from an edit: its receipt, the message as it reads now, and the receipts it closes."""

    receipt: Receipt
    message: Memory | None = None
    superseded: tuple[Receipt, ...] = ()


def plan_edit(
    edit: InboundMessage,
    now: datetime,
    receipts: Sequence[Receipt],
    message: Memory | None,
    *,
    is_answering: bool,
) -> EditPlan:
    """Decide about an edit of a message, by the receipts of all its revisions.

    While the message waits for its answer, the edit takes its place. Once it has its outcome, or
    `is_answering` says that it is being answered, the edit's receipt is marked as LATE_EDIT.
    """
    latest = max(receipts, key=lambda receipt: receipt.key.revision)
    receipt = replace(new_receipt(edit, now), author_id=latest.author_id, memory_id=latest.memory_id)
    if message is None:
        return EditPlan(cancel_receipt(receipt, now, "its message was removed"))
    if edit.key.revision < latest.key.revision:
        return EditPlan(_close_receipt(receipt, Outcome.SUPERSEDED, now, "a later edit came before it"))
    if _visible_content(message) == _visible_content(edit.message):
        return EditPlan(
            _close_receipt(receipt, Outcome.IGNORED, now, "nothing that the message says has changed")
        )
    open_receipts = [other for other in receipts if not other.outcome.is_final]
    if is_answering or not open_receipts or any(other.rule == LATE_EDIT for other in open_receipts):
        receipt = replace(receipt, rule=LATE_EDIT)
    reason = "its message was edited before it was answered"
    superseded = [
        _close_receipt(other, Outcome.SUPERSEDED, now, reason) for other in open_receipts if not is_answering
    ]
    return EditPlan(receipt, _apply_edit(message, edit.message, now), tuple(superseded))


def cancel_receipt(receipt: Receipt, now: datetime, reason: str) -> Receipt:
    """Close a receipt whose message nobody can answer any more."""
    return replace(receipt, outcome=Outcome.CANCELLED, reason=reason, rule=REMOVED, closed_at=now)


def redact_receipt(receipt: Receipt, now: datetime) -> Receipt:
    """Leave of a receipt what recognises its message again, and what it cost."""
    reason = "whoever wrote it has had it forgotten"
    if not receipt.outcome.is_final:
        receipt = replace(receipt, outcome=Outcome.CANCELLED, closed_at=now, is_evaluated=True)
    return replace(receipt, reason=reason, rule=FORGOTTEN, notes=(), is_evaluated=True)


def anonymize_entity(entity: Entity) -> Entity:
    """Leave of somebody an id that only a platform's own id leads to."""
    return replace(entity, external_id="", names=(), metadata={})


def opt_out_component(entity_id: UUID, now: datetime) -> Component:
    """Make the mark of somebody who has had everything forgotten."""
    return Component(
        derived_id("forgotten", entity_id), entity_id, FORGOTTEN, {"at": now.isoformat()}, created_at=now
    )


def cancel_unsent(deliveries: Iterable[Delivery], reason: str) -> list[Delivery]:
    """Cancel the parts that have not begun to leave; one that is under way is let finish."""
    pending = (delivery for delivery in deliveries if delivery.state is DeliveryState.PENDING)
    return [replace(delivery, state=DeliveryState.CANCELLED, cause=reason) for delivery in pending]


def orphaned_deliveries(
    deliveries: Iterable[Delivery], deleted: Sequence[Receipt], receipts: Iterable[Receipt]
) -> list[Delivery]:
    """Pick the parts of replies that answer nothing but messages that are gone."""
    deleted_turns = {receipt.turn_id for receipt in deleted}
    deleted_memories = {receipt.memory_id for receipt in deleted}
    answered_turns = {
        other.turn_id
        for other in receipts
        if other.memory_id not in deleted_memories and other.outcome is not Outcome.CANCELLED
    }
    return [delivery for delivery in deliveries if delivery.turn_id in deleted_turns - answered_turns]


def messages_by_external_id(deliveries: Iterable[Delivery], message_ids: Collection[str]) -> set[UUID]:
    """Find the messages of ours that the platform calls so."""
    return {
        delivery.memory_id
        for delivery in deliveries
        if delivery.external_id and delivery.external_id in message_ids
    }


def _close_receipt(receipt: Receipt, outcome: Outcome, now: datetime, reason: str) -> Receipt:
    superseded_by = receipt.memory_id if outcome is Outcome.SUPERSEDED else None
    return replace(
        receipt, outcome=outcome, reason=reason, rule=EDITED, superseded_by=superseded_by, closed_at=now
    )


def _visible_content(message: Memory) -> tuple[object, ...]:
    content = message.content
    return (content.text, tuple((attachment.id, attachment.url) for attachment in content.attachments))


def _apply_edit(message: Memory, edit: Memory, now: datetime) -> Memory:
    """Give a message its new words; the old ones stay with it, the last ten of them."""
    revisions = [
        *message.metadata.get(REVISIONS_KEY, ()),
        {"text": message.content.text, "until": now.isoformat()},
    ]
    metadata = {**message.metadata, **edit.metadata, REVISIONS_KEY: revisions[-MAX_REVISIONS:]}
    return replace(message, content=edit.content, metadata=metadata, embedding=None, embedding_model="")
