"""Conversion of stored data to response models; pure."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from adapters.web.schemas import (
    AgentBody,
    AttachmentBody,
    Author,
    CallBody,
    DeliveryBody,
    MessageBody,
    MessageResponse,
    OutcomeBody,
    ReceiptBody,
    ReceiptResponse,
    RoomBody,
    UndeliveredPartBody,
)
from bot import Attachment, Character, Entity, Memory, Outcome, Receipt, Room
from bot.models import ModelCall
from bot.platform import Delivery


def build_agent_body(agent_id: UUID, character: Character) -> AgentBody:
    """Return a character's public data."""
    return AgentBody(
        id=agent_id,
        name=character.name,
        username=character.username,
        bio=list(character.bio),
        topics=list(character.topics),
    )


def build_room_body(room: Room, agent_id: UUID) -> RoomBody:
    """Return a room."""
    return RoomBody(
        id=room.id,
        agent_id=agent_id,
        name=room.name,
        type=room.type,
        platform=room.platform,
        external_id=room.external_id,
    )


def build_message_body(
    memory: Memory, agent_id: UUID, authors: Mapping[UUID, Entity], receipt: Receipt | None = None
) -> MessageBody:
    """Return a message; with its receipt, also its outcome."""
    author = authors.get(memory.entity_id)
    return MessageBody(
        id=memory.id,
        room_id=memory.room_id,
        author=build_author_body(memory.entity_id, author.name if author else "", agent_id),
        text=memory.content.text,
        created_at=memory.created_at,
        in_reply_to=memory.content.in_reply_to,
        actions=list(memory.content.actions),
        attachments=[_build_attachment_body(attachment) for attachment in memory.content.attachments],
        outcome=None if receipt is None else build_outcome_body(receipt),
    )


def build_author_body(entity_id: UUID, name: str, agent_id: UUID) -> Author:
    """Return the author of a message."""
    return Author(id=entity_id, name=name, is_agent=entity_id == agent_id)


def build_outcome_body(receipt: Receipt) -> OutcomeBody:
    """Return the outcome of a message."""
    return OutcomeBody(outcome=receipt.outcome, reason=receipt.reason, rule=receipt.rule)


def build_message_response(receipt: Receipt, replies: Sequence[MessageBody], room: Room | None) -> MessageResponse:
    """Return the outcome with the replies; none for a superseded message."""
    return MessageResponse(
        message_id=receipt.memory_id,
        outcome=receipt.outcome,
        reason=receipt.reason,
        rule=receipt.rule,
        replies=[] if receipt.outcome is Outcome.SUPERSEDED else list(replies),
        superseded_by=receipt.superseded_by,
        room=room.external_id if room else "",
        room_id=receipt.room_id,
    )


def build_receipt_body(receipt: Receipt, agent_id: UUID) -> ReceiptBody:
    """Return a receipt with its costs."""
    calls = receipt.model_calls
    costs = [call.cost for call in calls if call.cost is not None]
    duration = receipt.closed_at - receipt.received_at if receipt.closed_at else None
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
        seconds=None if duration is None else duration.total_seconds(),
        attempts=receipt.attempts,
        carried=receipt.supersede_count,
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        cost=sum(costs) if costs else None,
        model_calls=[_build_call_body(call) for call in calls],
        notes=list(receipt.notes),
    )


def build_receipt_response(
    body: ReceiptBody, message: MessageBody | None, replies: Sequence[MessageBody], deliveries: Iterable[Delivery]
) -> ReceiptResponse:
    """Return a receipt with its message, replies and deliveries."""
    return ReceiptResponse(
        **dict(body), message=message, replies=list(replies), deliveries=list(map(_build_delivery_body, deliveries))
    )


def build_part_body(delivery: Delivery, agent_id: UUID, room: Room | None) -> UndeliveredPartBody:
    """Return an undelivered part."""
    return UndeliveredPartBody(
        **dict(_build_delivery_body(delivery)),
        agent_id=agent_id,
        room_id=delivery.room_id,
        room=(room.name or room.external_id) if room else delivery.target,
        platform=delivery.platform,
        text=delivery.content.text,
    )


def _build_attachment_body(attachment: Attachment) -> AttachmentBody:
    return AttachmentBody(
        kind=attachment.kind,
        url=attachment.url,
        content_type=attachment.content_type,
        title=attachment.title or attachment.name,
        description=attachment.description,
        problem=attachment.problem,
    )


def _build_call_body(call: ModelCall) -> CallBody:
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


def _build_delivery_body(delivery: Delivery) -> DeliveryBody:
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
