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
from bot.platform import Delivery


def build_agent_body(agent_id: UUID, character: Character) -> AgentBody:
    """Return a character's public data."""
    return AgentBody.build(character, id=agent_id)


def build_room_body(room: Room, agent_id: UUID) -> RoomBody:
    """Return a room."""
    return RoomBody.build(room, agent_id=agent_id)


def build_message_body(
    memory: Memory, agent_id: UUID, authors: Mapping[UUID, Entity], receipt: Receipt | None = None
) -> MessageBody:
    """Return a message; with its receipt, also its outcome."""
    author = authors.get(memory.entity_id)
    return MessageBody.build(
        memory.content,
        id=memory.id,
        room_id=memory.room_id,
        author=build_author_body(memory.entity_id, author.name if author else "", agent_id),
        created_at=memory.created_at,
        attachments=[_build_attachment_body(attachment) for attachment in memory.content.attachments],
        outcome=None if receipt is None else OutcomeBody.build(receipt),
    )


def build_author_body(entity_id: UUID, name: str, agent_id: UUID) -> Author:
    """Return the author of a message."""
    return Author(id=entity_id, name=name, is_agent=entity_id == agent_id)


def build_message_response(receipt: Receipt, replies: Sequence[MessageBody], room: Room | None) -> MessageResponse:
    """Return the outcome with the replies; none for a superseded message."""
    return MessageResponse.build(
        receipt,
        message_id=receipt.memory_id,
        replies=[] if receipt.outcome is Outcome.SUPERSEDED else replies,
        room=room.external_id if room else "",
    )


def build_receipt_body(receipt: Receipt, agent_id: UUID) -> ReceiptBody:
    """Return a receipt with its costs."""
    calls = receipt.model_calls
    costs = [call.cost for call in calls if call.cost is not None]
    duration = receipt.closed_at - receipt.received_at if receipt.closed_at else None
    return ReceiptBody.build(
        receipt,
        agent_id=agent_id,
        message_id=receipt.memory_id,
        platform=receipt.key.platform,
        seconds=None if duration is None else duration.total_seconds(),
        carried=receipt.supersede_count,
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        cost=sum(costs) if costs else None,
        model_calls=[CallBody.build(call) for call in calls],
    )


def build_receipt_response(
    body: ReceiptBody, message: MessageBody | None, replies: Sequence[MessageBody], deliveries: Iterable[Delivery]
) -> ReceiptResponse:
    """Return a receipt with its message, replies and deliveries."""
    delivery_bodies = [DeliveryBody.build(delivery, message_id=delivery.memory_id) for delivery in deliveries]
    return ReceiptResponse(**dict(body), message=message, replies=list(replies), deliveries=delivery_bodies)


def build_part_body(delivery: Delivery, agent_id: UUID, room: Room | None) -> UndeliveredPartBody:
    """Return an undelivered part."""
    return UndeliveredPartBody.build(
        delivery,
        message_id=delivery.memory_id,
        agent_id=agent_id,
        room=(room.name or room.external_id) if room else delivery.target,
        text=delivery.content.text,
    )


def _build_attachment_body(attachment: Attachment) -> AttachmentBody:
    return AttachmentBody.build(attachment, title=attachment.title or attachment.name)
