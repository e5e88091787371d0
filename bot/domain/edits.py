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
from bot.domain.inbound import Arrival, Received, first_claim
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind

MOST_REVISIONS = 10
LATEST = 200  # as many of a room's receipts or parts are looked through, where no index leads to them
REVISIONS = "revisions"
EDITED, LATE_EDIT, REMOVED = "edited", "edited late", "removed"
FORGOTTEN = "forgotten"  # the kind of component that says so, and the rule on receipts


@dataclass(frozen=True, slots=True)
class Reaction:
    """Somebody's sign on a message; `message_id` is what the platform calls the message."""

    world: World
    room: Room
    author: Entity
    message_id: str
    sign: str
    created_at: datetime

    def about(self, message_id: UUID | None) -> Memory:
        """Make the memory of it; the same sign of the same person on the same message is the same one."""
        return Memory(
            id=derived_id("reaction", self.room.id, self.message_id, self.author.id, self.sign),
            kind=MemoryKind.REACTION,
            entity_id=self.author.id,
            room_id=self.room.id,
            world_id=self.world.id,
            content=Content(text=self.sign, source=self.room.platform, in_reply_to=message_id),
            created_at=self.created_at,
            external_id=self.message_id,
            source_id=message_id,
        )


@dataclass(frozen=True, slots=True)
class Revised:
    """What the books say of an edit: the message as it was before, where its words were changed, and the
    receipts that it closed.
    """

    received: Received
    before: Memory | None = None
    closed: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """What went: so many messages, some of them by name; receipts and parts that were cancelled with them."""

    count: int = 0
    messages: tuple[UUID, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was deleted of what was kept of somebody, and what was cancelled with it."""

    messages: int = 0
    answers: int = 0
    drawn: int = 0
    details: int = 0
    relationships: int = 0
    tasks: int = 0
    removed: Removed = Removed()

    @property
    def total(self) -> int:
        """How many pieces there were."""
        return self.messages + self.answers + self.drawn + self.details + self.relationships + self.tasks


@dataclass(frozen=True, slots=True)
class Edit:
    """What follows from an edit: its receipt, the message as it reads now, and the receipts it closes."""

    receipt: Receipt
    message: Memory | None = None
    closed: tuple[Receipt, ...] = ()


def weighed(
    arrival: Arrival, at: datetime, known: Sequence[Receipt], message: Memory | None, *, is_answering: bool
) -> Edit:
    """Decide about an edit of a message, by the receipts of all its revisions.

    While the message waits for its answer, the edit takes its place. Once it has its outcome, or
    `is_answering` says that it is being answered, the edit's receipt is marked as LATE_EDIT.
    """
    latest = max(known, key=lambda receipt: receipt.key.revision)
    receipt = replace(first_claim(arrival, at), author_id=latest.author_id, memory_id=latest.memory_id)
    if message is None:
        return Edit(cancelled(receipt, at, "its message was removed"))
    if arrival.key.revision < latest.key.revision:
        return Edit(_closed(receipt, Outcome.SUPERSEDED, at, "a later edit came before it"))
    if _says(message) == _says(arrival.message):
        return Edit(_closed(receipt, Outcome.IGNORED, at, "nothing that the message says has changed"))
    waiting = [one for one in known if not one.outcome.is_final]
    if is_answering or not waiting or any(one.rule == LATE_EDIT for one in waiting):
        receipt = replace(receipt, rule=LATE_EDIT)
    before_answer = "its message was edited before it was answered"
    closed = [_closed(one, Outcome.SUPERSEDED, at, before_answer) for one in waiting if not is_answering]
    return Edit(receipt, _reading_now(message, arrival.message, at), tuple(closed))


def cancelled(receipt: Receipt, at: datetime, reason: str) -> Receipt:
    """Close a receipt whose message nobody can answer any more."""
    return replace(receipt, outcome=Outcome.CANCELLED, reason=reason, rule=REMOVED, closed_at=at)


def blotted(receipt: Receipt, at: datetime) -> Receipt:
    """Leave of a receipt what recognises its message again, and what it cost."""
    reason = "whoever wrote it has had it forgotten"
    if not receipt.outcome.is_final:
        receipt = replace(receipt, outcome=Outcome.CANCELLED, closed_at=at, is_learnt=True)
    return replace(receipt, reason=reason, rule=FORGOTTEN, notes=(), is_learnt=True)


def nobody(person: Entity) -> Entity:
    """Leave of somebody an id that only a platform's own id leads to."""
    return replace(person, external_id="", names=(), metadata={})


def opted_out(entity_id: UUID, at: datetime) -> Component:
    """Make the mark of somebody who has had everything forgotten."""
    return Component(
        derived_id("forgotten", entity_id), entity_id, FORGOTTEN, {"at": at.isoformat()}, created_at=at
    )


def withheld(deliveries: Iterable[Delivery], reason: str) -> list[Delivery]:
    """Cancel the parts that have not begun to leave; one that is under way is let finish."""
    waiting = (part for part in deliveries if part.state is DeliveryState.PENDING)
    return [replace(part, state=DeliveryState.CANCELLED, cause=reason) for part in waiting]


def unasked(parts: Iterable[Delivery], gone: Sequence[Receipt], others: Iterable[Receipt]) -> list[Delivery]:
    """Pick the parts of replies that answer nothing but messages that are gone."""
    turns = {receipt.turn_id for receipt in gone}
    removed = {receipt.memory_id for receipt in gone}
    asked = {
        one.turn_id for one in others if one.memory_id not in removed and one.outcome is not Outcome.CANCELLED
    }
    return [part for part in parts if part.turn_id in turns - asked]


def sent_as(parts: Iterable[Delivery], message_ids: Collection[str]) -> set[UUID]:
    """Find the messages of ours that the platform calls so."""
    return {part.memory_id for part in parts if part.external_id and part.external_id in message_ids}


def _closed(receipt: Receipt, outcome: Outcome, at: datetime, reason: str) -> Receipt:
    by = receipt.memory_id if outcome is Outcome.SUPERSEDED else None
    return replace(receipt, outcome=outcome, reason=reason, rule=EDITED, superseded_by=by, closed_at=at)


def _says(message: Memory) -> tuple[object, ...]:
    content = message.content
    return (content.text, tuple((one.id, one.url) for one in content.attachments))


def _reading_now(before: Memory, edit: Memory, at: datetime) -> Memory:
    """Give a message its new words; the old ones stay with it, the last ten of them."""
    older = [*before.metadata.get(REVISIONS, ()), {"text": before.content.text, "until": at.isoformat()}]
    metadata = {**before.metadata, **edit.metadata, REVISIONS: older[-MOST_REVISIONS:]}
    return replace(before, content=edit.content, metadata=metadata, embedding=None, embedding_model="")
