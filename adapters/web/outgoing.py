"""From what the books hold to what a client is told; pure."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from adapters.web.schemas import (
    AgentBody,
    AttachmentBody,
    Author,
    CallBody,
    DeliveryBody,
    MessageAnswer,
    MessageBody,
    OutcomeBody,
    ReceiptAnswer,
    ReceiptBody,
    RoomBody,
    UnsentBody,
)
from bot import Attachment, Character, Entity, Memory, Outcome, Receipt, Room
from bot.models import ModelCall
from bot.platform import Delivery


def agent_body(agent_id: UUID, character: Character) -> AgentBody:
    """Introduce a character."""
    return AgentBody(
        id=agent_id,
        name=character.name,
        username=character.username,
        bio=list(character.bio),
        topics=list(character.topics),
    )


def room_body(room: Room, agent_id: UUID) -> RoomBody:
    """Show a room."""
    return RoomBody(
        id=room.id,
        agent_id=agent_id,
        name=room.name,
        type=room.type,
        platform=room.platform,
        external_id=room.external_id,
    )


def message_body(
    memory: Memory, agent_id: UUID, authors: Mapping[UUID, Entity], receipt: Receipt | None = None
) -> MessageBody:
    """Show a message; with its receipt, also what became of it."""
    author = authors.get(memory.entity_id)
    return MessageBody(
        id=memory.id,
        room_id=memory.room_id,
        author=author_body(memory.entity_id, author.name if author else "", agent_id),
        text=memory.content.text,
        created_at=memory.created_at,
        in_reply_to=memory.content.in_reply_to,
        actions=list(memory.content.actions),
        attachments=[_attachment(one) for one in memory.content.attachments],
        outcome=None if receipt is None else outcome_body(receipt),
    )


def author_body(entity_id: UUID, name: str, agent_id: UUID) -> Author:
    """Show who wrote a message."""
    return Author(id=entity_id, name=name, is_agent=entity_id == agent_id)


def outcome_body(receipt: Receipt) -> OutcomeBody:
    """Show where a message stands."""
    return OutcomeBody(outcome=receipt.outcome, reason=receipt.reason, rule=receipt.rule)


def message_answer(receipt: Receipt, replies: Sequence[MessageBody], room: Room | None) -> MessageAnswer:
    """Tell what became of a message; a superseded one was answered elsewhere."""
    return MessageAnswer(
        message_id=receipt.memory_id,
        outcome=receipt.outcome,
        reason=receipt.reason,
        rule=receipt.rule,
        replies=[] if receipt.outcome is Outcome.SUPERSEDED else list(replies),
        superseded_by=receipt.superseded_by,
        room=room.external_id if room else "",
        room_id=receipt.room_id,
    )


def receipt_body(receipt: Receipt, agent_id: UUID) -> ReceiptBody:
    """Show a receipt."""
    calls = receipt.model_calls
    known = [call.cost for call in calls if call.cost is not None]
    lasted = receipt.closed_at - receipt.received_at if receipt.closed_at else None
    return ReceiptBody(
        id=receipt.id,
        agent_id=agent_id,
        message_id=receipt.memory_id,
        room_id=receipt.room_id,
        author_id=receipt.author_id,
        platform=receipt.key.platform,
        outcome=receipt.outcome,
        reason=receipt.reason,
        rule=receipt.rule,
        superseded_by=receipt.superseded_by,
        received_at=receipt.received_at,
        claimed_at=receipt.claimed_at,
        closed_at=receipt.closed_at,
        seconds=None if lasted is None else lasted.total_seconds(),
        attempts=receipt.attempts,
        carried=receipt.carried,
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        cost=sum(known) if known else None,
        model_calls=[_call(call) for call in calls],
        notes=list(receipt.notes),
    )


def receipt_answer(
    body: ReceiptBody,
    message: MessageBody | None,
    replies: Sequence[MessageBody],
    deliveries: Iterable[Delivery],
) -> ReceiptAnswer:
    """Show a receipt with what belongs to it."""
    return ReceiptAnswer(
        **dict(body), message=message, replies=list(replies), deliveries=list(map(_delivery, deliveries))
    )


def unsent_body(delivery: Delivery, agent_id: UUID, room: Room | None) -> UnsentBody:
    """Show a part that has not arrived."""
    return UnsentBody(
        **dict(_delivery(delivery)),
        agent_id=agent_id,
        room_id=delivery.room_id,
        room=(room.name or room.external_id) if room else delivery.target,
        platform=delivery.platform,
        text=delivery.content.text,
    )


def _attachment(attachment: Attachment) -> AttachmentBody:
    return AttachmentBody(
        kind=attachment.kind,
        url=attachment.url,
        content_type=attachment.content_type,
        title=attachment.title or attachment.name,
        description=attachment.description,
        problem=attachment.problem,
    )


def _call(call: ModelCall) -> CallBody:
    return CallBody(
        type=call.type,
        purpose=call.purpose,
        model=call.model,
        tokens_in=call.tokens_in,
        tokens_out=call.tokens_out,
        tokens_cached=call.tokens_cached,
        is_estimate=call.is_estimate,
        cost=call.cost,
        seconds=call.seconds,
        error=call.error,
    )


def _delivery(delivery: Delivery) -> DeliveryBody:
    return DeliveryBody(
        id=delivery.id,
        message_id=delivery.memory_id,
        part=delivery.part,
        state=delivery.state,
        attempts=delivery.attempts,
        created_at=delivery.created_at,
        first_attempt_at=delivery.first_attempt_at,
        cause=delivery.cause,
    )
